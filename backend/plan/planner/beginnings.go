package planner

import (
	"fmt"
	"iter"
	"slices"
	"strings"

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
func (c *chooser) excludes(a *attempted) (state *plan.State, along int, why string) {
	for s, axis := range a.planner.emptyAxes() {
		if s.AxisFrom == batchaxis.ByParameter {
			continue
		}
		symbol := a.planner.sig.Inputs[s.In].Symbols[axis]
		switch seen := a.changes[isolation.InputAxis{Input: s.In, Axis: axis}]; {
		case batchaxis.IsBatchName(symbol):
			return s, axis, fmt.Sprintf("state %q would start empty along axis %d, which is named %q", s.Input, axis, symbol)
		case seen == isolation.Stays && a.candidate.Rank != batchaxis.ByBatchName:
			return s, axis, fmt.Sprintf("state %q would start empty along axis %d, and stay so", s.Input, axis)
		case seen == isolation.Unseen && s.Axis == tensor.NoAxis:
			return s, axis, fmt.Sprintf("state %q would start empty along axis %d, which may be the batch", s.Input, axis)
		}
	}
	return nil, tensor.NoAxis, ""
}

func (c *chooser) isExcluded(a *attempted) bool {
	state, _, _ := c.excludes(a)
	return state != nil
}

// mayBegin reports whether runs may be tried with states as they begin, for which it must
// be sure that what has an extent of 0 then is not the batch, and ends no process.
func (c *chooser) mayBegin(a *attempted) bool {
	if a.planner.endsOnEmpty() {
		return false
	}
	for s, axis := range a.planner.emptyAxes() {
		if s.AxisFrom == batchaxis.ByParameter {
			continue
		}
		named := a.candidate.Rank == batchaxis.ByBatchName && s.Axis != tensor.NoAxis && !batchaxis.IsBatchName(a.planner.sig.Inputs[s.In].Symbols[axis])
		if !named && !a.candidate.InputsGiven && a.changes[isolation.InputAxis{Input: s.In, Axis: axis}] != isolation.Changes {
			return false
		}
	}
	return true
}

// emptyAxes are the open axes along which states begin with nothing, unless they are not
// simply replaced.
func (pl *planner) emptyAxes() iter.Seq2[*plan.State, int] {
	return func(yield func(*plan.State, int) bool) {
		for i := range pl.plan.Varying {
			s := &pl.plan.Varying[i]
			if s.Begins != "empty" || s.Update != statebuffer.Replace {
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

func (pl *planner) beginsEmpty() bool {
	for range pl.emptyAxes() {
		return true
	}
	return false
}

// checkBeginnings is the fault of states that would begin with nothing, if runs show that a
// step does not make them longer and that the model does not run so. If it does run, and they
// stay empty, there is a warning. Where the batch is, is known by now. Nothing is run that
// could end the process.
func (c *chooser) checkBeginnings(pl *planner) error {
	if err := c.checkEmptyStates(pl); err != nil {
		return err
	}
	if !pl.beginsEmpty() || c.verify == config.VerifyNever || pl.endsOnEmpty() {
		return nil
	}
	r, err := c.runner()
	if err != nil {
		return nil // the first requests show it
	}
	t := isolation.NewTrial(r, &pl.plan, pl.candidate, pl.config.CanRequest, c.deadline)
	t.MayBegin = true
	defer func() { c.runs += t.Runs }()
	var seen map[isolation.InputAxis]isolation.Change
	for i := range c.tried { // the proof may have seen it
		if c.tried[i].planner == pl {
			seen = c.tried[i].changes
		}
	}
	if len(seen) == 0 {
		seen = t.StateChanges()
	}
	begun, err := t.RunBeginning()
	if len(begun) == 0 && err == nil {
		pl.warn("no run shows that states can start empty, because the model does not run with what was tried; if every request fails, set their initial values with initial_states")
		return nil
	}
	var stay []*plan.State
	var along []int // these axes
	for s, axis := range pl.emptyAxes() {
		longer := func(shapes map[int]tensor.Shape) bool { return axis < len(shapes[s.Out]) && shapes[s.Out][axis] > 0 }
		if seen[isolation.InputAxis{Input: s.In, Axis: axis}] == isolation.Stays && !slices.ContainsFunc(begun, longer) && !slices.Contains(stay, s) {
			stay, along = append(stay, s), append(along, axis)
		}
	}
	if len(stay) == 0 {
		return nil
	}
	line := pl.initialLine(t.StateExtent(), stay)
	if len(begun) == 0 {
		return status.Errorf(status.InvalidArg, "state %q would start empty along axis %d, and the model does not run with that: set its initial value with initial_states, for example %s; the last trial run failed with: %w", stay[0].Input, along[0], line, err)
	}
	for i, s := range stay {
		pl.warn("state %q starts empty along axis %d, and stays so; if it should not, set its initial value with initial_states, for example %s", s.Input, along[i], line)
	}
	return nil
}

// initialLine is the parameter initial_states with which these states, of those that vary, begin
// with zeros of that extent along their open axes. What it says of others, it keeps.
func (pl *planner) initialLine(extent int64, states []*plan.State) string {
	var values []string
	for _, given := range pl.params.InitialStates {
		if !slices.ContainsFunc(states, func(s *plan.State) bool { return s.Input == given.Name }) {
			values = append(values, given.Name+" = "+given.Value)
		}
	}
	for _, s := range states {
		values = append(values, s.Input+" = "+s.ExampleValue(extent))
	}
	return parameterText("initial_states", strings.Join(values, "; "))
}

// stateExtent is an extent of states with which the model runs by a candidate, or 1, also
// where the model is not to run.
func (c *chooser) stateExtent(a *attempted) int64 {
	if c.verify == config.VerifyNever {
		return 1
	}
	r, err := c.runner()
	if err != nil {
		return 1
	}
	t := isolation.NewTrial(r, &a.planner.plan, a.candidate, a.planner.config.CanRequest, c.deadline)
	defer func() { c.runs += t.Runs }()
	return t.StateExtent()
}
