package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// TestEmptyTensorsThatEndTheProcess: a model with an operator that ends the process on an
// empty tensor gets none from requests, and a state that begins with one is warned of.
func TestEmptyTensorsThatEndTheProcess(t *testing.T) {
	for _, operator := range []string{"GRU", "LSTM", "Einsum", "DynamicQuantizeLSTM", "QAttention", "Concat"} {
		t.Run(operator, func(t *testing.T) {
			model := cacheModel()
			model.sig.Operators = map[string]int{operator: 1}
			in := model.loaded(t, cacheConfig())
			got := send(t, in, Request{Sequence: SequenceID{Number: 1}, Start: true, Inputs: intInput(tensor.Shape{1, 0})})
			if operator == "Concat" {
				require.NoError(t, got[0].err)
				require.Empty(t, in.plan.Warnings)
				return
			}
			require.ErrorContains(t, got[0].err, `input "Input" has shape [1,0]`)
			require.ErrorContains(t, got[0].err, operator)
			require.Len(t, in.plan.Warnings, 1)
			require.Contains(t, in.plan.Warnings[0], `state "Cache" begins with shape [1,0]`)
			require.Contains(t, in.plan.Warnings[0], "operator "+operator)
			require.Contains(t, in.plan.Warnings[0], `parameters { key: 'initial_states' value { string_value: 'Cache = 0[1,1]' } }`)
		})
	}
	t.Run("a state that gets there", func(t *testing.T) {
		model, c := cacheModel(), cacheConfig()
		model.sig.Operators = map[string]int{"GRU": 1}
		model.sig.Nodes = []onnx.Node{{Operator: "GRU", Inputs: []string{"Cache"}}}
		_, err := model.instance(t, c, "")
		require.ErrorContains(t, err, `state "Cache" would start empty, with shape [1,0], and the model brings it into its operator GRU`)
		require.ErrorContains(t, err, `parameters { key: 'initial_states' value { string_value: 'Cache = 0[1,1]' } }`)
		c.Parameters["initial_states"] = config.Value{String: "Cache = 0[1,0]"}
		_, err = model.instance(t, c, "")
		require.ErrorContains(t, err, `string_value: 'Cache = 0[1,1]' } }`)
	})
	t.Run("a state that does not get there", func(t *testing.T) {
		model := cacheModel()
		model.sig.Operators = map[string]int{"GRU": 1}
		model.sig.Nodes = []onnx.Node{{Operator: "GRU", Inputs: []string{"Input"}}}
		require.Empty(t, model.loaded(t, cacheConfig()).plan.Warnings)
	})
	t.Run("the remedy", func(t *testing.T) {
		model, c := cacheModel(), cacheConfig()
		model.sig.Operators = map[string]int{"Einsum": 1}
		c.Parameters["initial_states"] = config.Value{String: "Cache = 0[1,1]"}
		in := model.loaded(t, c)
		require.Empty(t, in.plan.Warnings)
	})
}
