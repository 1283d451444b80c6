package main

import (
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cuda/fakedriver"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner"
	"tritonstateful/ortrunner/onnxtest"
)

// testedModel is a model with its configuration.
type testedModel struct {
	onnx   onnxtest.Model
	states string // state_pairs
	// derived is derived_inputs, or empty
	derived string
	// rows of the input of a request, at most
	rows int
}

// fixed sums up its input in one state, and moves another one, whose batch axis is
// not the outermost, on by it.
var fixed = testedModel{
	onnx: onnxtest.Model{
		Inputs: []onnxtest.Value{
			{Name: "x", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 2)},
			{Name: "sum", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 2)},
			{Name: "tail", Type: onnxtest.Float, Dims: onnxtest.Dims(3, "batch", 2)},
		},
		Nodes: []onnxtest.Node{
			{Op: "Add", Inputs: []string{"sum", "x"}, Outputs: []string{"new_sum"}},
			{Op: "Add", Inputs: []string{"tail", "new_sum"}, Outputs: []string{"new_tail"}},
			{Op: "ReduceMax", Inputs: []string{"new_tail"}, Outputs: []string{"y"}, Attributes: []onnxtest.Attribute{{Name: "axes", Value: []int64{0}}, {Name: "keepdims", Value: int64(0)}}},
		},
		Outputs: []onnxtest.Value{
			{Name: "y", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 2)},
			{Name: "new_sum", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 2)},
			{Name: "new_tail", Type: onnxtest.Float, Dims: onnxtest.Dims(3, "batch", 2)},
		},
	},
	states: "<<<sum, new_sum>>>, <<<tail, new_tail>>>",
	rows:   1,
}

