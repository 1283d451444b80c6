package backend

import (
	"fmt"

	"tritonstateful/backend/config"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// stateWire joins the input and the output of a state.
type stateWire struct {
	stateSpec
	in, out int // positions in the signature
	axis    int // batch axis of both
	// dims are the model's; for a varying state some are dynamic.
	dims  tensor.Shape
	dtype tensor.DType
	how   string // how the axis was found
	// value and shape are the initial value of a lane; nil bytes mean zero.
	value []byte
	shape tensor.Shape
	begin string // the initial value in words
	// update is what becomes of the output of a varying state; appendAxis is that of
	// the model's tensors.
	update     statebuffer.Update
	appendAxis int
	// padded: sequences of unequal length along padAxis may share a run.
	padded  bool
	padAxis int
	statebuffer.Layout
}

// agrees tells whether an output that has the state can have what is fixed of it.
func (s *stateWire) agrees(p *port) bool {
	for i, d := range s.dims {
		if i != s.axis && i != p.axis && d >= 0 && p.dims[i] >= 0 && p.dims[i] != d {
			return false
		}
	}
	return true
}

// stateSpec describes a state before the model's tensors are looked at: the one
// form that every way of describing a state is brought to.
type stateSpec struct {
	input, output string
	source        string // where the description comes from, for reports and errors
	// dtype and dims are what the configuration says, Invalid and nil if it
	// says nothing. dims are without the batch axis.
	dtype tensor.DType
	dims  tensor.Shape
	// initial is how sequence_batching.state[].initial_state gives the initial value.
	initial *config.InitialState
	// implicit: sequence_batching.state alone names it, as for Triton's own states.
	implicit bool
}

func (s *stateSpec) String() string { return fmt.Sprintf("state <<<%s, %s>>>", s.input, s.output) }

// appends tells whether the model writes only what is new along an axis.
func (s *stateWire) appends(axis int) bool {
	return s.update == statebuffer.Append && axis == s.appendAxis
}

// varies tells whether sequences need memory of their own for the state. What is
// not simply replaced does, for the model decides what it writes.
func (s *stateWire) varies() bool {
	return s.update != statebuffer.Replace || !s.dims.Without(s.axis).Fixed()
}

// rule is the update as state_updates has it.
func (s *stateWire) rule() string {
	switch s.update {
	case statebuffer.Append:
		return fmt.Sprintf("append(%d)", s.appendAxis)
	case statebuffer.KeepIfEmpty:
		return "keep"
	default:
		return "replace"
	}
}

// told is the update in the load report, if there is anything to tell.
func (s *stateWire) told() string {
	if s.update == statebuffer.Replace {
		return ""
	}
	return ", " + s.rule() + " from state_updates"
}
