package planner

import (
	"slices"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// mask is mask(STATES) or mask(STATES, INPUT), where INPUT may be followed by a colon
// and an axis. Naming one is what allows sequences
// of unequal length to share a run.
func (pl *planner) mask(f *plan.Generated, info *onnx.TensorInfo, argument string) (err error) {
	f.Kind = plan.KindMask
	if err = pl.generatedAxis(f, info); err != nil {
		return err
	}
	m := &plan.Mask{Length: -1}
	if m.Axis, err = lengthAxis(f, info); err != nil {
		return err
	}
	if f.Axis == tensor.NoAxis {
		return errLengthAxis(info)
	}
	states, input, _ := strings.Cut(argument, ",")
	m.States = strings.TrimSpace(states)
	for i, word := range []string{"0", "1"} {
		if f.Value[i], err = tensor.ParseElement(word, f.DType); err != nil {
			return err
		}
	}
	if strings.TrimSpace(input) != "" {
		if m.Length, err = pl.lengthOf(input); err != nil {
			return err
		}
	}
	f.Mask = m
	pl.plan.Varies = true
	return nil
}

// resolveMasks finds the states of masks, once all are planned, and makes them
// padded.
func (pl *planner) resolveMasks() {
	for i := range pl.plan.Generated {
		m := pl.plan.Generated[i].Mask
		if m == nil {
			continue
		}
		for j := range pl.plan.Varying {
			s := &pl.plan.Varying[j]
			if _, ok := config.MatchPattern(m.States, s.Input); !ok {
				continue
			}
			m.Covers = append(m.Covers, j)
			pl.pad(s, j)
		}
		pl.plan.Masks = append(pl.plan.Masks, i)
		if len(m.Covers) == 0 {
			pl.coversNothing(&pl.plan.Generated[i])
		}
	}
}

// coversNothing is the fault of a mask that names no state that grows, unless it names one
// that has a fault itself.
func (pl *planner) coversNothing(g *plan.Generated) {
	for name := range pl.faulty {
		if _, ok := config.MatchPattern(g.Mask.States, name); ok {
			return
		}
	}
	argument := g.Mask.States
	if g.Mask.Length >= 0 {
		argument += ", " + pl.plan.Lengths[g.Mask.Length].Name
	}
	grow := "no state of the model grows"
	if len(pl.plan.Varying) > 0 {
		grow = "the states that grow are " + strings.Join(pl.varyingNames(), ", ")
	}
	pl.fault("parameter derived_inputs: input %q: mask(%s) names no state that grows: %s", g.Name, argument, grow)
}

// pad marks a state as one whose sequences may share a run at unequal length.
func (pl *planner) pad(s *plan.State, at int) {
	s.TimeAxis = tensor.NoAxis
	for axis, d := range s.Dims {
		if d < 0 && axis != s.Axis && s.TimeAxis != tensor.NoAxis {
			pl.fault("state %q: its shape %v has several dynamic axes: a mask needs one, its length", s.Input, s.Dims)
			return
		}
		if d < 0 && axis != s.Axis {
			s.TimeAxis = axis
		}
	}
	s.TimePadded = true
	if slices.ContainsFunc(pl.plan.Lengths, func(l plan.Length) bool { return l.IsOutput && l.Index == s.Out }) {
		pl.fault("parameter derived_inputs: output %q belongs to a state that is padded for a mask, so its length includes padding: use the length of an input", s.Output)
	}
	if s.Update != statebuffer.Replace {
		pl.fault("state %q: a mask pads it, but state_updates says %s: a mask needs a model that writes the whole state; remove one of them", s.Input, s.UpdateRule())
	}
	if slices.ContainsFunc(pl.plan.Outputs, func(p plan.IO) bool { return p.IsState && p.State == len(pl.plan.States)+at }) {
		pl.fault("state %q is listed in output and also padded for a mask: responses would contain padding; remove one of them", s.Input)
	}
}