// growing answers with all that a sequence has sent.
var growing = testedModel{
	onnx: onnxtest.Model{
		Inputs: []onnxtest.Value{
			{Name: "x", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", "new")},
			{Name: "cache", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", "old")},
		},
		Nodes: []onnxtest.Node{
			{Op: "Concat", Inputs: []string{"cache", "x"}, Outputs: []string{"new_cache"}, Attributes: []onnxtest.Attribute{{Name: "axis", Value: int64(1)}}},
			{Op: "Neg", Inputs: []string{"new_cache"}, Outputs: []string{"y"}},
		},
		Outputs: []onnxtest.Value{
			{Name: "y", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", "all")},
			{Name: "new_cache", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", "all")},
		},
	},
	states: "<<<cache, new_cache>>>",
	rows:   3,
}

// masked is growing with a mask, so that sequences of unequal length may share a run.
var masked = testedModel{
	onnx: onnxtest.Model{
		Inputs: append(slices.Clone(growing.onnx.Inputs), onnxtest.Value{Name: "mask", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", "all")}),
		Nodes: append(slices.Clone(growing.onnx.Nodes[:1]),
			onnxtest.Node{Op: "Mul", Inputs: []string{"new_cache", "mask"}, Outputs: []string{"hidden"}},
			onnxtest.Node{Op: "ReduceMax", Inputs: []string{"hidden"}, Outputs: []string{"max"}, Attributes: []onnxtest.Attribute{{Name: "axes", Value: []int64{1}}, {Name: "keepdims", Value: int64(1)}}},
			onnxtest.Node{Op: "Add", Inputs: []string{"max", "x"}, Outputs: []string{"y"}},
		),
		Outputs: []onnxtest.Value{
			{Name: "y", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", "new")},
			growing.onnx.Outputs[1],
		},
	},
	states:  growing.states,
	derived: "mask = mask(cache, x)",
	rows:    3,
}

// maxBatch is the max_batch_size of the models.
const maxBatch = 4

func (m *testedModel) config(t *testing.T, parameters map[string]string) string {
	dim := 2
	if m.rows > 1 {
		dim = -1
	}
	given := map[string]any{"state_pairs": map[string]string{"string_value": m.states}, "derived_inputs": map[string]string{"string_value": m.derived}}
	for name, value := range parameters {
		given[name] = map[string]string{"string_value": value}
	}
	text, err := json.Marshal(map[string]any{
		"name": "m", "max_batch_size": maxBatch,
		"input":             []any{map[string]any{"name": "x", "data_type": "TYPE_FP32", "dims": []int{dim}}},
		"output":            []any{map[string]any{"name": "y", "data_type": "TYPE_FP32", "dims": []int{dim}}},
		"sequence_batching": map[string]any{"oldest": map[string]any{"max_candidate_sequences": 8}},
		"parameters":        given,
	})
	require.NoError(t, err)
	return string(text)
}

// The kinds of instances: TRITONSERVER_InstanceGroupKind.
const (
	kindCPU = 1
	kindGPU = 2
)

// serve loads a model on a CPU or a simulated GPU and sends it the calls, in batches. As
// Triton does, it passes a call only when the one before it in its sequence was released.
// The answers are in the order of the calls.
func (m *testedModel) serve(t *testing.T, driver string, kind int, parameters map[string]string, batches [][]faketriton.Call) (answers [][]faketriton.Output) {
	t.Helper()
	runtime, err := ortrunner.New(ortrunner.Options{Library: builtORT(t), LogLevel: ortLoggingDefault, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	simulateGPU(t, runtime, driver)
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "1", "model.onnx"), m.onnx.Marshal(), 0o600))
	faketriton.Reset()
	s := server{backend: faketriton.NewBackend("{}")}
	s.model = faketriton.NewModel(s.backend, "m", folder, m.config(t, parameters))
	s.instance = faketriton.NewInstance(s.model, "m_0", kind, 0)
	require.NoError(t, s.initialize(func(settings, *slog.Logger) (components, error) {
		return components{open: runtime.Open, load: loadModel}, nil
	}))
	require.NoError(t, s.model.Initialize())
	require.NoError(t, s.instance.Initialize())
	var all, waiting []*faketriton.Request
	ids, last := map[*faketriton.Request]uint64{}, map[uint64]*faketriton.Request{}
	for len(batches) > 0 || len(waiting) > 0 {
		if len(batches) > 0 {
			rs := requests(t, batches[0]...)
			for i, r := range rs {
				ids[r] = batches[0][i].Number
			}
			all, waiting, batches = append(all, rs...), append(waiting, rs...), batches[1:]
		}
		var now, later []*faketriton.Request
		taken := map[uint64]bool{}
		for _, r := range waiting {
			id := ids[r]
			if before := last[id]; taken[id] || len(now) == maxBatch || before != nil && before.Released() == 0 {
				later = append(later, r)
			} else {
				now, last[id] = append(now, r), r
			}
			taken[id] = true
		}
		if waiting = later; len(now) > 0 {
			require.NoError(t, s.instance.Execute(now...))
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	require.NoError(t, s.instance.Finalize())
	settled(t, all)
	for _, r := range all {
		outputs, err := r.Answer()
		require.NoError(t, err)
		answers = append(answers, outputs)
	}
	require.NoError(t, s.model.Finalize())
	require.NoError(t, s.backend.Finalize())
	count, what := faketriton.Violations()
	require.Zero(t, count, what)
	s.instance.Delete()
	s.model.Delete()
	s.backend.Delete()
	return answers
}

// schedule is a random order of sequences that begin, go on and end, in batches; on a
// GPU some requests bring their input there, or want their answer there.
func (m *testedModel) schedule(seed uint64, onGPU bool) (batches [][]faketriton.Call) {
	rng := rand.New(rand.NewPCG(seed, 7))
	live := map[uint64]bool{}
	for range 60 {
		var calls []faketriton.Call
		for _, n := range rng.Perm(6)[:1+rng.IntN(4)] {
			id := uint64(n + 1)
			call := faketriton.Call{Number: id, Outputs: []string{"y"}}
			if !live[id] || rng.IntN(10) == 0 {
				call.Flags |= faketriton.Start
			}
			live[id] = rng.IntN(8) > 0
			if !live[id] {
				call.Flags |= faketriton.End
			}
			extent := 2
			if m.rows > 1 {
				extent = 1 + rng.IntN(m.rows)
			}
			var data []byte
			for range extent {
				data = binary.NativeEndian.AppendUint32(data, math.Float32bits(float32(rng.IntN(100))))
			}
			input := faketriton.Input{Name: "x", Type: int(tensor.FP32), Shape: []int64{1, int64(extent)}, Buffers: [][]byte{data}}
			from, to := rng.IntN(2) == 0, rng.IntN(2) == 0
			if onGPU && from {
				input.Memory = faketriton.GPU
			}
			if onGPU && to {
				call.OutputMemory = faketriton.GPU
			}
			call.Inputs = []faketriton.Input{input}
			calls = append(calls, call)
		}
		batches = append(batches, calls)
	}
	return batches
}

// TestSimulatedGPU goes the whole way, from Triton's calls to the driver's and back: the
// same requests are answered as on a CPU, bit for bit, with states on a device that
// works late, whatever their layout, and whether they grow or not.
func TestSimulatedGPU(t *testing.T) {
	driver := fakedriver.Library(t, "READABLE", "1", "DELAY_US", "300")
	for name, model := range map[string]testedModel{"fixed": fixed, "growing": growing, "masked": masked} {
		for how, parameters := range map[string]map[string]string{
			"as it is":          {"ort_ep": "cuda"},
			"TensorRT":          {"ort_ep": "trt"},
			"padded":            {"ort_ep": "cuda", "batch_padding": "max"},
			"states as float16": {"ort_ep": "cuda", "store_states_as_fp16": "1"},
			"END without a run": {"ort_ep": "cuda", "infer_end_requests": "0"},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				for seed := range uint64(3) {
					want := model.serve(t, driver, kindCPU, parameters, model.schedule(seed, false))
					got := model.serve(t, driver, kindGPU, parameters, model.schedule(seed, true))
					require.Len(t, got, len(want))
					for i := range want {
						require.Equal(t, want[i], got[i], "answer %d, seed %d", i, seed)
					}
					require.True(t, slices.ContainsFunc(want, func(o []faketriton.Output) bool { return len(o) > 0 }))
				}
			})
		}
	}
}
