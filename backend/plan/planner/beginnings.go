package planner

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/backend/plan/isolation"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// excludes is why a candidate cannot be taken though no run speaks against it: a state
// would begin with nothing along an axis that may be the batch, or that never grows.
func (c *chooser) excludes(a *attempted) (why string) {
	for s, axis := range a.planner.emptyAxes(false) {
		symbol := a.planner.sig.Inputs[s.In].Symbols[axis]
		switch seen := a.changes[isolation.InputAxis{Input: s.In, Axis: axis}]; {
		case batchaxis.IsBatchName(symbol):
			return fmt.Sprintf("state %q would start empty along axis %d, which is named %q", s.Input, axis, symbol)
		case seen == isolation.Stays && (a.candidate.Rank != batchaxis.ByBatchName || a.planner.requested(symbol)):
			return fmt.Sprintf("state %q would start empty along axis %d, and stay so", s.Input, axis)
		case seen == isolation.Unseen && s.Axis == tensor.NoAxis:
			return fmt.Sprintf("state %q would start empty along axis %d, which may be the batch", s.Input, axis)
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
		if !named && !a.candidate.InputsGiven && a.changes[isolation.InputAxis{Input: s.In, Axis: axis}] != isolation.Changes {
			return false
		}
	}
	return true
}

// emptyAxes are the open axes along which states begin with nothing, unless they are not
// simply replaced: those of states whose batch batch_axes gives, or those of the others.
func (pl *planner) emptyAxes(given bool) iter.Seq2[*plan.State, int] {
	return func(yield func(*plan.State, int) bool) {
		for i := range pl.plan.Varying {
			s := &pl.plan.Varying[i]
			if s.Begins != "empty" || (s.AxisFrom == "batch_axes") != given || s.Update != statebuffer.Replace {
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

func (pl *planner) beginsEmpty(given bool) bool {
	for range pl.emptyAxes(given) {
		return true
	}
	return false
}

// checkBeginnings is the fault of states that would begin with nothing though batch_axes
// says where their batch is, if runs show that a step does not make them longer and that
// they stay empty or the model does not run so.
func (c *chooser) checkBeginnings(pl *planner) error {
	if !pl.beginsEmpty(true) || c.verify == config.VerifyNever {
		return nil
	}
	r, err := c.runner()
	if err != nil {
		return nil // the first requests show it
	}
	t := isolation.NewTrial(r, &pl.plan, pl.candidate, pl.config.CanRequest, time.Now().Add(proofMost))
	t.MayBegin = true
	defer func() { c.runs += t.Runs }()
	seen := t.StateChanges()
	shapes, tried, err := t.RunBeginning()
	if !tried {
		return nil
	}
	return pl.emptyFault(seen, shapes, err)
}

// emptyFault is the fault of the first state that stays as long as it is and for which a
// run that began with nothing gave nothing, or failed. shapes are those of the outputs of
// that run, by their positions in the signature.
func (pl *planner) emptyFault(seen map[isolation.InputAxis]isolation.Change, shapes map[int]tensor.Shape, failed error) error {
	for s, axis := range pl.emptyAxes(true) {
		if seen[isolation.InputAxis{Input: s.In, Axis: axis}] != isolation.Stays {
			continue
		}
		why := "and stay empty"
		if failed != nil {
			why = fmt.Sprintf("and the model does not run with that: %v", failed)
		} else if after := shapes[s.Out]; axis < len(after) && after[axis] > 0 {
			continue
		}
		return status.Errorf(status.InvalidArg, "state %q would start empty along axis %d, %s: set its initial value with initial_states, for example '%s = 0[3]'", s.Input, axis, why, s.Input)
	}
	return nil
}
