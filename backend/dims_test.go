package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// copyModel has an output like its input, of these extents and names.
func copyModel(dims tensor.Shape, in, out []string) (*scripted, *config.Config) {
	m := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{{Name: "Input", DType: tensor.Int32, Dims: dims, Symbols: in}},
		Outputs: []onnx.TensorInfo{{Name: "Output", DType: tensor.Int32, Dims: dims, Symbols: out}},
	}}
	m.run = func(inputs, outputs []onnx.Tensor) error {
		copy(outputs[0].Data.Bytes, inputs[0].Data.Bytes)
		return nil
	}
	c := &config.Config{
		Name: "model", MaxBatchSize: 8, Parameters: map[string]config.Value{},
		Inputs:  []config.TensorConfig{{Name: "Input", DataType: "TYPE_INT32"}},
		Outputs: []config.TensorConfig{{Name: "Output", DataType: "TYPE_INT32"}},
	}
	return m, c
}

// TestDimsOfAllAxes: where dims name every axis, and there are no sequences, answers
// have the batch in front of all of them, whether some other axis is open or not.
func TestDimsOfAllAxes(t *testing.T) {
	for _, rows := range []int64{3, -1} {
		names := []string{"", "batch", ""}
		m, c := copyModel(tensor.Shape{rows, -1, 1}, names, names)
		c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{rows, -1, 1}, tensor.Shape{rows, -1, 1}
		in := m.loaded(t, c)
		got := succeed(t, in, Request{Inputs: intInput(tensor.Shape{2, 3, 1, 1}, 1, 2, 3, 4, 5, 6)})
		require.Equal(t, []int32{1, 2, 3, 4, 5, 6}, numbers(got[0].outputs[0]))
		require.Equal(t, tensor.Shape{2, 3, 1, 1}, got[0].shapes[0])
	}
}

// TestFixedBatchAndOpenTime: a batch that the exporter has fixed at 1 stays one if an
// open axis comes after it, whatever that is called; dims that leave it open say so.
func TestFixedBatchAndOpenTime(t *testing.T) {
	for name, names := range map[string][2]string{"named": {"time", "time"}, "named differently": {"in", "out"}, "nameless": {}} {
		for _, batch := range []int{1, 8} {
			t.Run(name, func(t *testing.T) {
				m, c := copyModel(tensor.Shape{1, -1, 2}, []string{"", names[0], ""}, []string{"", names[1], ""})
				c.MaxBatchSize = batch
				c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{-1, 2}, tensor.Shape{-1, 2}
				in := m.loaded(t, c)
				require.Equal(t, 1, in.plan.MaxLanes)
				got := succeed(t, in, Request{Inputs: intInput(tensor.Shape{1, 3, 2}, 1, 2, 3, 4, 5, 6)})
				require.Equal(t, []int32{1, 2, 3, 4, 5, 6}, numbers(got[0].outputs[0]))
				require.Equal(t, tensor.Shape{1, 3, 2}, got[0].shapes[0])
			})
		}
	}
}

// TestOpenDimsOfFixedExtents: dims may leave open what the model fixes. Answers have
// its extent, and a request of another one is told so.
func TestOpenDimsOfFixedExtents(t *testing.T) {
	for batch, model := range map[int]tensor.Shape{0: {3, 2}, 4: {-1, 3, 2}, 5: {3, -1, 2}, 6: {1, 3, 2}} {
		names := make([]string, len(model))
		m, c := copyModel(model, names, names)
		c.MaxBatchSize = batch
		c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{-1, 2}, tensor.Shape{-1, 2}
		in := m.loaded(t, c)
		shape := func(rows int64) tensor.Shape {
			if batch == 0 {
				return tensor.Shape{rows, 2}
			}
			return tensor.Shape{1, rows, 2}
		}
		got := send(t, in, Request{Inputs: intInput(shape(3), 1, 2, 3, 4, 5, 6)}, Request{Inputs: intInput(shape(2), 1, 2, 3, 4)})
		require.NoError(t, got[0].err)
		require.Equal(t, shape(3), got[0].shapes[0])
		require.ErrorContains(t, got[1].err, "has shape "+shape(2).String()+": want "+shape(3).String())
		require.Equal(t, tensor.Shape{-1, 2}, in.model.config.Inputs[0].Dims, "other instances read it")
	}
}
