package offline

import (
	"fmt"
	"strings"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// The roles of a tensor.
const (
	RoleInput     = "input"     // requests bring it
	RoleOutput    = "output"    // answers carry it
	RoleState     = "state"     // kept between the requests of a sequence
	RoleGenerated = "generated" // the backend writes it
	RoleUnused    = "unused"    // no one reads or writes it
	RoleOpen      = "open"      // a question is open
)

// A Tensor is a tensor of the model and what it is for. A state is one Tensor, for its input and its output. The names of
// the fields in JSON are an interface: docs/command-inspect.md.
type Tensor struct {
	Name   string `json:"name"`
	Output string `json:"output,omitempty"` // of a state: the name of its output
	// OfModel is whether the name is that of an input or an output of the model.
	OfModel string       `json:"of_model"`
	Role    string       `json:"role"`
	Type    string       `json:"type"`
	Shape   tensor.Shape `json:"shape"`
	// AxisNames has the model's name of each axis, "" where it has none.
	AxisNames []string `json:"axis_names"`
	// BatchAxis is nil where there is none.
	BatchAxis *int   `json:"batch_axis"`
	AxisFrom  string `json:"batch_axis_from,omitempty"`
	// Source says where the role is from, and what a generated input has.
	Source string `json:"source"`
	// Begins is the initial value of a state, and Update what becomes of its output.
	Begins string `json:"begins,omitempty"`
	Update string `json:"update,omitempty"`
	// Varies: the shape for one sequence changes; else Bytes are those of one lane.
	Varies bool  `json:"varies"`
	Bytes  int64 `json:"bytes"`
}

// Tensors lists the tensors of the model: inputs for requests, generated inputs, states, outputs, and the rest.
func (m *Model) Tensors() []Tensor {
	sig, pl, all := m.Signature, m.Plan, []Tensor{}
	if pl == nil {
		for i := range sig.Inputs {
			all = append(all, describe(&sig.Inputs[i], "input", RoleOpen))
		}
		for i := range sig.Outputs {
			all = append(all, describe(&sig.Outputs[i], "output", RoleOpen))
		}
		return all
	}
	fed := make([]bool, len(sig.Inputs))
	for i := range pl.Inputs {
		fed[pl.Inputs[i].Index] = true
		all = append(all, m.io(&pl.Inputs[i], &sig.Inputs[pl.Inputs[i].Index], "input", RoleInput))
	}
	for i := range pl.Generated {
		fed[pl.Generated[i].Index] = true
		all = append(all, m.generated(&pl.Generated[i]))
	}
	for _, states := range [][]plan.State{pl.States, pl.Varying} {
		for i := range states {
			fed[states[i].In] = true
			all = append(all, m.state(&states[i]))
		}
	}
	for i := range pl.Outputs {
		all = append(all, m.io(&pl.Outputs[i], &sig.Outputs[pl.Outputs[i].Index], "output", RoleOutput))
	}
	for i := range fed {
		if !fed[i] {
			t := describe(&sig.Inputs[i], "input", RoleUnused)
			t.Source = "the model has a default for it"
			all = append(all, t)
		}
	}
	for _, i := range pl.Unused {
		t := describe(&sig.Outputs[i], "output", RoleUnused)
		t.Source = "not listed in output"
		all = append(all, t)
	}
	return all
}

func describe(info *onnx.TensorInfo, of, role string) Tensor {
	t := Tensor{Name: info.Name, OfModel: of, Role: role, Type: info.DType.String(), Shape: info.Dims, AxisNames: info.Symbols}
	if t.Shape == nil { // JSON has null only where a value is missing
		t.Shape, t.AxisNames, t.Varies = tensor.Shape{}, []string{}, true
	}
	if t.AxisNames == nil {
		t.AxisNames = []string{}
	}
	return t
}

func (t *Tensor) at(axis int, from string) {
	t.AxisFrom = from
	if axis != tensor.NoAxis {
		t.BatchAxis = &axis
	}
}

// io is a tensor of requests or answers.
func (m *Model) io(p *plan.IO, info *onnx.TensorInfo, of, role string) Tensor {
	t := describe(info, of, role)
	t.at(p.Axis, p.AxisFrom)
	t.Source = of + " of the configuration"
	for _, line := range m.Filled {
		if strings.HasPrefix(line, fmt.Sprintf("filled in %s %q ", of, p.Name)) {
			t.Source = "filled in from the model"
		}
	}
	if t.Varies = p.Varies; !p.Varies {
		t.Bytes = p.LaneBytes()
	}
	return t
}

// generated is an input that the backend writes.
func (m *Model) generated(g *plan.Generated) Tensor {
	t := describe(&m.Signature.Inputs[g.Index], "input", RoleGenerated)
	t.at(g.Axis, g.AxisFrom)
	t.Source = g.Kind.String()
	switch {
	case g.Mask != nil:
		t.Source = "mask of " + g.Mask.States
	case g.Kind == plan.KindLengthBefore || g.Kind == plan.KindLengthAfter || g.Kind == plan.KindPositions:
		t.Source += " of " + m.Plan.Lengths[g.Length].Name
	}
	if g.Plus != 0 {
		t.Source += fmt.Sprintf(" %+d", g.Plus)
	}
	if t.Varies = g.Kind == plan.KindMask || g.Kind == plan.KindPositions; !t.Varies {
		t.Bytes = g.LaneBytes()
	}
	return t
}

func (m *Model) state(s *plan.State) Tensor {
	t := describe(&m.Signature.Inputs[s.In], "input", RoleState)
	t.Output = s.Output
	t.at(s.Axis, s.AxisFrom)
	t.Source = "paired by " + m.pairedBy(s)
	if s.Pattern != "" {
		t.Source += ", pattern " + s.Pattern
	}
	t.Begins, t.Update = s.Begins, s.UpdateRule()
	if t.Varies = s.Varies(); !t.Varies {
		t.Bytes = s.LaneBytes()
	} else if s.Begins != "empty" {
		t.Begins += " " + s.Shape.String()
	}
	return t
}

// pairedBy is what pairs a state. Where the configuration lists it only because it was filled in, that is what it was filled
// in by.
func (m *Model) pairedBy(s *plan.State) string {
	for _, line := range m.Filled {
		if by, ok := strings.CutPrefix(line, fmt.Sprintf("filled in state %q -> %q from the model, paired by ", s.Input, s.Output)); ok {
			return by
		}
	}
	return s.Source
}

// Why is Source, Begins and AxisFrom in one line.
func (t *Tensor) Why() string {
	parts := []string{t.Source}
	if t.AxisFrom != "" {
		parts = append(parts, "batch: "+t.AxisFrom)
	}
	if t.Begins != "" {
		parts = append(parts, "begins "+begins(t.Begins))
	}
	if t.Update != "" && t.Update != "replace" {
		parts = append(parts, t.Update)
	}
	return strings.Join(parts, "; ")
}

func begins(with string) string {
	if with == "empty" {
		return with
	}
	return "with " + with
}

// NamedShape is the shape with the names of the axes that the model leaves open: [batch,80].
func (t *Tensor) NamedShape() string {
	extents := make([]string, len(t.Shape))
	for i, extent := range t.Shape {
		switch {
		case extent >= 0:
			extents[i] = fmt.Sprint(extent)
		case t.AxisNames[i] != "":
			extents[i] = t.AxisNames[i]
		default:
			extents[i] = "?"
		}
	}
	return "[" + strings.Join(extents, ",") + "]"
}

// Sourced reports whether the states are declared, by the configuration or the model, and not guessed from names.
func (m *Model) Sourced() bool {
	for _, states := range [][]plan.State{m.Plan.States, m.Plan.Varying} {
		for i := range states {
			if m.pairedBy(&states[i]) == "the names in the model" {
				return false
			}
		}
	}
	return true
}
