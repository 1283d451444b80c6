package planner

import (
	"fmt"
	"strings"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// positions is positions(INPUT): where in its sequence each element of a step's part of
// an input stands. It has as many numbers as the input is long, which go on where those
// of the step before have ended.
func (pl *planner) positions(f *plan.Generated, info *onnx.TensorInfo, argument string) (err error) {
	f.Kind = plan.KindPositions
	if f.DType != tensor.Int64 && f.DType != tensor.Int32 {
		return fmt.Errorf("it is of type %v: want INT64 or INT32 for positions", f.DType)
	}
	if err := pl.generatedAxis(f, info); err != nil {
		return err
	}
	if f.LengthAxis, err = lengthAxis(f, info); err != nil {
		return err
	}
	argument, ok := strings.CutSuffix(strings.TrimSpace(argument), ")")
	if !ok {
		return fmt.Errorf("positions(%s has no closing parenthesis", argument)
	}
	f.Length, err = pl.lengthOf(argument)
	pl.plan.Varies = true
	return err
}

// lengthAxis is the one open axis of an input that the backend fills, after its batch if it
// has one; all others have the extent 1.
func lengthAxis(f *plan.Generated, info *onnx.TensorInfo) (axis int, err error) {
	axis, f.Dims = tensor.NoAxis, info.Dims.Clone()
	for i, d := range f.Dims {
		switch {
		case i == f.Axis:
		case d < 0 && axis == tensor.NoAxis:
			axis = i
		case d != 1:
			return tensor.NoAxis, errLengthAxis(info)
		}
	}
	if axis == tensor.NoAxis || axis < f.Axis {
		return tensor.NoAxis, errLengthAxis(info)
	}
	return axis, nil
}

func errLengthAxis(info *onnx.TensorInfo) error {
	return fmt.Errorf("its shape in the model is %v: want a batch axis and after it one dynamic axis, such as [-1,-1]", info.Dims)
}
