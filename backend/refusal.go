package backend

import (
	"fmt"
	"slices"
	"strings"

	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// refusal is why a model is not served, with the line that decides.
func (c *chooser) refusal(a *attempted) error {
	c.refused = true
	if why := c.excludes(a); why != "" && a.verdict != notApart {
		return status.Errorf(status.InvalidArg, "which axis is the batch is not known: %s: say how the state begins by initial_states, for example 'NAME = 0[3]', or if that axis is the batch, say so by batch_axes, for example %s", why, a.example())
	}
	if a.verdict == notApart {
		why := a.why
		if operator := quantizer(a.w.sig); operator != "" {
			why += ", as the model quantizes while it runs (" + operator + "), with one scale for all of them"
		}
		return status.Errorf(status.InvalidArg, "requests of one batch would not be apart: %s, with the batch at %s: say where it is by the parameter batch_axes (\"NAME = AXIS\" or \"NAME = none\" for each tensor); if it is there all the same, write %s, and max_batch_size: 1 so that requests do not share runs",
			why, a.w.wiring.BatchAxes(), a.w.line())
	}
	if !a.c.HasLanes() {
		return status.Errorf(status.InvalidArg, "no axis of an input is known to be the batch: say where it is by the parameter batch_axes, for example %s", a.example())
	}
	return status.Errorf(status.InvalidArg, "the batch seems to be at %s, and nothing shows that requests of one batch would be apart: %s: if it is there, write %s", a.w.wiring.BatchAxes(), a.why, a.w.line())
}

// example is a line that says where the batch is. Where no axis was taken for it, that is
// the only open one of each input.
func (a *attempted) example() string {
	if a.c.HasLanes() {
		return a.w.line()
	}
	c, w := *a.c, *a.w
	c.In, c.Out, w.axes = slices.Clone(c.In), make([]batchaxis.Axis, len(c.Out)), &c
	for i := range c.In {
		if c.In[i].How != "batch_axes" {
			c.In[i].Index = batchaxis.OnlyOpenAxis(a.w.sig.Inputs[i].Dims)
		}
	}
	return w.line()
}

// quantizer is an operator of the model that scales all lanes alike; empty if it has none.
func quantizer(sig *onnx.Signature) string {
	at := slices.IndexFunc(quantizers, func(name string) bool { return sig.Operators[name] > 0 })
	if at < 0 {
		return ""
	}
	return quantizers[at]
}

// line is the parameter batch_axes that says what the wirer goes by, to be pasted. Its
// quotes are those that the server's log does not escape.
func (w *wirer) line() string {
	return fmt.Sprintf("parameters { key: 'batch_axes' value { string_value: '%s' } }", w.axesLine())
}

// axesLine is the value of that parameter.
func (w *wirer) axesLine() string {
	type entry struct {
		name string
		axis int
	}
	var entries []entry
	for i := range w.sig.Inputs {
		if len(batchaxis.OpenAxes(&w.sig.Inputs[i])) > 0 {
			entries = append(entries, entry{w.sig.Inputs[i].Name, w.axes.In[i].Index})
		}
	}
	for i := range w.sig.Outputs {
		if len(batchaxis.OpenAxes(&w.sig.Outputs[i])) > 0 && w.axes.Out[i].Known {
			entries = append(entries, entry{w.sig.Outputs[i].Name, w.axes.Out[i].Index})
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
