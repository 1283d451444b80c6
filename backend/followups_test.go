package backend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
)

// TestNoFollowUpFaults: one mistake is one fault, with none about what follows from it.
func TestNoFollowUpFaults(t *testing.T) {
	const (
		inputs    = `"input":[{"name":"x","data_type":"TYPE_FP32","dims":[3]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[6]}]`
		pairs     = `"state_pairs":{"string_value":"<<<h, h_out>>>"}`
		sequences = `"sequence_batching":{"oldest":{"max_candidate_sequences":64}},`
	)
	tests := []struct{ name, config, want string }{
		{"an axis that is none", sequences + inputs + `,"parameters":{` + pairs + `,"batch_axes":{"string_value":"y = batch"}}`, `"y" has "batch"`},
		{"a batch axis of a state that is none", sequences + inputs + `,"parameters":{` + pairs + `,"batch_axes":{"string_value":"h = 7"},"initial_states":{"string_value":"h = 1"}}`, `"h" has "7"`},
		{"no sequence_batching", inputs + `,"parameters":{` + pairs + `,"initial_states":{"string_value":"h = 1"}}`, "sequence_batching is missing"},
		{"an output that the model lacks", sequences + inputs + `,"parameters":{"state_pairs":{"string_value":"<<<h, g>>>"},"initial_states":{"string_value":"h = 1"},"batch_axes":{"string_value":"h = 0"}}`, `"g" is not an output`},
		{"the type of an input that is counted", sequences + strings.Replace(inputs, "FP32", "INT8", 1) + `,"parameters":{` + pairs + `,"derived_inputs":{"string_value":"n = length_before(x:1)"}}`, "data_type is TYPE_INT8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,3] h:FP32[B,4]"), Outputs: runnertest.Tensors(t, "y:FP32[B,6] h_out:FP32[B,4]")}
			if strings.Contains(tt.config, "n = ") {
				sig.Inputs = append(sig.Inputs, runnertest.Tensors(t, "n:INT64[B]")...)
			}
			requireOneFault(t, plansOrNot(t, `{"max_batch_size":8,`+tt.config+`}`, sig), tt.want)
		})
	}

	sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,T,3] past:FP32[B,L,4] mask:INT64[B,M]"), Outputs: runnertest.Tensors(t, "y:FP32[B,6] present:FP32[B,N,4]")}
	masked := strings.Replace(inputs, "[3]", "[-1,3]", 1) + `,"parameters":{"derived_inputs":{"string_value":"mask = mask(%s, x)"},"initial_states":{"string_value":"%s"}}`
	requireOneFault(t, plansOrNot(t, fmt.Sprintf(`{"max_batch_size":8,`+sequences+masked+`}`, "past", "past = 0[9,9]"), sig), "its initial value")
	err := plansOrNot(t, fmt.Sprintf(`{"max_batch_size":8,`+sequences+masked+`}`, "pst", ""), sig)
	requireOneFault(t, err, "mask(pst, x)")
	require.ErrorContains(t, err, "the states that grow are past")
}

// requireOneFault checks that an error has just one fault.
func requireOneFault(t *testing.T, err error, want string) {
	t.Helper()
	require.ErrorContains(t, err, want)
	require.NotContains(t, err.Error(), "\n")
}

// TestPatternThatMatchesTooMuch: the fault says which pattern made the name of the output.
func TestPatternThatMatchesTooMuch(t *testing.T) {
	sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,3] h:FP32[B,4]"), Outputs: runnertest.Tensors(t, "y:FP32[B,6] h_new:FP32[B,4]")}
	err := plansOrNot(t, `{"sequence_batching":{},"max_batch_size":8,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[3]}],"parameters":{"state_pairs":{"string_value":"<<<*, *_new>>>"}}}`, sig)
	require.ErrorContains(t, err, `"x_new" is not an output`)
	require.ErrorContains(t, err, `<<<*, *_new>>> matches the input "x"`)
}

// TestDimsWithoutABatchAxis: what to write where batch_axes says none, and that it works.
func TestDimsWithoutABatchAxis(t *testing.T) {
	sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,3] h:FP32[B,4]"), Outputs: runnertest.Tensors(t, "y:FP32[B,6] h_new:FP32[B,4]")}
	text := `{"sequence_batching":{},"max_batch_size":16,"input":[{"name":"x","data_type":"TYPE_FP32","dims":%s}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":%s}],"parameters":{"batch_axes":{"string_value":"* = none"}}}`
	err := plansOrNot(t, fmt.Sprintf(text, "[3]", "[6]"), sig)
	require.ErrorContains(t, err, "batch_axes says that no axis")
	require.ErrorContains(t, err, "dims: [ -1, 3 ]")
	require.NoError(t, plansOrNot(t, fmt.Sprintf(text, "[-1,3]", "[-1,6]"), sig))
}
