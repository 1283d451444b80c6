package backend

import (
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// port joins a tensor of the configuration and the model's tensor behind it.
type port struct {
	onnx.IOTensor
	at   int // position in the signature
	axis int // batch axis of the model's tensor, or tensor.NoAxis
	// lanesAt is the axis of an output that is checked after each run, see lanesAxis.
	lanesAt int
	// dims are the model's, fixed by the configuration where it does; the extent
	// at axis does not count.
	dims tensor.Shape
	// request and answer are the shapes at the server, for one lane; an extent
	// may be dynamic.
	request, answer tensor.Shape
	// leading: request and answer have the batch in front, as Triton has it.
	leading bool
	// varies: an extent other than the batch's is known only at run time, or
	// the elements have no fixed size.
	varies bool
	// state is, for an output that is also a state's, the position of that state.
	state    int
	stateOut bool
	// recurrent: the model has layers that take no extent of 0.
	recurrent bool
	// Layout of a lane, if the port does not vary.
	statebuffer.Layout
}
