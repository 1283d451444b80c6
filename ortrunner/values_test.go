package ortrunner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// TestNoAllocation runs with tensors that were seen before, some of them at
// another place and of another batch size each time.
func TestNoAllocation(t *testing.T) {
	r := open(t, accumulate(4))
	var in, out [2][]onnx.Tensor
	for i := range in {
		shape := tensor.Shape{int64(i + 1), 4}
		in[i] = []onnx.Tensor{zeros(t, r, tensor.FP32, shape), zeros(t, r, tensor.FP32, shape)}
		out[i] = []onnx.Tensor{zeros(t, r, tensor.FP32, shape), zeros(t, r, tensor.FP32, shape)}
	}
	allocated := []onnx.Tensor{{DType: tensor.FP32}, out[0][1]} // y is left to the runner
	step := 0
	run := func() {
		i := step % 2
		if err := r.Run(in[i], out[i]); err != nil {
			t.Fatal(err)
		}
		allocated[0] = onnx.Tensor{DType: tensor.FP32}
		if err := r.Run(in[0], allocated); err != nil {
			t.Fatal(err)
		}
		step++
	}
	run()
	run()
	require.Zero(t, testing.AllocsPerRun(100, run))
}

// TestEviction walks over more addresses than are kept, twice, and stays right.
func TestEviction(t *testing.T) {
	r := open(t, accumulate(1))
	const rows = maxValues + 10
	x := floats(t, r, tensor.Shape{rows, 1}, make([]float32, rows)...)
	for i := range rows {
		row := floats(t, r, tensor.Shape{1, 1}, float32(i))
		copy(x.Data.At(int64(i)*4, 4).Bytes, row.Data.Bytes)
	}
	shape := tensor.Shape{1, 1}
	old, y, fresh := zeros(t, r, tensor.FP32, shape), zeros(t, r, tensor.FP32, shape), zeros(t, r, tensor.FP32, shape)
	for round := range 2 {
		for i := range rows {
			row := onnx.Tensor{Data: x.Data.At(int64(i)*4, 4), DType: tensor.FP32, Shape: shape}
			require.NoError(t, r.Run([]onnx.Tensor{row, old}, []onnx.Tensor{y, fresh}))
			require.Equal(t, []float32{float32(i)}, elements[float32](t, fresh))
			require.Len(t, r.inputs[0].values.values, min(round*rows+i+1, maxValues))
		}
	}
	cache := &r.inputs[0].values
	require.NotNil(t, cache.find(x.Data.At((rows-maxValues)*4, 4), shape), "the oldest that is kept")
	require.Nil(t, cache.find(x.Data.At((rows-maxValues-1)*4, 4), shape), "evicted")
	require.Len(t, r.inputs[1].values.values, 1)
}

// TestValueOfOtherShape uses one block in several shapes: none may be taken for
// another.
func TestValueOfOtherShape(t *testing.T) {
	r := open(t, accumulate(2))
	x, old := floats(t, r, tensor.Shape{3, 2}, 1, 2, 3, 4, 5, 6), zeros(t, r, tensor.FP32, tensor.Shape{3, 2})
	for _, batch := range []int64{3, 1, 2, 3, 1} {
		view := func(of onnx.Tensor) onnx.Tensor {
			return onnx.Tensor{Data: of.Data.At(0, batch*8), DType: tensor.FP32, Shape: tensor.Shape{batch, 2}}
		}
		out := leftOpen(r)
		require.NoError(t, r.Run([]onnx.Tensor{view(x), view(old)}, out))
		require.Equal(t, elements[float32](t, view(x)), elements[float32](t, out[1]))
	}
}
