package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// TestStateOfOneNumber: in the list a state with no axis besides the batch has no
// dims, or one of extent 1, because the list has no reshape.
func TestStateOfOneNumber(t *testing.T) {
	for _, dims := range []tensor.Shape{{}, {1}, {2}, {-1}, {1, 1}} {
		model, c := sumModel(), sumConfig()
		delete(c.Parameters, "state_pairs")
		model.sig.Inputs[1], model.sig.Outputs[1] = info("Sum", tensor.Int32, -1), info("NewSum", tensor.Int32, -1)
		model.run = func([]onnx.Tensor, []onnx.Tensor) error { return nil }
		c.Sequence.States = []config.StateConfig{{InputName: "Sum", OutputName: "NewSum", DataType: "TYPE_INT32", Dims: dims}}
		_, err := model.instance(t, c, "")
		if len(dims) == 0 || dims.Equal(tensor.Shape{1}) {
			require.NoError(t, err, "%v", dims)
			continue
		}
		require.ErrorContains(t, err, "in the configuration and [-1] in the model", "%v", dims)
	}
}

// TestListedStateWithoutBatch: dims of a state that has no batch axis are all of
// its axes, or as Triton has them, which puts a 1 in front.
func TestListedStateWithoutBatch(t *testing.T) {
	for _, dims := range []tensor.Shape{{1, 2}, {2}, {2, 1}} {
		model, c := sumModel(), sumConfig()
		delete(c.Parameters, "state_pairs")
		for _, infos := range [][]onnx.TensorInfo{model.sig.Inputs, model.sig.Outputs} {
			for i := range infos {
				infos[i] = info(infos[i].Name, tensor.Int32, 1, 2)
			}
		}
		c.Sequence.States = []config.StateConfig{{InputName: "Sum", OutputName: "NewSum", DataType: "TYPE_INT32", Dims: dims}}
		_, err := model.instance(t, c, "")
		if !dims.Equal(tensor.Shape{2, 1}) {
			require.NoError(t, err, "%v", dims)
			continue
		}
		require.ErrorContains(t, err, "dims are [2,1] in the configuration and [1,2] in the model")
	}
}
