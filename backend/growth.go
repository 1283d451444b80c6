package backend

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// extentChange is what runs show of an open axis of a state.
type extentChange uint8

const (
	changeUnseen  extentChange = iota
	extentStays                // its extent is as before a step
	extentChanges              // it is another: the axis is not the batch
)

// axisOfInput is an axis of an input, by its position in the signature.
type axisOfInput struct{ at, axis int }

// stateChanges runs one lane with states that are not empty, and tells of their open axes
// whether a step changes their extents. States of nothing are not tried: along an axis
// that is the batch after all, kernels of ONNX Runtime end the process. Two extents are,
// for one may be that of a window. States of one element are only tried where others do
// not run, because they are stretched to any length.
func (t *trial) stateChanges() map[axisOfInput]extentChange {
	seen := map[axisOfInput]extentChange{}
	for _, states := range []stateExtent{statesAlike, statesOne} {
		ran := map[int64]bool{} // by their extents
		for s := range settings() {
			if s.states != states || ran[s.extent] || time.Now().After(t.deadline) {
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
func (t *trial) compareExtents(s setting, outputs []onnx.Tensor, seen map[axisOfInput]extentChange) {
	for i := range t.inputs {
		in := &t.inputs[i]
		if in.begin == nil {
			continue
		}
		before, after := t.shape(in, s), outputs[slices.Index(t.outputs, in.state)].Shape
		for axis := range min(len(before), len(after)) {
			switch k := (axisOfInput{in.at, axis}); {
			case before[axis] != after[axis]:
				seen[k] = extentChanges
			case seen[k] == changeUnseen:
				seen[k] = extentStays
			}
		}
	}
}

// excludes is why a candidate cannot be taken though no run speaks against it: a state
// would begin with nothing along an axis that may be the batch, or that never grows.
func (c *chooser) excludes(a *attempted) (why string) {
	for s, axis := range a.planner.emptyAxes(false) {
		symbol := a.planner.sig.Inputs[s.In].Symbols[axis]
		switch seen := a.changes[axisOfInput{s.In, axis}]; {
		case batchaxis.IsBatchName(symbol):
			return fmt.Sprintf("state %q would begin with nothing along axis %d, which is called %q", s.Input, axis, symbol)
		case seen == extentStays && (a.candidate.Rank != batchaxis.ByBatchName || a.planner.requested(symbol)):
			return fmt.Sprintf("state %q would begin with nothing along axis %d, and stay so", s.Input, axis)
		case seen == changeUnseen && s.Axis == tensor.NoAxis:
			return fmt.Sprintf("state %q would begin with nothing along axis %d, which may be the batch", s.Input, axis)
		}
	}
	return ""
}

// requested reports whether a name stands on an input that requests bring.
func (pl *planner) requested(symbol string) bool {
	return symbol != "" && slices.ContainsFunc(pl.plan.Inputs, func(p plan.IO) bool { return slices.Contains(pl.sig.Inputs[p.Index].Symbols, symbol) })
}

// mayBegin reports whether runs may be tried with states as they begin, for which it must
// be sure that what has an extent of 0 then is not the batch.
func (c *chooser) mayBegin(a *attempted) bool {
	for s, axis := range a.planner.emptyAxes(false) {
		named := a.candidate.Rank == batchaxis.ByBatchName && s.Axis != tensor.NoAxis && !batchaxis.IsBatchName(a.planner.sig.Inputs[s.In].Symbols[axis])
		if !named && !a.candidate.InputsGiven && a.changes[axisOfInput{s.In, axis}] != extentChanges {
			return false
		}
	}
	return true
}

// checkBeginnings is the fault of states that would begin with nothing though batch_axes tells
// where their batch is, if runs show that a step does not make them longer and that they
// stay empty or the model does not run so. Which extents the model takes is seen with
// states that are not empty first.
func (c *chooser) checkBeginnings(pl *planner) error {
	if !pl.beginsEmpty(true) || c.verify == config.VerifyNever {
		return nil
	}
	r, err := c.runner()
	if err != nil {
		return nil // the first requests show it
	}
	t := pl.newTrial(r, time.Now().Add(proofMost))
	t.begins = true
	defer func() { c.runs += t.runs }()
	seen := t.stateChanges()
	for s := range settings() {
		if s.states != statesAlike {
			continue
		}
		if _, err := t.runOne(s); err != nil {
			continue
		}
		s.states = statesBegin
		outputs, err := t.runOne(s)
		return pl.emptyFault(t, seen, outputs, err)
	}
	return nil
}

// runOne runs one lane.
func (t *trial) runOne(s setting) ([]onnx.Tensor, error) {
	l, ok := t.newLane(s, 1, nil)
	if !ok {
		return nil, errNoContents
	}
	return t.run(s, l)
}

// errNoContents says that a lane cannot be made.
var errNoContents = errors.New("no contents for such extents")

// emptyFault is the fault of the first state that stays as long as it is and for which a
// run that began with nothing gave nothing, or failed.
func (pl *planner) emptyFault(t *trial, seen map[axisOfInput]extentChange, outputs []onnx.Tensor, failed error) error {
	if errors.Is(failed, errTooLong) || errors.Is(failed, errNoContents) {
		return nil
	}
	for s, axis := range pl.emptyAxes(true) {
		if seen[axisOfInput{s.In, axis}] != extentStays {
			continue
		}
		why := "and stay so"
		if failed != nil {
			why = fmt.Sprintf("and the model does not run with that: %v", failed)
		} else if after := outputs[slices.Index(t.outputs, s.Out)].Shape; axis < len(after) && after[axis] > 0 {
			continue
		}
		return status.Errorf(status.InvalidArg, "state %q would begin with nothing along axis %d, %s: say how it begins by initial_states, for example '%s = 0[3]'", s.Input, axis, why, s.Input)
	}
	return nil
}

// emptyAxes are the open axes along which states begin with nothing, unless they are not
// simply replaced: those of states whose batch batch_axes tells, or those of the others.
func (pl *planner) emptyAxes(told bool) iter.Seq2[*plan.State, int] {
	return func(yield func(*plan.State, int) bool) {
		for i := range pl.plan.Varying {
			s := &pl.plan.Varying[i]
			if s.Begins != "empty" || (s.AxisFrom == "batch_axes") != told || s.Update != statebuffer.Replace {
				continue
			}
			for axis, extent := range s.Shape {
				if extent == 0 && axis != s.Axis && !yield(s, axis) {
					return
				}
			}
		}
	}
}

func (pl *planner) beginsEmpty(told bool) bool {
	for range pl.emptyAxes(told) {
		return true
	}
	return false
}
