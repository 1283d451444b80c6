package ortrunner

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// TestGPUCapturesGraphs: each batch of the warm-up is a CUDA graph of its own, what comes
// later is none.
func TestGPUCapturesGraphs(t *testing.T) {
	var log bytes.Buffer
	r := openGPU(t, fakeGPU(t, &log), accumulate(2), onnx.GPUOptions{CUDAGraph: true})
	for lanes := int64(1); lanes < 4; lanes++ {
		shape := tensor.Shape{lanes, 2}
		zeros := make([]float32, 2*lanes)
		inputs := []onnx.Tensor{ioTensor(t, r, shape), stateTensor(t, r, shape, zeros...)}
		outputs := []onnx.Tensor{ioTensor(t, r, shape), stateTensor(t, r, shape, zeros...)}
		if lanes < 3 {
			require.NoError(t, r.WarmUp(inputs, outputs))
		} else {
			require.NoError(t, r.Run(inputs, outputs))
		}
	}
	require.NoError(t, r.WarmUp([]onnx.Tensor{ioTensor(t, r, tensor.Shape{1, 2}), stateTensor(t, r, tensor.Shape{1, 2}, 0, 0)}, leftOpen(r)))
	var graphs []int
	for _, b := range r.bindings.all {
		graphs = append(graphs, b.graph)
	}
	require.Equal(t, []int{1, 2, 0, 0}, graphs)
	require.Empty(t, log.String())
}

// TestCaptureFallsBack: a model whose runs cannot be captured is loaded without graphs.
func TestCaptureFallsBack(t *testing.T) {
	var log bytes.Buffer
	rt := fakeGPU(t, &log)
	rt.gpu.provide = func(_ *ort.SessionOptions, o onnx.SessionOptions, _ *cuda.Stream) error {
		if o.GPU.CUDAGraph {
			return status.Errorf(status.InvalidArg, "this session cannot be captured")
		}
		return nil
	}
	r := openGPU(t, rt, accumulate(2), onnx.GPUOptions{CUDAGraph: true})
	require.False(t, r.captures)
	require.Contains(t, log.String(), "enable_cuda_graph has no effect")
	require.Contains(t, log.String(), "this session cannot be captured")
}

// TestRunThatCannotBeCaptured is done without a graph, and the log says why.
func TestRunThatCannotBeCaptured(t *testing.T) {
	var log bytes.Buffer
	r := openGPU(t, fakeGPU(t, &log), accumulate(2), onnx.GPUOptions{CUDAGraph: true})
	inputs, outputs := oneStep(t, r)
	wait, runs := r.before, 0
	r.before = func(s *cuda.Stream) error {
		if runs++; runs == 3 { // the one that is captured
			return errors.New("when stream is capturing")
		}
		return wait(s)
	}
	require.NoError(t, r.WarmUp(inputs, outputs))
	require.Contains(t, log.String(), "could not capture the runs")
	require.Contains(t, log.String(), "when stream is capturing")
	require.Len(t, r.bindings.all, 1)
	require.Zero(t, r.bindings.all[0].graph)
	require.NoError(t, r.Run(inputs, outputs))
	require.Equal(t, []float32{2, 4}, elements[float32](t, outputs[0]))
}

// TestOneCaptureAtATime in the whole process, whatever the sessions.
func TestOneCaptureAtATime(t *testing.T) {
	rt := fakeGPU(t, &bytes.Buffer{}, "DELAY_US", "0")
	var capturing, most atomic.Int32
	var done sync.WaitGroup
	var failed [3]error
	for i := range failed {
		r := openGPU(t, rt, accumulate(2), onnx.GPUOptions{CUDAGraph: true})
		wait := r.before
		r.before = func(s *cuda.Stream) error {
			most.Store(max(most.Load(), capturing.Add(1)))
			defer capturing.Add(-1)
			time.Sleep(2 * time.Millisecond)
			return wait(s)
		}
		inputs, outputs := oneStep(t, r)
		done.Go(func() { failed[i] = r.WarmUp(inputs, outputs) })
	}
	done.Wait()
	require.NoError(t, errors.Join(failed[:]...))
	require.Equal(t, int32(1), most.Load())
}
