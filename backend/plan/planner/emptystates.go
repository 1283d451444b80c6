package planner

import (
	"slices"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// emptyStates are the states that start with an extent of 0, whatever says so.
func (pl *planner) emptyStates() (states []*plan.State) {
	for i := range pl.plan.Varying {
		if s := &pl.plan.Varying[i]; slices.Contains(s.Shape, 0) {
			states = append(states, s)
		}
	}
	return states
}

// endsOnEmpty reports whether a run with states as they begin may end the process.
func (pl *planner) endsOnEmpty() bool {
	return pl.sig.EndsOnEmpty() != "" && len(pl.emptyStates()) > 0
}

// checkEmptyStates is the fault of states that would start empty in a model that brings them to
// an operator with which ONNX Runtime ends the process. Where it is not sure that it does,
// there is a warning.
func (c *chooser) checkEmptyStates(pl *planner) error {
	states := pl.emptyStates()
	operator, reach := pl.emptyReaches(states)
	if reach == onnx.Never {
		return nil
	}
	brought := slices.DeleteFunc(slices.Clone(states), func(s *plan.State) bool {
		_, alone := pl.emptyReaches([]*plan.State{s})
		return alone < reach
	})
	if len(brought) == 0 { // only several together
		brought = states
	}
	s := brought[0]
	line := pl.initialLine(c.stateExtent(&attempted{candidate: pl.candidate, planner: pl}), brought)
	if reach == onnx.Certain {
		return status.Errorf(status.InvalidArg, "state %q would start empty, with shape %v, and the model brings it into its operator %s, in which ONNX Runtime crashes on an empty tensor: give the state an extent, for example %s", s.Input, s.Shape, operator, line)
	}
	has := "has"
	if pl.sig.Unread {
		has = "may have"
	}
	pl.warn("state %q begins with shape %v, and ONNX Runtime crashes when the operator %s, which the model %s, runs with an empty tensor: if the first step brings the empty state into it, give the state an extent, for example %s", s.Input, s.Shape, operator, has, line)
	return nil
}

// emptyReaches is what becomes of these states if they are empty.
func (pl *planner) emptyReaches(states []*plan.State) (operator string, reach onnx.Reach) {
	if len(states) == 0 {
		return "", onnx.Never
	}
	var empty, lengths []string
	for _, s := range states {
		empty = append(empty, s.Input)
	}
	for i := range pl.plan.Generated {
		switch g := &pl.plan.Generated[i]; g.Kind {
		case plan.KindMask:
			covers := func(at int) bool { return slices.Contains(states, &pl.plan.Varying[at]) }
			if g.Mask.Length < 0 && slices.ContainsFunc(g.Mask.Covers, covers) { // as long as they are
				empty = append(empty, g.Name)
			} else {
				lengths = append(lengths, g.Name)
			}
		case plan.KindSteps, plan.KindLengthBefore, plan.KindLengthAfter, plan.KindPositions:
			lengths = append(lengths, g.Name)
		}
	}
	return pl.sig.EmptyReaches(empty, lengths)
}
