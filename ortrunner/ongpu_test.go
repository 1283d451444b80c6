package ortrunner

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
)

// TestOnGPU is what only a GPU can show; scripts/gpu_check.sh makes a table of it.
func TestOnGPU(t *testing.T) {
	if os.Getenv("STATEFUL_GPU") == "" {
		t.Skip("needs a GPU and ONNX Runtime's build for it: scripts/gpu_check.sh runs it")
	}
	t.Run("CUDA", func(t *testing.T) { onGPU(t, onnx.CUDA, onnx.GPUOptions{}) })
	t.Run("TensorRT", func(t *testing.T) {
		onGPU(t, onnx.TensorRT, onnx.GPUOptions{CacheFolder: t.TempDir(), Shapes: []onnx.InputShapes{
			{Name: "x", Least: tensor.Shape{1, 256}, Usual: tensor.Shape{32, 256}, Most: tensor.Shape{32, 256}},
			{Name: "old", Least: tensor.Shape{1, 256}, Usual: tensor.Shape{32, 256}, Most: tensor.Shape{32, 256}},
		}})
	})
	t.Run("Graphs", func(t *testing.T) { onGPU(t, onnx.CUDA, onnx.GPUOptions{CUDAGraph: true}) })
	t.Run("Ahead", onGPUAhead)
	t.Run("Limit", onGPULimit)
}

// openOnGPU opens a model on the first GPU of this machine, with what is worth a
// warning in the log.
func openOnGPU(t *testing.T, model onnxtest.Model, p onnx.Provider, options onnx.GPUOptions) (*gpuRunner, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	rt, err := New(Options{Library: library(t), LogLevel: 2, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	require.NoError(t, err)
	opened, err := rt.Open(onnx.SessionOptions{Path: model.Write(t), Provider: p, GPU: options})
	require.NoError(t, err)
	t.Cleanup(opened.Close)
	return opened.(*gpuRunner), &log
}

// onGPU feeds back a state for some steps and batches and compares every answer; and
// then times runs.
func onGPU(t *testing.T, p onnx.Provider, options onnx.GPUOptions) {
	r, log := openOnGPU(t, accumulate(256), p, options)
	checked := checkSteps(t, r, 256)
	if options.CUDAGraph {
		require.Equal(t, 3, r.graphs, "a graph for each batch")
	}
	require.Empty(t, log.String(), "nothing fell back")
	t.Logf("result: 3 batches of 50 steps equal to plain sums; a run takes %s", checked)
}

// checkSteps logs how long a run takes, by batch.
func checkSteps(t *testing.T, r *gpuRunner, width int64) string {
	var times []string
	for _, lanes := range []int64{1, 8, 32} {
		shape := tensor.Shape{lanes, width}
		values, zeros := make([]float32, lanes*width), make([]float32, lanes*width)
		for i := range values {
			values[i] = float32(i % 97)
		}
		x, y := ioTensor(t, r, shape, values...), ioTensor(t, r, shape)
		old, next := stateTensor(t, r, shape, zeros...), stateTensor(t, r, shape, zeros...)
		inputs, outputs := []onnx.Tensor{x, old}, []onnx.Tensor{y, next}
		require.NoError(t, r.WarmUp(inputs, outputs))
		sums := zeros
		for range 50 {
			for i := range y.Data.Bytes { // what is not written would be seen
				y.Data.Bytes[i] = 0xEE
			}
			require.NoError(t, r.Run(inputs, outputs))
			for i, got := range elements[float32](t, y) {
				sums[i] += values[i]
				require.Equal(t, 2*sums[i], got)
			}
			require.NoError(t, r.stream.Copy(old.Data.Addr, next.Data.Addr, old.Data.Size))
		}
		const runs = 200
		begin := time.Now()
		for range runs {
			require.NoError(t, r.Run(inputs, outputs))
		}
		times = append(times, fmt.Sprintf("%v for %d", (time.Since(begin)/runs).Round(time.Microsecond), lanes))
	}
	return strings.Join(times, ", ")
}

// TestCheckSteps tries out what onGPU does, where the CPU computes.
func TestCheckSteps(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}, "DELAY_US", "0"), accumulate(256), onnx.GPUOptions{CUDAGraph: true})
	require.Contains(t, checkSteps(t, r, 256), "for 32")
	require.Equal(t, 3, r.graphs)
}

// squares is a chain of products of matrices: long work of few calls.
func squares(length int) onnxtest.Model {
	square := onnxtest.Value{Name: "x", Type: onnxtest.Float, Dims: onnxtest.Dims("n", "n")}
	m := onnxtest.Model{Inputs: []onnxtest.Value{square}}
	from := "x"
	for i := range length {
		to := fmt.Sprintf("x%d", i)
		m.Nodes = append(m.Nodes, onnxtest.Node{Op: "MatMul", Inputs: []string{from, "x"}, Outputs: []string{to}})
		from = to
	}
	last := square
	last.Name = from
	m.Outputs = []onnxtest.Value{last}
	return m
}

// onGPUAhead: putting a run into the stream takes less time than the run.
func onGPUAhead(t *testing.T) {
	r, _ := openOnGPU(t, squares(50), onnx.CUDA, onnx.GPUOptions{})
	put, done := ahead(t, r, 4096)
	t.Logf("result: a run was put in after %v, and done after %v", put, done)
	require.Less(t, 2*put, done, "ONNX Runtime has waited for the device")
}

// ahead returns how long a run took to be put into the stream, and to be done.
func ahead(t *testing.T, r *gpuRunner, n int64) (put, done time.Duration) {
	shape := tensor.Shape{n, n}
	zeros := make([]float32, n*n)
	r.given, r.wanted = []onnx.Tensor{stateTensor(t, r, shape, zeros...)}, []onnx.Tensor{stateTensor(t, r, shape, zeros...)}
	require.NoError(t, r.WarmUp(r.given, r.wanted))
	require.NoError(t, r.thread.do(func() error {
		if err := r.bind(); err != nil {
			return err
		}
		b, err := r.binding(0)
		if err != nil {
			return err
		}
		begin := time.Now()
		err = r.enqueue(b)
		put = time.Since(begin)
		err = errors.Join(err, r.done.Record(r.stream), r.done.Sync())
		done = time.Since(begin)
		return err
	}))
	return put, done
}

// TestAhead tries out what onGPUAhead does, where the CPU computes.
func TestAhead(t *testing.T) {
	r := openGPU(t, fakeGPU(t, &bytes.Buffer{}), squares(3), onnx.GPUOptions{})
	put, done := ahead(t, r, 16)
	require.LessOrEqual(t, put, done)
}

// onGPULimit: gpu_mem_limit bounds what ONNX Runtime takes, and the session goes on
// after a run that was too large.
func onGPULimit(t *testing.T) {
	r, _ := openOnGPU(t, squares(3), onnx.CUDA, onnx.GPUOptions{MemoryLimit: 64 << 20})
	run := func(n int64) error {
		shape, zeros := tensor.Shape{n, n}, make([]float32, n*n)
		return r.Run([]onnx.Tensor{stateTensor(t, r, shape, zeros...)}, []onnx.Tensor{stateTensor(t, r, shape, zeros...)})
	}
	require.NoError(t, run(64))
	err := run(8192) // 256 MB for each product
	require.Error(t, err)
	require.NoError(t, run(64))
	t.Logf("result: %v", err)
}
