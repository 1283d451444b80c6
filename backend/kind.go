package backend

import (
	"hash/maphash"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// kind is a number that requests have in common which can share a run, and others hardly
// ever: it tells which to compare. Nothing of the request needs to be right.
func (e *execution) kind(req int) uint64 {
	r, in := &e.requests[req], e.in
	w := in.wiring
	if r.Err != nil || !w.varies && !w.shares {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(e.queue.seed)
	for i := range w.inputs {
		hashInput(&w.inputs[i], &h, &r.Inputs[i])
	}
	var q *statebuffer.Sequence // as joins has it
	if !r.Start {
		q = in.store.Live(r.key())
	}
	for i := range w.fills {
		hashGenerated(&w.fills[i], &h, r, q)
	}
	in.store.HashShapes(&h, q)
	return h.Sum64()
}

// hashInput adds what sameInput compares.
func hashInput(p *port, h *maphash.Hash, input *Input) {
	maphash.WriteComparable(h, input.Present)
	if !input.Present || len(input.Shape) == 0 {
		return
	}
	if p.axis == tensor.NoAxis {
		h.Write(sharedContent(p, input))
	}
	if p.varies {
		for _, extent := range input.Shape[requestAxes(p):] {
			maphash.WriteComparable(h, extent)
		}
	}
}
