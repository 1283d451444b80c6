package localserver

import (
	"errors"
	"slices"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
)

// call is a request on its way to an answer. The mutex of the server guards it, because requests that are held are released
// on other goroutines.
type call struct {
	server   *Instance
	answer   Answer
	answered bool
	finished bool // its batch is over, and has not parked it
	holds    int
}

func (c *call) isDone() bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.finished && c.holds == 0
}

// fail makes an error the answer, if there is no other yet or it is that of a release.
func (c *call) fail(err error) { c.answer, c.answered = Answer{Err: err}, true }

// batch is a backend.Batch.
type batch struct {
	server   *Instance
	requests []backend.Request
	calls    []*call
	parked   []bool
	pending  []pending
}

// pending is an answer that is not sent, whose outputs are borrowed.
type pending struct {
	call        *call
	outputs     []backend.Output
	lane, lanes int
}

func (b *batch) add(r backend.Request, c *call) {
	b.requests, b.calls, b.parked = append(b.requests, r), append(b.calls, c), append(b.parked, false)
}

func (b *batch) Requests() []backend.Request { return b.requests }

func (b *batch) Fail(req int, err error) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if c := b.calls[req]; !c.answered && !b.parked[req] {
		c.fail(err)
	}
}

func (b *batch) Answer(req int, outputs []backend.Output, lane, lanes int) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if c := b.calls[req]; !c.answered && !b.parked[req] {
		c.answered = true
		b.pending = append(b.pending, pending{c, outputs, lane, lanes})
	}
}

// Reserve is for GPUs only.
func (b *batch) Reserve(int, []backend.Output, int, int) []uint64 { return nil }

// Describe is for clients, of whom there are none.
func (b *batch) Describe(int, backend.AnswerParameters) {}

func (b *batch) Hold(req int) backend.Held {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.calls[req].holds++
	return held{b.calls[req]}
}

func (b *batch) Park(req int) func(note any) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.parked[req] = true
	request, c := b.requests[req], b.calls[req]
	return func(note any) {
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		request.Note = note
		b.server.reruns = append(b.server.reruns, rerun{request, c})
		b.server.signal()
	}
}

func (b *batch) Send() {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	for _, p := range b.pending {
		for i := range p.outputs {
			p.call.answer.Outputs = append(p.call.answer.Outputs, outputOf(&p.outputs[i], p.lane, p.lanes))
		}
	}
	b.pending = nil
}

func (b *batch) Finish(backend.Timing) {
	b.Send()
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	for req, c := range b.calls {
		if b.parked[req] {
			continue
		}
		if !c.answered {
			c.fail(status.Errorf(status.Internal, "the backend has finished the batch without an answer to request %d", req))
		}
		c.finished = true
	}
	b.server.signal()
}

// held is a backend.Held.
type held struct{ call *call }

func (h held) Release() { h.ReleaseWith(nil, nil) }

func (h held) ReleaseWith(_ *backend.AnswerParameters, err error) {
	s := h.call.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		h.call.fail(errors.Join(h.call.answer.Err, err))
	}
	h.call.holds--
	s.signal()
}

// outputOf copies some lanes of a batched tensor.
func outputOf(o *backend.Output, lane, lanes int) Output {
	shape := o.Shape.Clone()
	if o.Batched {
		shape[0] = int64(lanes)
	}
	if o.Offsets != nil {
		return Output{shape, slices.Clone(o.Tensor[o.Offsets[lane]:o.Offsets[lane+lanes]])}
	}
	size := o.Layout.LaneBytes()
	data := make([]byte, size*int64(lanes))
	for i := range lanes {
		o.Layout.TakeLane(data[int64(i)*size:int64(i+1)*size], o.Tensor, o.Lanes, lane+i)
	}
	return Output{shape, data}
}

var _ backend.Batch = (*batch)(nil)
