package backend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
)

// TestBatchAxesAreProvedOnce: the instances of a model share what was proved, and the log
// says it once.
func TestBatchAxesAreProvedOnce(t *testing.T) {
	m, log := newModel(t, "", []byte(`{"name":"model","max_batch_size":8,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[-1]}],`+
		`"output":[{"name":"y","data_type":"TYPE_FP32","dims":[-1]}]}`), func(onnx.SessionOptions) (onnx.Runner, error) {
		return runnertest.NewRecurrence(t, "x:FP32[time,batch]", "y:FP32[time,batch]", 0), nil
	})
	for i := range 3 {
		in, err := m.NewInstance(InstanceInfo{Name: fmt.Sprint("model_0_", i), Kind: "cpu"})
		require.NoError(t, err)
		in.Close()
	}
	lines := log.having("batch axes")
	require.Len(t, lines, 1)
	require.True(t, strings.Contains(lines[0], "isolated=true"), lines[0])
}

// TestNothingHangsOnTheBatch: without states and without a max_batch_size, requests bring the
// model's whole tensors. So nothing is proved, refused or warned of, however the lanes of a
// batch would mix and whatever two axes it could stand on.
func TestNothingHangsOnTheBatch(t *testing.T) {
	for _, verify := range []string{"inferred", "always", "never"} {
		m, log := newModel(t, "", []byte(`{"name":"model","input":[{"name":"x","data_type":"TYPE_FP32","dims":[-1,-1]}],`+
			`"output":[{"name":"y","data_type":"TYPE_FP32","dims":[-1,-1]}],"parameters":{"verify":{"string_value":"`+verify+`"}}}`), func(onnx.SessionOptions) (onnx.Runner, error) {
			r := runnertest.NewRecurrence(t, "x:FP32[?,?]", "y:FP32[?,?]", 0)
			r.Runs = func(_ *onnx.Signature, inputs, outputs []onnx.Tensor) error { // nothing mixes: both axes could be the batch
				outputs[0].Shape, outputs[0].Data = inputs[0].Shape.Clone(), inputs[0].Data
				return nil
			}
			return r, nil
		})
		in, err := m.NewInstance(InstanceInfo{Name: "model_0", Kind: "cpu"})
		require.NoError(t, err, verify)
		in.Close()
		require.Empty(t, log.having("batch axes"), verify)
		require.Empty(t, log.having("lanes of a batch"), verify)
	}
}

// TestEmptyLists: a configuration may lack any list, and the model still says what is missing.
func TestEmptyLists(t *testing.T) {
	for _, text := range []string{"", "{}", `{"max_batch_size":4}`, `{"sequence_batching":{}}`, `{"sequence_batching":{"control_input":[{"name":"x"}],"oldest":{}},"input":[{}],"output":[{}]}`} {
		s := newServer(t)
		model, err := NewModel(ModelInfo{Name: "model", Config: []byte(text)}, s.in.model.server)
		require.NoError(t, err)
		_, err = model.NewInstance(InstanceInfo{Name: "model_0", Kind: "cpu"})
		require.ErrorContains(t, err, "has no source in the configuration", text)
	}
	_, err := config.Parse([]byte("{"))
	require.ErrorContains(t, err, "reading the model configuration")
}
