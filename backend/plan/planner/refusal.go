package planner

import (
	"fmt"
	"slices"
	"strings"

	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/backend/plan/isolation"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// refusal is why a model is not served, with the line that decides.
func (c *chooser) refusal(a *attempted) error {
	c.refused = true
	if why := c.excludes(a); why != "" && a.Verdict != isolation.NotIsolated {
		return status.Errorf(status.InvalidArg, "the batch axis is unknown: %s: set the initial value of the state with initial_states, for example 'NAME = 0[3]', or, if that axis is the batch, set batch_axes, for example %s", why, a.example())
	}
	if a.Verdict == isolation.NotIsolated {
		why := a.Why
		if operator := quantizer(a.planner.sig); operator != "" {
			why += ", because the model quantizes at run time (" + operator + ") with one scale for all of them"
		}
		return status.Errorf(status.InvalidArg, "requests in a batch would not be independent: %s, with the batch at %s: set the parameter batch_axes (\"NAME = AXIS\" or \"NAME = none\" for each tensor); if the batch is there nevertheless, write %s, and max_batch_size: 1 so that requests do not share runs",
			why, a.planner.plan.BatchAxes(), a.planner.line())
	}
	if !a.candidate.HasLanes() {
		return status.Errorf(status.InvalidArg, "no input has a known batch axis: set the parameter batch_axes, for example %s", a.example())
	}
	return status.Errorf(status.InvalidArg, "the batch seems to be at %s, but it could not be verified that requests in a batch are independent: %s: if the batch is there, write %s", a.planner.plan.BatchAxes(), a.Why, a.planner.line())
}

// example is a line that says where the batch is. Where no axis was taken for it, that is
// the only open one of each input.
func (a *attempted) example() string {
	if a.candidate.HasLanes() {
		return a.planner.line()
	}
	c, pl := *a.candidate, *a.planner
	c.In, c.Out, pl.candidate = slices.Clone(c.In), make([]batchaxis.Axis, len(c.Out)), &c
	for i := range c.In {
		if c.In[i].How != "batch_axes" {
			c.In[i].Index = batchaxis.OnlyOpenAxis(a.planner.sig.Inputs[i].Dims)
		}
	}
	return pl.line()
}

// line is the parameter batch_axes that says what the plan goes by, to be pasted. Its
// quotes are those that the server's log does not escape.
func (pl *planner) line() string {
	return fmt.Sprintf("parameters { key: 'batch_axes' value { string_value: '%s' } }", pl.axesLine())
}

// axesLine is the value of that parameter.
func (pl *planner) axesLine() string {
	type entry struct {
		name string
		axis int
	}
	var entries []entry
	for i := range pl.sig.Inputs {
		if len(batchaxis.OpenAxes(&pl.sig.Inputs[i])) > 0 {
			entries = append(entries, entry{pl.sig.Inputs[i].Name, pl.candidate.In[i].Index})
		}
	}
	for i := range pl.sig.Outputs {
		if len(batchaxis.OpenAxes(&pl.sig.Outputs[i])) > 0 && pl.candidate.Out[i].Known {
			entries = append(entries, entry{pl.sig.Outputs[i].Name, pl.candidate.Out[i].Index})
		}
	}
	text := func(axis int) string {
		if axis == tensor.NoAxis {
			return "none"
		}
		return fmt.Sprint(axis)
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e entry) bool { return e.axis != entries[0].axis }) {
		return "* = " + text(entries[0].axis)
	}
	var parts []string
	for _, e := range entries {
		parts = append(parts, e.name+" = "+text(e.axis))
	}
	return strings.Join(parts, "; ")
}
