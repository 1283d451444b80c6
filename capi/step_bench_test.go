package main

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// benchModels is the environment variable that names the folder of the models
// of internal/bench/models.
const benchModels = "STATEFUL_BENCH_MODELS"

// The batches of the step benchmark: the same sequences every time, two groups
// in turns (how a server with many clients runs them), or any of 4 times as many
// sequences as there are lanes.
const (
	together = "together"
	turns    = "turns"
	random   = "random"
)

// BenchmarkStep compares a whole Execute, through the library's entry point and
// with the fake Triton, with the limit: ONNX Runtime in a loop over tensors that
// stay where they are. The two run in turns, and each iteration is one turn of
// both. Times are the best of all turns, since a shared machine only ever adds.
func BenchmarkStep(b *testing.B) {
	folder := os.Getenv(benchModels)
	if folder == "" {
		b.Skipf("%s is not set: go run build.go bench makes the models and sets it", benchModels)
	}
	for _, model := range []string{"accumulate_fp32", "lstm2x512", "kvring", "zipformer97"} {
		for _, size := range []int{1, 8, 32, 64} {
			for _, pattern := range []string{together, turns, random} {
				b.Run(fmt.Sprintf("%s/batch=%d/%s", model, size, pattern), func(b *testing.B) {
					s := newStepBench(b, filepath.Join(folder, model), size, pattern)
					s.run(b)
				})
			}
		}
	}
}

// stepBench is one model with one instance.
type stepBench struct {
	size    int
	server  server
	batches []*faketriton.Request // of one turn
	raw     *clockedRunner        // the instance's, which it does not use in a raw step
	places  [2]places
}

// clockedRunner is a runner that knows how long its runs have taken.
type clockedRunner struct {
	onnx.Runner
	ran time.Duration
}

func (r *clockedRunner) Run(inputs, outputs []onnx.Tensor) error {
	start := time.Now()
	defer func() { r.ran += time.Since(start) }()
	return r.Runner.Run(inputs, outputs)
}

// places is where a raw step reads and writes; the next step's are the other way
// round.
type places struct{ inputs, outputs []onnx.Tensor }

func newStepBench(b *testing.B, folder string, size int, pattern string) *stepBench {
	model, err := os.ReadFile(filepath.Join(folder, "model.json"))
	require.NoError(b, err)
	parsed, err := config.Parse(model)
	require.NoError(b, err)
	s := &stepBench{size: size}
	s.load(b, folder, string(model))
	s.layOut(b)
	s.makeBatches(b, parsed, pattern)
	return s
}

// layOut makes two sets of tensors for raw steps.
func (s *stepBench) layOut(b *testing.B) {
	sig := s.raw.Signature()
	for i := range s.places {
		s.places[i] = places{inputs: s.tensors(b, sig.Inputs), outputs: s.tensors(b, sig.Outputs)}
	}
	for in, out := range statePairs(sig) {
		s.places[1].inputs[in].Data = s.places[0].outputs[out].Data
		s.places[1].outputs[out].Data = s.places[0].inputs[in].Data
	}
}

// statePairs finds the states of the benchmark's models by their names: the
// output of x is new_x, and of Accumulate_In Accumulate_Out.
func statePairs(sig *onnx.Signature) map[int]int {
	pairs := map[int]int{}
	for in := range sig.Inputs {
		for out := range sig.Outputs {
			from, to := sig.Inputs[in].Name, sig.Outputs[out].Name
			if to == "new_"+from || from == "Accumulate_In" && to == "Accumulate_Out" {
				pairs[in] = out
			}
		}
	}
	return pairs
}

// tensors are zeros for a batch.
func (s *stepBench) tensors(b *testing.B, infos []onnx.TensorInfo) (made []onnx.Tensor) {
	for _, info := range infos {
		shape := slices.Clone(info.Dims)
		for i, extent := range shape {
			switch {
			case extent >= 0:
			case info.Symbols[i] == "seq":
				shape[i] = 4
			default:
				shape[i] = int64(s.size)
			}
		}
		bytes, err := shape.Bytes(info.DType)
		require.NoError(b, err)
		block, err := s.raw.Memory().Alloc(bytes)
		require.NoError(b, err)
		made = append(made, onnx.Tensor{Data: block, DType: info.DType, Shape: shape})
	}
	return made
}

