package batchaxis

import (
	"fmt"
	"slices"
	"strconv"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// Axis is what is held of the batch axis of a tensor.
type Axis struct {
	Index int    // or tensor.NoAxis: the tensor has none
	Known bool   // else Index is tensor.NoAxis, and the dims of the configuration decide
	How   string // what says so, for the load report
}

// ByParameter is the Axis.How of what the parameter batch_axes says.
const ByParameter = "batch_axes"

// hasNamedAxis reports whether the model names an axis of the tensor.
func hasNamedAxis(info *onnx.TensorInfo) bool {
	return slices.ContainsFunc(info.Symbols, func(s string) bool { return s != "" })
}

// AxisNamed returns the open axis that carries the name, or tensor.NoAxis where none or
// several do.
func AxisNamed(info *onnx.TensorInfo, symbol string) int {
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

// OpenAxes returns the dynamic axes of a tensor, outermost first.
func OpenAxes(info *onnx.TensorInfo) (axes []int) {
	for axis, d := range info.Dims {
		if d < 0 {
			axes = append(axes, axis)
		}
	}
	return axes
}

// Given returns what the parameter batch_axes says of a tensor: an axis or tensor.NoAxis, and
// whether it says anything. A pattern says nothing of a tensor of fixed shape that has no such
// axis, or has it with an extent other than 1: it is meant for others. An axis that the tensor does not have is an error.
func Given(params *config.Parameters, info *onnx.TensorInfo) (axis int, given bool, err error) {
	said, ok := config.Find(params.BatchAxes, info.Name)
	if !ok {
		return tensor.NoAxis, false, nil
	}
	axis, err = strconv.Atoi(said.Value)
	if err == nil && config.IsPattern(said.Name) && info.Dims.Fixed() && (axis >= len(info.Dims) || axis >= 0 && info.Dims[axis] != 1) {
		return tensor.NoAxis, false, nil
	}
	value := said.Use()
	if value == "none" {
		return tensor.NoAxis, true, nil
	}
	if err != nil || axis < 0 || axis >= len(info.Dims) {
		return tensor.NoAxis, true, fmt.Errorf("parameter batch_axes: %q has %q: want none or an axis of its shape %v, counted from 0", info.Name, value, info.Dims)
	}
	return axis, true, nil
}

// OnlyOpenAxis returns the dynamic axis of a shape, or tensor.NoAxis unless there is just one.
func OnlyOpenAxis(dims tensor.Shape) (at int) {
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

// Text says in words which axis of a tensor is the batch.
func Text(name string, axis int) string {
	if axis == tensor.NoAxis {
		return fmt.Sprintf("no axis of %q", name)
	}
	return fmt.Sprintf("axis %d of %q", axis, name)
}
