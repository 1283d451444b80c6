package isolation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// Change is what runs show of an open axis of a state.
type Change uint8

// The changes.
const (
	Unseen  Change = iota
	Stays          // its extent is as before a step
	Changes        // it is another: the axis is not the batch
)

// InputAxis is an axis of an input, by its position in the signature.
type InputAxis struct{ Input, Axis int }

// StateChanges runs one lane with states that are not empty, and returns for their open axes
// whether a step changes their extents. States of nothing are not tried: along an axis
// that is the batch after all, kernels of ONNX Runtime end the process. Two extents are
// tried, because one may be that of a window. Extents of 1 are only tried where others do not run,
// because they are stretched to any length.
func (t *Trial) StateChanges() map[InputAxis]Change {
	seen := map[InputAxis]Change{}
	for _, states := range []stateExtent{statesAlike, statesOne} {
		ran := map[int64]bool{} // by their extents
		for s := range t.settings() {
			stretched := s.extent == 1 && len(ran) > 0
			if s.states != states || ran[s.extent] || stretched || time.Now().After(t.deadline) {
				continue
			}
			outputs, err := t.runOne(s)
			if err != nil {
				continue
			}
			t.compareExtents(s, outputs, seen)
			if ran[s.extent] = true; len(ran) == 2 {
				break
			}
		}
		if len(ran) > 0 {
			break
		}
	}
	return seen
}

// compareExtents notes what a step of one lane has made of the extents of states.
func (t *Trial) compareExtents(s setting, outputs []onnx.Tensor, seen map[InputAxis]Change) {
	for i := range t.inputs {
		in := &t.inputs[i]
		if in.begin == nil {
			continue
		}
		before, after := t.shape(in, s), outputs[slices.Index(t.outputs, in.state)].Shape
		for axis := range min(len(before), len(after)) {
			switch key := (InputAxis{in.index, axis}); {
			case before[axis] != after[axis]:
				seen[key] = Changes
			case seen[key] == Unseen:
				seen[key] = Stays
			}
		}
	}
}

// runOne runs one lane.
func (t *Trial) runOne(s setting) ([]onnx.Tensor, error) {
	l, ok := t.newLane(s, 1, nil)
	if !ok {
		return nil, errNoContents
	}
	return t.run(s, l)
}

// errNoContents says that a lane cannot be made.
var errNoContents = errors.New("no contents for such extents")

// isState reports whether an output is that of a state.
func (t *Trial) isState(output int) bool {
	return slices.ContainsFunc(t.inputs, func(in trialInput) bool { return in.begin != nil && in.state == output })
}

// beginningsMost bounds the extents with which states are tried as they begin.
const beginningsMost = 6

// RunBeginning runs one lane with states as a sequence begins with them, at some of the
// extents at which the model runs with states that are not empty: which ones it takes is
// seen with those. It returns, of each such run, the shape of each wanted output by its
// position in the signature, or the last error if none succeeds: that requests are answered
// with empty outputs is no success. It returns nothing where there are no such extents, or
// no time.
func (t *Trial) RunBeginning() (begun []map[int]tensor.Shape, failed error) {
	tried := map[int64]bool{}
	for s := range t.settings() {
		if s.states != statesAlike || tried[s.extent] || len(tried) == beginningsMost {
			continue
		}
		if _, err := t.runOne(s); err != nil {
			continue
		}
		tried[s.extent] = true
		s.states = statesBegin
		outputs, err := t.runOne(s)
		if errors.Is(err, errTooLong) {
			break
		}
		if err != nil {
			failed = err
			continue
		}
		shapes := map[int]tensor.Shape{}
		empty := false
		for k, at := range t.outputs {
			shapes[at] = outputs[k].Shape
			if slices.Contains(outputs[k].Shape, 0) && !t.isState(at) {
				empty, failed = true, fmt.Errorf("output %q has shape %v", t.sig.Outputs[at].Name, outputs[k].Shape)
			}
		}
		if !empty {
			begun = append(begun, shapes)
		}
	}
	return begun, failed
}
