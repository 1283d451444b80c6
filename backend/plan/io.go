package plan

import (
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// IO is an input that requests bring or an output that answers carry: a tensor of the
// configuration together with the tensor of the model.
type IO struct {
	onnx.IOTensor     // as the server knows it
	Index         int // position in the signature
	// Axis is the batch axis of the model's tensor, or tensor.NoAxis; AxisFrom says in words
	// how it was found, for people.
	Axis     int
	AxisFrom string
	// LanesAxis is, of an output, the axis that must have one extent for each lane after
	// a run, or tensor.NoAxis where nothing can be checked.
	LanesAxis int
	// Dims are the extents of the model's tensor, fixed by the configuration where the
	// model leaves them open; some may be tensor.Dynamic. The one at Axis does not count.
	Dims tensor.Shape
	// Request and Answer are the shapes at the server, for one lane; some extents may be
	// tensor.Dynamic.
	Request, Answer tensor.Shape
	// BatchInFront: Request and Answer have the batch as their first axis, as Triton has
	// it, wherever the model has it.
	BatchInFront bool
	// Varies: an extent other than the batch's is known only at run time, or the elements
	// have no fixed size.
	Varies bool
	// IsState: the output is that of a state, which is Plan.StateAt(State).
	IsState bool
	State   int
	// EndsOnEmpty is an operator of the model that ends the process when it runs with an
	// extent of 0, or "".
	EndsOnEmpty string
	// Layout of a lane in the model's tensor; only where the tensor does not vary.
	statebuffer.Layout
}
