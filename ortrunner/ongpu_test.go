package ortrunner

import (
	"bytes"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/tensor"
)

// TestOnGPU is what only a GPU can show; scripts/gpu_check.sh makes a table of it.
func TestOnGPU(t *testing.T) {
	if os.Getenv("STATEFUL_GPU") == "" {
		t.Skip("needs a GPU and ONNX Runtime's build for it: scripts/gpu_check.sh runs it")
	}
	t.Run("CUDA", func(t *testing.T) { onGPU(t, backend.CUDA, backend.GPUOptions{}) })
	t.Run("TensorRT", func(t *testing.T) {
		onGPU(t, backend.TensorRT, backend.GPUOptions{CacheFolder: t.TempDir(), Shapes: []backend.InputShapes{
			{Name: "x", Least: tensor.Shape{1, 256}, Usual: tensor.Shape{32, 256}, Most: tensor.Shape{32, 256}},
			{Name: "old", Least: tensor.Shape{1, 256}, Usual: tensor.Shape{32, 256}, Most: tensor.Shape{32, 256}},
		}})
	})
	t.Run("Recorded", func(t *testing.T) { onGPU(t, backend.CUDA, backend.GPUOptions{CUDAGraph: true}) })
}

// onGPU sums up in a state for some steps and batches and compares every answer.
func onGPU(t *testing.T, p backend.Provider, options backend.GPUOptions) {
	const width = 256
	var log bytes.Buffer
	rt, err := New(Options{Library: library(t), LogLevel: 2, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	require.NoError(t, err)
	opened, err := rt.Open(backend.SessionOptions{Path: accumulate(width).Write(t), Provider: p, GPU: options})
	require.NoError(t, err)
	r := opened.(*gpuRunner)
	defer r.Close()
	for _, lanes := range []int64{1, 8, 32} {
		shape := tensor.Shape{lanes, width}
		values, zeros := make([]float32, lanes*width), make([]float32, lanes*width)
		for i := range values {
			values[i] = float32(i % 97)
		}
		x, y := ioTensor(t, r, shape, values...), ioTensor(t, r, shape)
		old, next := stateTensor(t, r, shape, zeros...), stateTensor(t, r, shape, zeros...)
		require.NoError(t, r.WarmUp([]backend.Tensor{x, old}, []backend.Tensor{y, next}))
		sums := zeros
		begin := time.Now()
		const steps = 50
		for range steps {
			for i := range y.Data.Bytes { // what is not written would be seen
				y.Data.Bytes[i] = 0xEE
			}
			require.NoError(t, r.Run([]backend.Tensor{x, old}, []backend.Tensor{y, next}))
			for i, got := range elements[float32](t, y) {
				sums[i] += values[i]
				require.Equal(t, 2*sums[i], got)
			}
			require.NoError(t, r.stream.Copy(old.Data.Addr, next.Data.Addr, old.Data.Size))
		}
		t.Logf("%d lanes: %v a step, with its check", lanes, time.Since(begin)/steps)
	}
	if options.CUDAGraph {
		require.Equal(t, 3, r.graphs, "a recording for each batch")
	}
	require.Empty(t, log.String(), "nothing fell back")
	t.Logf("result: 3 batches of %d steps equal to plain sums", 50)
}
