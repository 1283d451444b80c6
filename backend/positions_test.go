package backend

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// positionModel is a model of a mask with an input of positions, of which it notes the
// bytes and the shape of the last run.
func positionModel(dtype tensor.DType, axes ...string) (*scripted, *config.Config, *onnx.Tensor) {
	model, c, _ := maskedModel(0)
	ids := onnx.TensorInfo{Name: "Positions", DType: dtype, Symbols: axes}
	for range axes {
		ids.Dims = append(ids.Dims, -1)
	}
	model.sig.Inputs = append(model.sig.Inputs, ids)
	seen := &onnx.Tensor{}
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		*seen = inputs[3]
		return inner(inputs[:3], outputs)
	}
	c.Parameters["derived_inputs"] = config.Value{String: "Mask = mask(Cache, Input:1); Positions = positions(Input:1)"}
	return model, c, seen
}

// positionsOf are the numbers of a tensor.
func positionsOf(x *onnx.Tensor) (all []int64) {
	for at := x.Data.Bytes; len(at) > 0; at = at[x.DType.Size():] {
		if x.DType == tensor.Int64 {
			all = append(all, int64(binary.NativeEndian.Uint64(at)))
		} else {
			all = append(all, int64(int32(binary.NativeEndian.Uint32(at))))
		}
	}
	return all
}

// TestPositions: those of each sequence go on where it was, also where a mask lets
// sequences of unequal length share a run; what failed does not count.
func TestPositions(t *testing.T) {
	for _, dtype := range []tensor.DType{tensor.Int64, tensor.Int32} {
		model, c, seen := positionModel(dtype, "batch", "positions")
		in := model.loaded(t, c)
		require.Empty(t, in.separate)
		send(t, in, stepOf(1, true, 3))
		require.Equal(t, []int64{0, 1, 2}, positionsOf(seen))
		send(t, in, stepOf(2, true, 5))
		succeed(t, in, stepOf(1, false, 2), stepOf(2, false, 2), stepOf(3, true, 2))
		require.Equal(t, tensor.Shape{3, 2}, seen.Shape)
		require.Equal(t, []int64{3, 4, 5, 6, 0, 1}, positionsOf(seen))
		inner := model.run
		model.run = func(inputs, outputs []onnx.Tensor) error { return errInjected }
		require.Error(t, send(t, in, stepOf(1, false, 7))[0].err)
		model.run = inner
		send(t, in, stepOf(1, false, 1))
		require.Equal(t, []int64{5}, positionsOf(seen))
		send(t, in, stepOf(1, true, 1))
		require.Equal(t, []int64{0}, positionsOf(seen), "it starts again")

		got := send(t, in, hollow(1, false, generatedMost/int64(dtype.Size())+1), stepOf(2, false, 1))
		require.ErrorContains(t, got[0].err, `input "Positions": positions of `)
		require.Equal(t, status.InvalidArg, status.CodeOf(got[0].err))
		require.NoError(t, got[1].err)
		require.Equal(t, []int64{7}, positionsOf(seen))
	}
}

// TestPositionsFromElsewhere: a number may be added, as for models that begin at 2.
func TestPositionsFromElsewhere(t *testing.T) {
	for text, first := range map[string]int64{"positions(Input:1) + 2": 2, "-1 + positions( Input : 1 )": -1} {
		model, c, seen := positionModel(tensor.Int32, "batch", "positions")
		c.Parameters["derived_inputs"] = config.Value{String: "Mask = mask(Cache, Input:1); Positions = " + text}
		in := model.loaded(t, c)
		send(t, in, stepOf(1, true, 2))
		require.Equal(t, []int64{first, first + 1}, positionsOf(seen))
		send(t, in, stepOf(1, false, 1))
		require.Equal(t, []int64{first + 2}, positionsOf(seen))
	}
}

// TestPositionsOfAllLanes: a model that has one row of positions for all lanes gets
// those together that are at the same place.
func TestPositionsOfAllLanes(t *testing.T) {
	model, c, seen := positionModel(tensor.Int64, "positions")
	in := model.loaded(t, c)
	runs := 0
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error { runs++; return inner(inputs, outputs) }
	send(t, in, stepOf(1, true, 3), stepOf(2, true, 3))
	require.Equal(t, 1, runs)
	require.Equal(t, tensor.Shape{3}, seen.Shape)
	send(t, in, stepOf(1, false, 1), stepOf(2, false, 1), stepOf(3, true, 1))
	require.Equal(t, 3, runs)
	require.Equal(t, []int64{0}, positionsOf(seen))
}

func TestPositionsReject(t *testing.T) {
	for _, tt := range []struct {
		dtype tensor.DType
		axes  []string
		value string
		want  string
	}{
		{tensor.FP32, []string{"batch", "p"}, "positions(Input:1)", "it is of type FP32"},
		{tensor.Int64, []string{"batch"}, "positions(Input:1)", "its shape in the model is [-1]"},
		{tensor.Int64, []string{"p", "batch"}, "positions(Input:1)", "one dynamic axis"},
		{tensor.Int64, []string{"batch", "p", "q"}, "positions(Input:1)", "one dynamic axis"},
		{tensor.Int64, []string{"batch", "p"}, "positions(Input:1", `has no closing parenthesis`},
		{tensor.Int64, []string{"batch", "p"}, "positions(Input)", `say which axis of input "Input"`},
		{tensor.Int64, []string{"batch", "p"}, "positions(NewCache)", `"NewCache" is an output`},
		{tensor.Int64, []string{"batch", "p"}, "positions(Nothing)", `"Nothing" is not an input`},
	} {
		model, c, _ := positionModel(tt.dtype, tt.axes...)
		masked(t, model, c, "Mask = mask(Cache, Input:1); Positions = "+tt.value, tt.want)
	}
}
