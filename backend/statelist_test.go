package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// TestDimsOfListedStates: in the list a state of one number has no dims, or one of extent
// 1, because the list has no reshape. Dims of a state without a batch axis are all of its
// axes, or as Triton has them, which puts a 1 in front.
func TestDimsOfListedStates(t *testing.T) {
	for _, tt := range []struct {
		model, dims tensor.Shape
		fits        bool
	}{
		{tensor.Shape{-1}, tensor.Shape{}, true},
		{tensor.Shape{-1}, tensor.Shape{1}, true},
		{tensor.Shape{-1}, tensor.Shape{2}, false},
		{tensor.Shape{-1}, tensor.Shape{-1}, false},
		{tensor.Shape{-1}, tensor.Shape{1, 1}, false},
		{tensor.Shape{1, 2}, tensor.Shape{1, 2}, true},
		{tensor.Shape{1, 2}, tensor.Shape{2}, true},
		{tensor.Shape{1, 2}, tensor.Shape{2, 1}, false},
	} {
		model, c := sumModel(), sumConfig()
		delete(c.Parameters, "state_pairs")
		if len(tt.model) == 2 { // no tensor has a batch axis
			model.sig.Inputs[0], model.sig.Outputs[0] = info("Input", tensor.Int32, 1, 2), info("Output", tensor.Int32, 1, 2)
		}
		model.sig.Inputs[1], model.sig.Outputs[1] = info("Sum", tensor.Int32, tt.model...), info("NewSum", tensor.Int32, tt.model...)
		model.run = func([]onnx.Tensor, []onnx.Tensor) error { return nil }
		c.Sequence.States = []config.StateConfig{{InputName: "Sum", OutputName: "NewSum", DataType: "TYPE_INT32", Dims: tt.dims}}
		_, err := model.instance(t, c, "")
		if tt.fits {
			require.NoError(t, err, "%v", tt)
			continue
		}
		require.ErrorContains(t, err, "dims are "+tt.dims.String()+" in the configuration and "+tt.model.String()+" in the model")
	}
}
