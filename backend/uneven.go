package backend

import (
	"fmt"
	"slices"

	"tritonstateful/statebuffer"
)

// Sequences of unequal length share a run where a mask tells the model what is padding.
// That is right for models that append to their states and count nothing that the mask
// hides. Whether a model is one is seen as it runs: here, for what it appends.

// spread is how long the values are that a mask tells of, in the lanes of a run.
type spread struct{ longest, sum int64 }

// spread notes the lengths of a lane that the run gets; q is nil for a sequence that
// starts.
func (e *execution) spread(q *statebuffer.Sequence) {
	for at, i := range e.in.wiring.masks {
		held := e.in.store.Length(e.in.wiring.fills[i].mask.covers[0], q)
		s := &e.spreads[at]
		s.longest, s.sum = max(s.longest, held), s.sum+held
	}
}

// spares tells whether a run is worth its padding with one lane more. It is at most
// twice as large as what its lanes hold and the step brings them, so that no run takes
// more than twice the time and memory for the sake of one long sequence; and what it
// pads is within the limit of memory, beside what all sequences hold.
func (e *execution) spares(r *Request, q *statebuffer.Sequence) bool {
	in, lanes := e.in, int64(len(e.lanes)+1)
	padded := int64(0)
	for at, i := range in.wiring.masks {
		f := &in.wiring.fills[i]
		held, step := in.store.Length(f.mask.covers[0], q), in.grows[at]
		if f.mask.length >= 0 {
			step = in.extent(r, &in.wiring.lengths[f.mask.length])
		}
		longest, sum := max(e.spreads[at].longest, held), e.spreads[at].sum+held
		if lanes*longest == sum { // all are equal
			continue
		}
		if lanes*(longest+step) > 2*(sum+lanes*step) {
			return false
		}
		padded += (longest + step) * int64(f.dtype.Size())
		for _, state := range f.mask.covers {
			padded += (longest + longest + step) * in.store.LengthBytes(state, q)
		}
	}
	return padded == 0 || in.store.FitsBudget(int64(in.lanesWithPadding(int(lanes)))*padded)
}

const runsApart = "sequences of unequal length run apart: "

// runApart ends that sequences of unequal length share runs.
func (in *Instance) runApart(why string) {
	in.store.DisableLeftPadding()
	in.apart = why
	in.log.Warn(runsApart + why)
}

// partUneven has the members of a run run again if sequences of unequal length should not
// have shared it: apart by their lengths if the model does not append, and in halves if
// a state of one has got too long. It is false when the run is good.
func (e *execution) partUneven() bool {
	if !e.uneven() {
		return false
	}
	if why := e.notAppended(); why != "" {
		e.in.runApart(why)
		e.undo(1)
		return true
	}
	if len(e.members) > 1 && e.in.store.TooLong(e.step) != nil {
		e.halve()
		return true
	}
	return false
}

// uneven tells whether values of unequal length share the run.
func (e *execution) uneven() bool {
	return slices.ContainsFunc(e.step.Varying, func(io statebuffer.VaryingIO) bool { return io.Uneven })
}

// notAppended tells which state has become longer by something else than a step
// appends: what the input has that its mask names, or what every step has appended.
func (e *execution) notAppended() string {
	w := e.in.wiring
	for at, i := range w.masks {
		m := w.fills[i].mask
		step := e.in.grows[at]
		if m.length >= 0 {
			step = int64(e.lengths[m.length])
		}
		for _, at := range m.covers {
			s, io := &w.varying[at], &e.step.Varying[at]
			if !io.Uneven || len(io.OutShape) != len(io.InShape) { // what has another rank is an error of Commit
				continue
			}
			if before, after := io.InShape[s.padAxis], io.OutShape[s.padAxis]; after-before != step {
				return fmt.Sprintf("the mask %q is for models that append, and a step that brings %d has made the state %q of length %d one of %d: the model drops what is old, and what is not would have to make way for padding", w.fills[i].name, step, s.input, before, after)
			}
		}
	}
	return ""
}
