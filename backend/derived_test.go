package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// derivedModel is cacheModel with further inputs, one number for each lane, and tells
// what the single lane of each run has in them.
func derivedModel(dtypes map[string]tensor.DType, sees func(map[string]float64)) *scripted {
	model := cacheModel()
	for name, dtype := range dtypes {
		model.addInput(name, dtype, -1)
	}
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		seen := map[string]float64{}
		for i := 2; i < len(inputs); i++ {
			seen[model.sig.Inputs[i].Name] = runnertest.Element(inputs[i].Data.Bytes, inputs[i].DType, 0)
		}
		sees(seen)
		return inner(inputs, outputs)
	}
	return model
}

// TestDerivedSummands: a number may be added to what is counted, in every type that
// holds it, also to what only the outputs of earlier steps show.
func TestDerivedSummands(t *testing.T) {
	var seen map[string]float64
	model := derivedModel(map[string]tensor.DType{
		"offset": tensor.Int64, "late": tensor.Int32, "minus": tensor.FP32, "half": tensor.FP16,
		"after": tensor.Int32, "wide": tensor.Int64, "cache": tensor.Int32,
	}, func(all map[string]float64) { seen = all })
	c := cacheConfig()
	c.Parameters["max_state_bytes"] = config.Value{String: "0"}
	c.Parameters["derived_inputs"] = config.Value{String: `offset = 16 + length_before(Output); late = steps - 3; minus = -2 + steps; half = steps+0
		after = length_after( Input : 1 ) + 100; wide = - 9007199254740992 + steps; cache = length_before(NewCache)`}
	in := model.loaded(t, c)
	for round := range 2 {
		written := float64(0) // Output is the cache with the input
		for step, length := range []float64{2, 5, 6} {
			values := make([]int32, []int{2, 3, 1}[step])
			require.NoError(t, send(t, in, words(7, step == 0, false, values...))[0].err)
			n := float64(step)
			require.Equal(t, map[string]float64{
				"offset": 16 + written, "late": n - 3, "minus": n - 2, "half": n,
				"after": 100 + length, "wide": n - (1 << 53), "cache": written,
			}, seen, "round %d, step %d", round, step)
			written += length
		}
	}
}

// TestLengthOfAFailedStep: what a step wrote counts if its states were kept.
func TestLengthOfAFailedStep(t *testing.T) {
	var seen map[string]float64
	model := derivedModel(map[string]tensor.DType{"offset": tensor.Int32}, func(all map[string]float64) { seen = all })
	c := cacheConfig() // of at most 24 bytes
	c.Parameters["derived_inputs"] = config.Value{String: "offset = length_before(Output) - 1"}
	in := model.loaded(t, c)
	for step, want := range []float64{-1, 1, 1} {
		length := []int64{2, 20, 1}[step]
		got := send(t, in, Request{Sequence: SequenceID{Number: 7}, Start: step == 0, Inputs: intInput(tensor.Shape{1, length}, make([]int32, length)...)})
		require.Equal(t, step == 1, got[0].err != nil)
		require.Equal(t, want, seen["offset"])
	}
}

func TestDerivedReject(t *testing.T) {
	for _, tt := range []struct {
		dtype       tensor.DType
		value, want string
	}{
		{tensor.Int32, "16 - steps", `"16 - steps": want steps, length_before(INPUT)`},
		{tensor.Int32, "1 + steps + 2", `"1 + steps + 2": want steps`},
		{tensor.Int32, "16", `"16": want steps`},
		{tensor.Int32, "1.5 + steps", `"1.5 + steps": want steps`},
		{tensor.Int8, "200 + steps", `"200 + steps": the summand: "200" is not`},
		{tensor.Uint32, "steps - 1", `"steps - 1": the summand: "-1" is not`},
		{tensor.Int32, "length_after(Output)", `"Output" is an output`},
		{tensor.Int32, "3 + length_after(NewCache)", `"NewCache" is an output: its length`},
		{tensor.Int32, "length_before(Output:0)", `say which axis of output "Output" [1,-1]`},
		{tensor.Int32, "length_before(Output:2)", `say which axis of output "Output"`},
		{tensor.Int32, "length_before(Nothing)", `"Nothing" is not an input`},
		{tensor.Int32, "mask(Cache, Input) + 1", `want mask(STATES) or mask(STATES, INPUT)`},
	} {
		t.Run(tt.value, func(t *testing.T) {
			c := cacheConfig()
			c.Parameters["derived_inputs"] = config.Value{String: "extra = " + tt.value}
			_, err := derivedModel(map[string]tensor.DType{"extra": tt.dtype}, func(map[string]float64) {}).instance(t, c, "")
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
		})
	}
}

// TestLengthPerElement: one number for each sequence is refused for an input with a dynamic
// axis, such as a mask, and what the refusal says to write loads.
func TestLengthPerElement(t *testing.T) {
	for value, paste := range map[string]string{
		"mask = length_before(Input)": "mask = mask(Cache, Input)", "mask = 1 + length_after(Input)": "mask = positions(Input)",
		"mask = steps": "mask = mask(Cache, INPUT)",
	} {
		model := derivedModel(nil, func(map[string]float64) {})
		model.addInput("mask", tensor.Int32, -1, -1)
		c := cacheConfig()
		c.Parameters["derived_inputs"] = config.Value{String: value}
		_, err := model.instance(t, c, "")
		require.ErrorContains(t, err, `input "mask": `)
		require.ErrorContains(t, err, "'"+paste+"'")
		require.Equal(t, status.InvalidArg, status.CodeOf(err))
		c.Parameters["derived_inputs"] = config.Value{String: strings.Replace(paste, "INPUT", "Input", 1)}
		model.loaded(t, c)
	}
}

// TestLengthsWithAMask: lengths that a mask's padding is in, and masks of outputs, are
// refused.
func TestLengthsWithAMask(t *testing.T) {
	for value, want := range map[string]string{
		"mask = mask(Cache, Output)":                             `"Output" is an output: its length`,
		"mask = mask(Cache, Input); n = length_before(NewCache)": `output "NewCache" belongs to a state`,
	} {
		model := derivedModel(map[string]tensor.DType{"n": tensor.Int32}, func(map[string]float64) {})
		model.addInput("mask", tensor.Int32, -1, -1)
		c := cacheConfig()
		c.Parameters["derived_inputs"] = config.Value{String: value}
		if value == "mask = mask(Cache, Output)" {
			c.Parameters["constant_inputs"] = config.Value{String: "n = 0"}
		}
		_, err := model.instance(t, c, "")
		require.ErrorContains(t, err, want)
	}
}