// load loads the model as Triton would: the backend is the one that is shipped.
// Raw steps take the session of its instance, since two would push each other's
// weights out of the processor's caches.
func (s *stepBench) load(b *testing.B, folder, config string) {
	library := builtORT(b)
	faketriton.Reset()
	faketriton.KeepData()
	s.server.backend = faketriton.NewBackend("{}")
	s.server.model = faketriton.NewModel(s.server.backend, filepath.Base(folder), folder, config)
	s.server.instance = faketriton.NewInstance(s.server.model, "bench_0", 1, 0)
	b.Cleanup(func() {
		require.NoError(b, s.server.instance.Finalize())
		require.NoError(b, s.server.model.Finalize())
		require.NoError(b, s.server.backend.Finalize())
		s.server.instance.Delete()
		s.server.model.Delete()
		s.server.backend.Delete()
		count, last := faketriton.Violations()
		require.Zero(b, count, last)
	})
	require.NoError(b, s.server.initialize(func(config settings, log *slog.Logger) (components, error) {
		made, err := assembleOver(library, config, log)
		open := made.open
		made.open = func(options onnx.SessionOptions) (onnx.Runner, error) {
			runner, err := open(options)
			s.raw = &clockedRunner{Runner: runner}
			return s.raw, err
		}
		return made, err
	}))
	require.NoError(b, s.server.model.Initialize())
	require.NoError(b, s.server.instance.Initialize())
}

// makeBatches starts the sequences and makes the batches of one turn.
func (s *stepBench) makeBatches(b *testing.B, cfg *config.Config, pattern string) {
	sequences := map[string]int{together: s.size, turns: 2 * s.size, random: 4 * s.size}[pattern]
	rng := rand.New(rand.NewPCG(1, 2))
	order := rng.Perm(sequences)
	var starts []*faketriton.Request
	for _, n := range order {
		starts = append(starts, s.request(b, cfg, n, faketriton.Start))
	}
	_, err := s.server.instance.ExecuteEach(s.size, starts)
	require.NoError(b, err)
	for batch := range 16 {
		from := batch * s.size % sequences
		if pattern == random {
			rng.Shuffle(sequences, func(i, k int) { order[i], order[k] = order[k], order[i] })
			from = 0
		}
		for _, n := range order[from : from+s.size] {
			s.batches = append(s.batches, s.request(b, cfg, n, 0))
		}
	}
}

// request is one of sequence n.
func (s *stepBench) request(b *testing.B, cfg *config.Config, n, flags int) *faketriton.Request {
	call := faketriton.Call{Number: uint64(n + 1), Flags: flags, Outputs: []string{cfg.Outputs[0].Name}}
	for _, input := range cfg.Inputs {
		shape := append(tensor.Shape{1}, input.Dims...)
		for i, extent := range shape {
			if extent < 0 {
				shape[i] = 1
			}
		}
		elements, err := shape.Elements()
		require.NoError(b, err)
		var data []byte
		for i := range elements {
			data = binary.NativeEndian.AppendUint32(data, 0x3F000000+uint32(i%8)<<20) // 0.5 and more
		}
		call.Inputs = append(call.Inputs, faketriton.Input{Name: input.Name, Type: int(tensor.FP32), Shape: shape, Buffers: [][]byte{data}})
	}
	r := faketriton.NewRequest(call)
	b.Cleanup(r.Delete)
	return r
}

// turnSteps is how many steps of ours follow each other before raw ones do.
const turnSteps = 4

func (s *stepBench) run(b *testing.B) {
	var ours, raws, ratios, overheads []float64
	perTurn := turnSteps * s.size
	for i := 0; b.Loop(); i++ {
		from := i * perTurn % len(s.batches)
		raw := s.runRaw(b)
		s.raw.ran = 0
		ns, err := s.server.instance.ExecuteEach(s.size, s.batches[from:from+perTurn])
		require.NoError(b, err)
		ours = append(ours, float64(ns)/float64(perTurn)/1000)
		raws = append(raws, float64(raw)/float64(perTurn)/1000)
		ratios = append(ratios, float64(ns)/float64(raw))
		overheads = append(overheads, (float64(ns)-float64(s.raw.ran))/float64(turnSteps)/1000)
	}
	for _, r := range s.batches {
		_, err := r.Answer()
		require.NoError(b, err)
	}
	b.ReportMetric(slices.Min(raws), "raw-µs/request")
	b.ReportMetric(slices.Min(ours), "µs/request")
	b.ReportMetric(slices.Min(ours)/slices.Min(raws), "best/best")
	b.ReportMetric(median(ratios), "median-ratio")
	b.ReportMetric(median(overheads), "overhead-µs/batch") // all but the run, with the caches as the model leaves them
}

func (s *stepBench) runRaw(b *testing.B) time.Duration {
	start := time.Now()
	for i := range turnSteps {
		p := &s.places[i%2]
		if err := s.raw.Run(p.inputs, p.outputs); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start)
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
