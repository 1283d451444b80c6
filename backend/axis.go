package backend

import (
	"fmt"
	"slices"
	"strconv"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// batchAxis is what is held of a tensor's batch axis.
type batchAxis struct {
	axis  int    // or tensor.NoAxis: the tensor has none
	known bool   // else axis is tensor.NoAxis, and the configuration's dims decide
	how   string // what tells so, for the load report
}

// hasNamedAxis reports whether the model names an axis of the tensor.
func hasNamedAxis(info *onnx.TensorInfo) bool {
	return slices.ContainsFunc(info.Symbols, func(s string) bool { return s != "" })
}

// onlyAxis is the dynamic axis that carries the name, or tensor.NoAxis where none or several do.
func onlyAxis(info *onnx.TensorInfo, symbol string) int {
	at := tensor.NoAxis
	for axis, s := range info.Symbols {
		switch {
		case s != symbol || info.Dims[axis] >= 0:
		case at != tensor.NoAxis:
			return tensor.NoAxis
		default:
			at = axis
		}
	}
	return at
}

func dynamicAxes(info *onnx.TensorInfo) (axes []int) {
	for axis, d := range info.Dims {
		if d < 0 {
			axes = append(axes, axis)
		}
	}
	return axes
}

// toldAxis is what the parameter batch_axes says of a tensor.
func toldAxis(params *config.Parameters, info *onnx.TensorInfo) (axis int, told bool, err error) {
	value, ok := config.Lookup(params.BatchAxes, info.Name)
	if !ok {
		return tensor.NoAxis, false, nil
	}
	if value == "none" {
		return tensor.NoAxis, true, nil
	}
	axis, err = strconv.Atoi(value)
	if err != nil || axis < 0 || axis >= len(info.Dims) {
		return tensor.NoAxis, true, fmt.Errorf("parameter batch_axes: %q has %q: want none or an axis of its shape %v, counted from 0", info.Name, value, info.Dims)
	}
	return axis, true, nil
}

// onlyDynamic is the dynamic axis, if there is one and no other.
func onlyDynamic(dims tensor.Shape) (at int) {
	at = tensor.NoAxis
	for axis, d := range dims {
		switch {
		case d >= 0:
		case at != tensor.NoAxis:
			return tensor.NoAxis
		default:
			at = axis
		}
	}
	return at
}
