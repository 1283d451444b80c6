package planner

import (
	"fmt"
	"slices"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// givenAxis is what the parameter batch_axes says of a tensor that hasNonsense knows nothing
// against.
func (pl *planner) givenAxis(info *onnx.TensorInfo) (axis int, given bool) {
	axis, given, _ = batchaxis.Given(pl.params, info)
	return axis, given
}

// hasNonsense reports whether batch_axes gives a tensor an axis that it does not have, which
// it notes as a fault. Nothing more is said of the tensor then.
func (pl *planner) hasNonsense(info *onnx.TensorInfo) bool {
	_, _, err := batchaxis.Given(pl.params, info)
	if err != nil {
		pl.faultOf([]string{info.Name}, "%w", err)
	}
	return err != nil
}

// fixedAxis is why an axis that batch_axes names cannot be the batch's.
func fixedAxis(axis int, info *onnx.TensorInfo) error {
	return fmt.Errorf("batch_axes names axis %d of %v, which is fixed: a batch needs a dynamic axis", axis, info.Dims)
}

// namesAxis reports whether batch_axes names a tensor itself: a pattern may be meant
// for others.
func (pl *planner) namesAxis(info *onnx.TensorInfo) bool {
	return slices.ContainsFunc(pl.params.BatchAxes, func(a config.Assignment) bool { return a.Name == info.Name })
}

// inputAxis is the batch axis of an input that the configuration does not describe,
// and how it was found. tensor.NoAxis and no error is a tensor without one.
func (pl *planner) inputAxis(at int) (axis int, how string, err error) {
	info := &pl.sig.Inputs[at]
	if axis, given := pl.givenAxis(info); given {
		return axis, batchaxis.ByParameter, nil
	}
	found := pl.candidate.In[at]
	if !found.Known {
		return tensor.NoAxis, "", fmt.Errorf("tensor %q: its shape %v has several dynamic axes, and the batch axis is unknown: set the parameter batch_axes, for example '%s = %d'", info.Name, info.Dims, info.Name, batchaxis.OpenAxes(info)[0])
	}
	return found.Index, found.How, nil
}
