package backend

import (
	"fmt"
	"slices"

	"tritonstateful/statebuffer"
)

// Sequences of unequal length share a run where a mask tells the model what is padding.
// That is right for models that append to their states and count nothing that the mask
// hides. Whether a model is one is seen as it runs: here, for what it appends.

// runApart ends that sequences of unequal length share runs.
func (in *Instance) runApart(why string) {
	in.store.PadNone()
	in.log.Warn("sequences of unequal length no longer share a run: " + why)
}

// partUneven has the rows of a run run again if sequences of unequal length should not
// have shared it: apart by their lengths if the model does not append, and one by one if
// a state of one has got too long. It is false when the run is good.
func (x *execution) partUneven() bool {
	if x.failed || !x.uneven() {
		return false
	}
	if why := x.notAppended(); why != "" {
		x.in.runApart(why)
		x.undo()
		return true
	}
	if len(x.rows) > 1 && !x.alone && x.in.store.TooLong(x.step) != nil {
		x.oneByOne()
		return true
	}
	return false
}

// uneven tells whether values of unequal length share the run.
func (x *execution) uneven() bool {
	return slices.ContainsFunc(x.step.Varying, func(io statebuffer.VaryingIO) bool { return io.Uneven })
}

// notAppended tells which state has become longer by something else than the step's
// part of the input that its mask names.
func (x *execution) notAppended() string {
	w := x.in.wiring
	for i := range w.fills {
		m := w.fills[i].mask
		if m == nil || m.length < 0 {
			continue
		}
		step := int64(x.lengths[m.length])
		for _, at := range m.covers {
			s, io := &w.varying[at], &x.step.Varying[at]
			if !io.Uneven || len(io.OutShape) != len(io.InShape) { // what has another rank is an error of Commit
				continue
			}
			if before, after := io.InShape[s.padAxis], io.OutShape[s.padAxis]; after-before != step {
				return fmt.Sprintf("the mask %q says that a step appends %d to the state %q of length %d, as the input %q has, and the model made it %d: it drops what is old, and padding would take the place of what is not", w.fills[i].name, step, s.input, before, w.lengths[m.length].name, after)
			}
		}
	}
	return ""
}
