package backend

import (
	"fmt"
	"strings"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// positions is positions(INPUT): where in its sequence each element of a step's part of
// an input stands. It has as many numbers as the input is long, which go on where those
// of the step before have ended.
func (w *wirer) positions(f *fillWire, info *onnx.TensorInfo, argument string) (err error) {
	f.kind = fillPositions
	if f.dtype != tensor.Int64 && f.dtype != tensor.Int32 {
		return fmt.Errorf("it is of type %v: want INT64 or INT32 for positions", f.dtype)
	}
	if err := w.fillAxis(f, info); err != nil {
		return err
	}
	if f.along, err = lengthAxis(f, info); err != nil {
		return err
	}
	argument, ok := strings.CutSuffix(strings.TrimSpace(argument), ")")
	if !ok {
		return fmt.Errorf("positions(%s has no closing parenthesis", argument)
	}
	f.source, err = w.lengthOf(argument)
	w.wiring.varies = true
	return err
}

// lengthAxis is the one open axis of an input that the backend fills, after its batch if it
// has one; all others have the extent 1.
func lengthAxis(f *fillWire, info *onnx.TensorInfo) (axis int, err error) {
	axis, f.dims = tensor.NoAxis, info.Dims.Clone()
	for i, d := range f.dims {
		switch {
		case i == f.axis:
		case d < 0 && axis == tensor.NoAxis:
			axis = i
		case d != 1:
			return tensor.NoAxis, errLengthAxis(info)
		}
	}
	if axis == tensor.NoAxis || axis < f.axis {
		return tensor.NoAxis, errLengthAxis(info)
	}
	return axis, nil
}

func errLengthAxis(info *onnx.TensorInfo) error {
	return fmt.Errorf("its shape in the model is %v: want a batch axis and after it one dynamic axis, such as [-1,-1]", info.Dims)
}
