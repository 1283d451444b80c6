package plan

import (
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// IO joins a tensor of the configuration and the model's tensor behind it.
type IO struct {
	onnx.IOTensor
	Index int // position in the signature
	Axis  int // batch axis of the model's tensor, or tensor.NoAxis
	// LanesAxis is the axis of an output that is checked after each run, see lanesAxis.
	LanesAxis int
	// Dims are the model's, fixed by the configuration where it does; the extent
	// at axis does not count.
	Dims tensor.Shape
	// Request and answer are the shapes at the server, for one lane; an extent
	// may be dynamic.
	Request, Answer tensor.Shape
	// BatchInFront: request and answer have the batch in front, as Triton has it.
	BatchInFront bool
	// Varies: an extent other than the batch's is known only at run time, or
	// the elements have no fixed size.
	Varies bool
	// State is, for an output that is also a state's, the position of that state.
	State   int
	IsState bool
	// EndsOnEmpty is an operator of the model that ends the process when it runs with an
	// extent of 0, or "".
	EndsOnEmpty string
	// Layout of a lane, if the port does not vary.
	statebuffer.Layout
}
