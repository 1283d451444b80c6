package backend

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
)

// noAxis is the batch axis of a tensor that has none.
const noAxis = -1

// batchAxis is what is held of a tensor's batch axis.
type batchAxis struct {
	axis  int    // or noAxis: the tensor has none
	known bool   // else axis is noAxis, and the configuration's dims decide
	how   string // what tells so, for the load report
}

// isBatchName reports whether an axis of this name is the batch by all that
// exporters write: batch, batch_size, x_batch, BatchSize, B, N, bs and the like. A
// name that is computed from others, such as "batch*heads", is none.
func isBatchName(symbol string) bool {
	name := strings.ToLower(symbol)
	switch name {
	case "b", "n", "bs", "bsz", "nb", "bsize", "nbatch":
		return true
	}
	if !strings.Contains(name, "batch") || isAutoName(name) {
		return false
	}
	plain := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-. ", r) }
	if strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) || strings.Contains(name, " ") && !strings.HasPrefix(name, "batch ") {
		return false
	}
	return strings.HasSuffix(name, "batch") || strings.HasSuffix(name, "batch_size") || !isLengthName(name)
}

// isAutoName reports whether torch has made the name of an axis from that of its tensor.
func isAutoName(symbol string) bool {
	return strings.Contains(symbol, "_dynamic_axes_") || strings.Contains(symbol, "_dim_")
}

// isLengthName reports whether an axis of this name is a length by all that exporters
// write. Where a model does not mix anything along it, runs cannot tell it from a batch.
func isLengthName(symbol string) bool {
	name := strings.ToLower(symbol)
	switch {
	case name == "t" || name == "l":
		return true
	case isAutoName(name):
		return false
	}
	return slices.ContainsFunc([]string{"len", "time", "seq", "frame", "step", "token", "sample", "past", "total", "chunk", "width", "height"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

// hasNamedAxis reports whether the model names an axis of the tensor.
func hasNamedAxis(info *onnx.TensorInfo) bool {
	return slices.ContainsFunc(info.Symbols, func(s string) bool { return s != "" })
}

// onlyAxis is the dynamic axis that carries the name, or noAxis where none or several do.
func onlyAxis(info *onnx.TensorInfo, symbol string) int {
	at := noAxis
	for axis, s := range info.Symbols {
		switch {
		case s != symbol || info.Dims[axis] >= 0:
		case at != noAxis:
			return noAxis
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
		return noAxis, false, nil
	}
	if value == "none" {
		return noAxis, true, nil
	}
	axis, err = strconv.Atoi(value)
	if err != nil || axis < 0 || axis >= len(info.Dims) {
		return noAxis, true, fmt.Errorf("parameter batch_axes: %q has %q: want none or an axis of its shape %v, counted from 0", info.Name, value, info.Dims)
	}
	return axis, true, nil
}

// givenAxis is what the parameter batch_axes says of a tensor; nonsense is a fault.
func (w *wirer) givenAxis(info *onnx.TensorInfo) (axis int, given bool) {
	axis, given, err := toldAxis(w.params, info)
	if err != nil {
		w.faults = append(w.faults, err)
	}
	return axis, given
}

// fixedAxis is why an axis that batch_axes names cannot be the batch's.
func fixedAxis(axis int, info *onnx.TensorInfo) error {
	return fmt.Errorf("batch_axes names axis %d of %v, which is fixed: a batch needs a dynamic axis", axis, info.Dims)
}

// namesAxis reports whether batch_axes names a tensor itself: a pattern may be meant
// for others.
func (w *wirer) namesAxis(info *onnx.TensorInfo) bool {
	return slices.ContainsFunc(w.params.BatchAxes, func(a config.Assignment) bool { return a.Name == info.Name })
}

// inputAxis is the batch axis of an input that the configuration does not describe,
// and how it was found. noAxis and no error is a tensor without one.
func (w *wirer) inputAxis(at int) (axis int, how string, err error) {
	info := &w.sig.Inputs[at]
	if axis, given := w.givenAxis(info); given {
		return axis, "batch_axes", nil
	}
	found := w.axes.in[at]
	if !found.known {
		return noAxis, "", fmt.Errorf("tensor %q: its shape %v has several dynamic axes, and which is the batch is not known: say it by the parameter batch_axes, for example '%s = %d'", info.Name, info.Dims, info.Name, dynamicAxes(info)[0])
	}
	return found.axis, found.how, nil
}

func axisText(name string, axis int) string {
	if axis == noAxis {
		return fmt.Sprintf("no axis of %q", name)
	}
	return fmt.Sprintf("axis %d of %q", axis, name)
}
