package plan

import (
	"fmt"

	"tritonstateful/backend/config"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// State is an input and an output of the model that are one state.
type State struct {
	StateSpec
	In, Out int // positions in the signature
	// Axis is the batch axis of both tensors, or tensor.NoAxis; AxisFrom says in words
	// how it was found.
	Axis     int
	AxisFrom string
	// Dims are the extents of both tensors, 1 at Axis; for a state that varies some are
	// tensor.Dynamic.
	Dims  tensor.Shape
	DType tensor.DType
	// Value and Shape are what a lane has when a sequence starts; a nil Value is zeros.
	// Begins says it in words.
	Value  []byte
	Shape  tensor.Shape
	Begins string
	// Update is what becomes of the output of a state that varies; AppendAxis is the axis
	// along which it is appended, if it is.
	Update     statebuffer.Update
	AppendAxis int
	// TimePadded: sequences of unequal length along TimeAxis may share a run, with padding
	// that a mask hides.
	TimePadded bool
	TimeAxis   int
	// Layout of a lane; only of a state of fixed shape.
	statebuffer.Layout
}

// Agrees reports whether an output that carries the state can have the extents that are
// fixed of it.
func (s *State) Agrees(out *IO) bool {
	for i, d := range s.Dims {
		if i != s.Axis && i != out.Axis && d >= 0 && out.Dims[i] >= 0 && out.Dims[i] != d {
			return false
		}
	}
	return true
}

// ExampleValue returns a value for initial_states with which the state does not begin
// empty: zeros in a shape of the state's rank, with the given extent where the model leaves it
// open, and 1 where the batch is.
func (s *State) ExampleValue(open int64) string {
	shape := s.Dims.With(s.Axis, 1)
	for axis, extent := range shape {
		if extent < 0 {
			shape[axis] = open
		}
	}
	return "0" + shape.String()
}

// Appends reports whether the model writes only what is new along an axis.
func (s *State) Appends(axis int) bool {
	return s.Update == statebuffer.Append && axis == s.AppendAxis
}

// Varies reports whether sequences need memory of their own for the state. A state that is
// not simply replaced does, because the model decides how much it writes.
func (s *State) Varies() bool {
	return s.Update != statebuffer.Replace || !s.Dims.Without(s.Axis).Fixed()
}

// UpdateRule is the update as the parameter state_updates has it.
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

// UpdateRemark is the update for the load report: empty for one that is simply replaced.
func (s *State) UpdateRemark() string {
	if s.Update == statebuffer.Replace {
		return ""
	}
	return ", " + s.UpdateRule() + " from state_updates"
}

// StateSpec describes a state before the tensors of the model are looked at: the one form
// that every way of describing a state is brought to.
type StateSpec struct {
	Input, Output string // names of the model's tensors
	Source        string // where the description comes from, for reports and errors
	Pattern       string // the pair with wildcards that matched, or ""
	// GivenDType and GivenDims are what the configuration says, tensor.Invalid and nil if
	// it says nothing. GivenDims leave out the batch axis.
	GivenDType tensor.DType
	GivenDims  tensor.Shape
	// Initial is sequence_batching.state[].initial_state, or nil.
	Initial *config.InitialState
	// Implicit: sequence_batching.state alone names it, as for Triton's own states.
	Implicit bool
}

// String is the pair of names as errors have it.
func (s *StateSpec) String() string { return fmt.Sprintf("state <<<%s, %s>>>", s.Input, s.Output) }
