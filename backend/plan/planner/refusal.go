package planner

import (
	"fmt"
	"slices"
	"strings"

	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/backend/plan/isolation"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// refusal is why a model is not served, with the line that decides. Pasted, no line leads to
// the same refusal again.
func (c *chooser) refusal(a *attempted) error {
	c.refused = true
	if s, along, why := c.excludes(a); s != nil && a.Verdict != isolation.NotIsolated {
		batch := "say so with batch_axes"
		if !a.candidate.HasLanes() && batchaxis.OnlyOpenAxis(a.planner.sig.Inputs[s.In].Dims) == along {
			batch = "set batch_axes, for example " + a.example() // other axes would be served unproved if they were pasted
		}
		return status.Errorf(status.InvalidArg, "the batch axis is unknown: %s: set the initial value of the state with initial_states, for example %s, or, if axis %d of %q is the batch, %s", why, a.planner.initialLine(c.stateExtent(a), []*plan.State{s}), along, s.Input, batch)
	}
	if a.Verdict == isolation.NotIsolated {
		return c.notIsolated(a)
	}
	switch {
	case a.candidate.HasLanes():
	case a.RanAlone && a.Verdict == isolation.Isolated:
		return status.Errorf(status.InvalidArg, "no input has a known batch axis, and the model runs without any: if it has none, write %s, else set batch_axes to where it is", a.planner.line())
	default:
		return status.Errorf(status.InvalidArg, "no input has a known batch axis: set the parameter batch_axes, for example %s", a.example())
	}
	return status.Errorf(status.InvalidArg, "the batch seems to be at %s, but it could not be verified that requests in a batch are independent: %s: if the batch is there, write %s", a.planner.plan.BatchAxes(), a.Why, a.planner.line())
}

// notIsolated is the refusal of axes that runs speak against. Axes with which not even the
// shapes are right are not offered.
func (c *chooser) notIsolated(a *attempted) error {
	why, remedy := a.Why, ""
	if operator := quantizer(a.planner.sig); operator != "" {
		why += ", because the model quantizes at run time (" + operator + ") with one scale for all of them"
	}
	switch line := a.planner.line(); {
	case a.Misshapen:
	case c.fills || a.planner.plan.MaxLanes > 1:
		remedy = "; if the batch is there nevertheless, write max_batch_size: 1 " + line + ", so that requests do not share runs, or the parameter alone if they may influence each other"
	default:
		remedy = "; if the batch is there nevertheless, write " + line
	}
	return status.Errorf(status.InvalidArg, "requests in a batch would not be independent: %s, with the batch at %s: set the parameter batch_axes (\"NAME = AXIS\" or \"NAME = none\" for each tensor)%s", why, a.planner.plan.BatchAxes(), remedy)
}

// example is a line that says where the batch is. Where no axis was taken for it, that is
// the only open one of each input.
func (a *attempted) example() string {
	if a.candidate.HasLanes() {
		return a.planner.line()
	}
	candidate, pl := *a.candidate, *a.planner
	candidate.In, candidate.Out, pl.candidate = slices.Clone(candidate.In), make([]batchaxis.Axis, len(candidate.Out)), &candidate
	for i := range candidate.In {
		if candidate.In[i].How != batchaxis.ByParameter {
			candidate.In[i].Index = batchaxis.OnlyOpenAxis(a.planner.sig.Inputs[i].Dims)
		}
	}
	return pl.line()
}

// line is the parameter batch_axes that says what the plan goes by, to be pasted. It names
// every tensor on which anything depends, so that with it nothing is inferred: what is not
// known of an output is guessed, and the line says so. Its quotes are those that the server's
// log does not escape.
func (pl *planner) line() string {
	value, guessed := pl.axesLine()
	text := parameterText("batch_axes", value)
	if len(guessed) > 0 {
		text += fmt.Sprintf(" (of %s the axis is a guess)", strings.Join(guessed, ", "))
	}
	return text
}

// axesLine is the value of that parameter, with the outputs whose axis is guessed.
func (pl *planner) axesLine() (value string, guessed []string) {
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
		info := &pl.sig.Outputs[i]
		if len(batchaxis.OpenAxes(info)) == 0 || !pl.config.CanRequest(info.Name) {
			continue
		}
		axis, sure := pl.outputAxis(i)
		if !sure {
			guessed = append(guessed, fmt.Sprintf("%q", info.Name))
		}
		entries = append(entries, entry{info.Name, axis})
	}
	text := func(axis int) string {
		if axis == tensor.NoAxis {
			return "none"
		}
		return fmt.Sprint(axis)
	}
	if len(entries) > 0 && !slices.ContainsFunc(entries, func(e entry) bool { return e.axis != entries[0].axis }) && !pl.fixesOne(entries[0].axis) {
		return "* = " + text(entries[0].axis), guessed
	}
	var parts []string
	for _, e := range entries {
		parts = append(parts, e.name+" = "+text(e.axis))
	}
	return strings.Join(parts, "; "), guessed
}

// outputAxis is the batch axis of an output as far as it is known. If it is not, that is the
// axis by which dims fit, or the first open one.
func (pl *planner) outputAxis(at int) (axis int, sure bool) {
	info := &pl.sig.Outputs[at]
	for _, states := range [][]plan.State{pl.plan.States, pl.plan.Varying} {
		for i := range states {
			if states[i].Out == at {
				return pl.candidate.In[states[i].In].Index, true
			}
		}
	}
	planned := slices.IndexFunc(pl.plan.Outputs, func(p plan.IO) bool { return p.Index == at })
	switch open := batchaxis.OpenAxes(info); {
	case pl.candidate.Out[at].Known:
		return pl.candidate.Out[at].Index, true
	case !pl.candidate.HasLanes():
		return tensor.NoAxis, true
	case len(open) == 1:
		return open[0], true
	case planned >= 0 && pl.plan.Outputs[planned].Axis != tensor.NoAxis:
		return pl.plan.Outputs[planned].Axis, false
	default:
		return open[0], false
	}
}

// fixesOne reports whether a tensor of fixed shape has an extent of 1 at an axis, so that
// "* = AXIS" would make a batch of it.
func (pl *planner) fixesOne(axis int) bool {
	fixed := func(info onnx.TensorInfo) bool {
		return axis >= 0 && axis < len(info.Dims) && info.Dims.Fixed() && info.Dims[axis] == 1
	}
	return slices.ContainsFunc(pl.sig.Inputs, fixed) || slices.ContainsFunc(pl.sig.Outputs, fixed)
}
