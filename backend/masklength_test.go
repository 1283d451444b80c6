package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// paddingCounts makes what is padded count where the mask is longer than that.
func paddingCounts(model *scripted, longer int64) {
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		if err := inner(inputs, outputs); err != nil {
			return err
		}
		lanes, total := inputs[2].Shape[0], inputs[2].Shape[1]
		for lane := range lanes {
			for at, shown := range numbers(inputs[2].Data.Bytes)[lane*total : (lane+1)*total] {
				if total > longer && shown == 0 && at < 8 {
					outputs[0].Data.Bytes[4*lane]++
				}
			}
		}
		return nil
	}
}

// TestLongSequencesAreTried: padding that shows only beyond a length is found at load,
// with inputs of any extent and with those of one, and not padded beyond it.
func TestLongSequencesAreTried(t *testing.T) {
	for _, rows := range []int64{-1, 1, 2} {
		for _, longer := range []int64{0, 32, 64, 200, 4000} {
			model, c, _ := maskedModel(0)
			model.sig.Inputs[0].Dims[1], c.Inputs[0].Dims = rows, tensor.Shape{rows, -1}
			paddingCounts(model, longer)
			in, log := model.logged(t, c)
			require.Len(t, log.having(`the mask "Mask" does not hide padding`), 1, "%v: %v", rows, *log.lines)
			if longer == 0 {
				require.NotEmpty(t, in.separate)
				continue
			}
			require.Len(t, log.having("WARN"), 1)
			require.LessOrEqual(t, in.padded[0], longer)
			require.Greater(t, in.padded[0], longer/4)
		}
	}
}

// TestPaddedLength: unequal lengths share runs up to the bound, and not beyond it.
func TestPaddedLength(t *testing.T) {
	model, c, seen := maskedModel(0)
	paddingCounts(model, 100)
	in, _ := model.logged(t, c)
	bound := int(in.padded[0])
	lengths := map[uint64]int{1: bound - 4, 2: bound - 6, 3: 1}
	for id, length := range lengths {
		send(t, in, stepOf(id, true, length))
	}
	for range 120 - bound {
		var requests []Request
		for id := uint64(1); id <= 3; id++ {
			requests = append(requests, stepOf(id, false, 1))
			lengths[id]++
		}
		for i, got := range send(t, in, requests...) {
			require.Equal(t, []int32{int32(2 * lengths[uint64(i+1)])}, numbers(got.outputs[0]), "bound %d, sequence %d of length %d", bound, i+1, lengths[uint64(i+1)])
		}
		if lengths[1] <= bound {
			require.Len(t, *seen, 3*lengths[1], "one run")
		}
	}
}

// TestPaddedLengthTold: max_padded_length is how far is tried, and is trusted for what is not.
func TestPaddedLengthTold(t *testing.T) {
	for told, want := range map[string]int64{"1": 1, "20": 20, "1000": 1000, "10000": 10000} {
		model, c, _ := maskedModel(0)
		model.sig.Inputs[0].Dims[2], c.Inputs[0].Dims[1] = 1, 1
		inner := model.run
		model.run = func(inputs, outputs []onnx.Tensor) error {
			if inputs[2].Shape[1] > 700 {
				return errInjected // such as positions that it has not learned
			}
			return inner(inputs, outputs)
		}
		c.Parameters["max_padded_length"] = config.Value{String: told}
		in, log := model.logged(t, c)
		require.Equal(t, []int64{want}, in.padded)
		require.Empty(t, in.separate)
		require.Empty(t, log.having("WARN"))
	}
}

// TestPaddingWithinLimits: no trial goes beyond what a sequence may hold.
func TestPaddingWithinLimits(t *testing.T) {
	model, c, _ := maskedModel(0)
	c.Parameters["max_state_bytes"] = config.Value{String: "1600"}
	longest, inner := int64(0), model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		longest = max(longest, inputs[2].Shape[1])
		return inner(inputs, outputs)
	}
	in, log := model.logged(t, c)
	require.Len(t, log.having("can share runs: in trial runs"), 1)
	require.GreaterOrEqual(t, in.padded[0], int64(400))
	require.Less(t, longest, int64(500))
}

// TestWideWindow: a window that is wider than the first trials bounds what is padded.
func TestWideWindow(t *testing.T) {
	model, c, _ := maskedModel(100)
	in, log := model.logged(t, c)
	require.Len(t, log.having("WARN"), 1)
	require.Len(t, log.having("is longer than 67: "), 1, "%v", *log.lines)
	send(t, in, stepOf(1, true, 99), stepOf(2, true, 90))
	for held := range int32(3) {
		got := send(t, in, stepOf(1, false, 1), stepOf(2, false, 1))
		require.Equal(t, []int32{min(2*(100+held), 2*101)}, numbers(got[0].outputs[0]))
		require.Equal(t, []int32{2 * (91 + held)}, numbers(got[1].outputs[0]))
	}
	require.Len(t, log.having("WARN"), 1)

	model, c, _ = maskedModel(100) // which what was told does not change
	c.Parameters["max_padded_length"] = config.Value{String: "1000"}
	_, log = model.logged(t, c)
	require.Len(t, log.having("is longer than 67: "), 1, "%v", *log.lines)

	model, c, _ = maskedModel(5000) // beyond what is tried, it is found as it runs
	c.Parameters["max_padded_length"] = config.Value{String: "4000"}
	in, log = model.logged(t, c)
	in.padded[0] = 10000
	require.Empty(t, log.having("WARN"))
	send(t, in, stepOf(1, true, 4999), stepOf(2, true, 4990))
	for range 3 {
		send(t, in, stepOf(1, false, 1), stepOf(2, false, 1))
	}
	require.Len(t, log.having(`state "Cache" from length 5000 to 5000`), 1, "%v", *log.lines)
}

// TestPaddingAndTheNumberOfLanes: an answer may depend on how many lanes a run has, as long
// as padding changes nothing.
func TestPaddingAndTheNumberOfLanes(t *testing.T) {
	model, c, _ := maskedModel(0)
	c.Parameters["batch_axes"] = config.Value{String: "* = 0"}
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		if err := inner(inputs, outputs); err != nil {
			return err
		}
		for lane := range inputs[2].Shape[0] {
			outputs[0].Data.Bytes[4*lane+3] = byte(inputs[2].Shape[0])
		}
		return nil
	}
	in, log := model.logged(t, c)
	require.Empty(t, in.separate, "%v", *log.lines)
	require.Greater(t, in.padded[0], int64(4000))
}
