package backend

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/tensor"
)

// controlledModel answers with x + 10·START + 100·READY; with one START for all lanes, if it
// is shared.
func controlledModel(t *testing.T, shared bool) *scripted {
	start := "START:INT32[B,1]"
	if shared {
		start = "START:INT32[1]"
	}
	return &scripted{
		sig: onnx.Signature{Inputs: runnertest.Tensors(t, "x:INT32[B,1] READY:INT32[B,1] "+start), Outputs: runnertest.Tensors(t, "y:INT32[B,1]")},
		run: func(inputs, outputs []onnx.Tensor) error {
			x, ready, starts := numbers(inputs[0].Data.Bytes), numbers(inputs[1].Data.Bytes), numbers(inputs[2].Data.Bytes)
			for i := range x {
				at := i
				if shared {
					at = 0
				}
				runnertest.SetElement(outputs[0].Data.Bytes, tensor.Int32, int64(i), float64(x[i]+100*ready[i]+10*starts[at]))
			}
			return nil
		},
	}
}

// controlledConfig is for controlledModel: every input of the model has its source.
func controlledConfig(oldest *config.OldestConfig) *config.Config {
	flag := func(name, kind string) config.ControlConfig {
		return config.ControlConfig{Name: name, Controls: []config.Control{{Kind: kind, Int32FalseTrue: []int32{0, 1}}}}
	}
	return &config.Config{
		Name: "model", MaxBatchSize: 8, Parameters: map[string]config.Value{},
		Inputs:  []config.TensorConfig{{Name: "x", DataType: "TYPE_INT32", Dims: tensor.Shape{1}}},
		Outputs: []config.TensorConfig{{Name: "y", DataType: "TYPE_INT32", Dims: tensor.Shape{1}}},
		Sequence: &config.SequenceConfig{Oldest: oldest, ControlInputs: []config.ControlConfig{
			flag("START", config.ControlStart), flag("READY", config.ControlReady),
		}},
	}
}

// TestSequencesWithoutStates: a model all of whose inputs have a source is served without
// states; requests have the controls of their flags, and no number of sequences is too much.
func TestSequencesWithoutStates(t *testing.T) {
	for _, shared := range []bool{false, true} {
		in, log := controlledModel(t, shared).logged(t, controlledConfig(&config.OldestConfig{MaxCandidateSequences: 2}))
		require.Len(t, log.having("INFO served without states under sequence_batching"), 1)
		require.Len(t, log.having("name them in state_pairs"), 1)
		require.Len(t, log.having("no states; "), 1)
		for step := range 3 {
			var requests []Request
			for id := range uint64(6) {
				r := Request{Sequence: SequenceID{Number: id + 1}, Start: (step+int(id))%3 == 0, End: step == 2 && id%2 == 0}
				r.Inputs = intInput(tensor.Shape{1, 1}, int32(id))
				requests = append(requests, r)
			}
			for i, a := range send(t, in, slices.Clone(requests)...) {
				require.NoError(t, a.err)
				require.Equal(t, []int32{int32(i + 100 + 10*index(requests[i].Start))}, numbers(a.outputs[0]), "shared %v, step %d, request %d", shared, step, i)
			}
		}
		require.Zero(t, in.store.Usage().Live)
		require.Zero(t, in.store.Usage().Total)
	}
}

// TestSequencesWithoutStatesSomeNamedAlike: what is listed in input comes from requests, and
// the log has the pairs that would be states.
func TestSequencesWithoutStatesSomeNamedAlike(t *testing.T) {
	const listed = `{"max_batch_size":4,"sequence_batching":{},"input":[{"name":"x","data_type":"TYPE_FP32","dims":[3]},{"name":"h_in","data_type":"TYPE_FP32","dims":[2]}],
		"output":[{"name":"y","data_type":"TYPE_FP32","dims":[3]},{"name":"h_out","data_type":"TYPE_FP32","dims":[2]}]}`
	cfg, err := config.Parse([]byte(listed))
	require.NoError(t, err)
	sig := &onnx.Signature{Inputs: runnertest.Tensors(t, "x:FP32[B,3] h_in:FP32[B,2]"), Outputs: runnertest.Tensors(t, "y:FP32[B,3] h_out:FP32[B,2]")}
	made, err := planByEvidence(cfg, &config.Parameters{}, sig)
	require.NoError(t, err)
	require.True(t, made.KeepsNothing())
	require.Len(t, made.Inputs, 2)
	require.Len(t, made.Notes, 1)
	require.Contains(t, made.Notes[0], `remove them from input and write parameters { key: 'state_pairs' value { string_value: '<<<h_in, h_out>>>' } }`)
}

// TestFewerSlotsThanLanes: a run never has more lanes than there are slots for.
func TestFewerSlotsThanLanes(t *testing.T) {
	s := newServer(t, slots(2, 8))
	s.batch(startOf(1), startOf(2)).ok()
	s.batch(nextOf(1), nextOf(2)).ok()
	s.batch(startOf(3)).want("too many simultaneous sequences")
	s.batch(endOf(1), nextOf(2)).ok()
	s.batch(startOf(3), nextOf(2)).ok()
}
