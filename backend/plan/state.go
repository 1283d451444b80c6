package plan

import (
	"fmt"

	"tritonstateful/backend/config"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// State joins the input and the output of a state.
type State struct {
	StateSpec
	In, Out int // positions in the signature
	Axis    int // batch axis of both
	// Dims are the model's; for a varying state some are dynamic.
	Dims     tensor.Shape
	DType    tensor.DType
	AxisFrom string // how the axis was found
	// Value and shape are the initial value of a lane; nil bytes mean zero.
	Value  []byte
	Shape  tensor.Shape
	Begins string // the initial value in words
	// Update is what becomes of the output of a varying state; appendAxis is that of
	// the model's tensors.
	Update     statebuffer.Update
	AppendAxis int
	// TimePadded: sequences of unequal length along padAxis may share a run.
	TimePadded bool
	TimeAxis   int
	statebuffer.Layout
}

// Agrees tells whether an output that has the state can have what is fixed of it.
func (s *State) Agrees(p *IO) bool {
	for i, d := range s.Dims {
		if i != s.Axis && i != p.Axis && d >= 0 && p.Dims[i] >= 0 && p.Dims[i] != d {
			return false
		}
	}
	return true
}

// ExampleValue is a value for initial_states that gives the state a beginning which is not
// empty: zeros, with an extent of 1 where the model leaves it open and where the batch is.
func (s *State) ExampleValue() string {
	shape := s.Dims.With(s.Axis, 1)
	for axis, extent := range shape {
		if extent < 0 {
			shape[axis] = 1
		}
	}
	return "0" + shape.String()
}

// StateSpec describes a state before the model's tensors are looked at: the one
// form that every way of describing a state is brought to.
type StateSpec struct {
	Input, Output string
	Source        string // where the description comes from, for reports and errors
	// GivenDType and dims are what the configuration says, Invalid and nil if it
	// says nothing. dims are without the batch axis.
	GivenDType tensor.DType
	GivenDims  tensor.Shape
	// Initial is how sequence_batching.state[].initial_state gives the initial value.
	Initial *config.InitialState
	// Implicit: sequence_batching.state alone names it, as for Triton's own states.
	Implicit bool
}

func (s *StateSpec) String() string { return fmt.Sprintf("state <<<%s, %s>>>", s.Input, s.Output) }

// Appends tells whether the model writes only what is new along an axis.
func (s *State) Appends(axis int) bool {
	return s.Update == statebuffer.Append && axis == s.AppendAxis
}

// Varies tells whether sequences need memory of their own for the state. What is
// not simply replaced does, for the model decides what it writes.
func (s *State) Varies() bool {
	return s.Update != statebuffer.Replace || !s.Dims.Without(s.Axis).Fixed()
}

// UpdateRule is the update as state_updates has it.
func (s *State) UpdateRule() string {
	switch s.Update {
	case statebuffer.Append:
		return fmt.Sprintf("append(%d)", s.AppendAxis)
	case statebuffer.KeepIfEmpty:
		return "keep"
	default:
		return "replace"
	}
}

// UpdateRemark is the update in the load report, if there is anything to tell.
func (s *State) UpdateRemark() string {
	if s.Update == statebuffer.Replace {
		return ""
	}
	return ", " + s.UpdateRule() + " from state_updates"
}
