package ortrunner

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

func lines(options []option) string {
	var b strings.Builder
	for _, o := range options {
		b.WriteString(o.Key + "=" + o.Value + "\n")
	}
	return b.String()
}

// TestCUDAOptions has every option that reaches the CUDA execution provider.
func TestCUDAOptions(t *testing.T) {
	require.Equal(t, `device_id=0
has_user_compute_stream=1
do_copy_in_default_stream=1
cudnn_conv_algo_search=EXHAUSTIVE
arena_extend_strategy=kSameAsRequested
use_tf32=0
enable_cuda_graph=0
`, lines(cudaOptions(onnx.SessionOptions{Provider: onnx.CUDA})))
	full := onnx.SessionOptions{Provider: onnx.CUDA, Device: 3, GPU: onnx.GPUOptions{MemoryLimit: 1 << 33, CUDAGraph: true, FP16: true}}
	require.Equal(t, `device_id=3
has_user_compute_stream=1
do_copy_in_default_stream=1
cudnn_conv_algo_search=EXHAUSTIVE
arena_extend_strategy=kSameAsRequested
use_tf32=1
gpu_mem_limit=8589934592
enable_cuda_graph=1
`, lines(cudaOptions(full)))
	full.Provider = onnx.TensorRT // after TensorRT it captures nothing
	require.Contains(t, lines(cudaOptions(full)), "enable_cuda_graph=0\n")
}

// TestTensorRTOptions has every option that reaches TensorRT's.
func TestTensorRTOptions(t *testing.T) {
	require.Equal(t, `device_id=0
has_user_compute_stream=1
trt_max_partition_iterations=1000
trt_min_subgraph_size=1
trt_max_workspace_size=4294967296
trt_fp16_enable=0
trt_cuda_graph_enable=0
trt_engine_cache_enable=0
trt_timing_cache_enable=0
`, lines(tensorRTOptions(onnx.SessionOptions{Provider: onnx.TensorRT})))
	require.Equal(t, `device_id=1
has_user_compute_stream=1
trt_max_partition_iterations=1000
trt_min_subgraph_size=1
trt_max_workspace_size=1000000
trt_fp16_enable=1
trt_cuda_graph_enable=1
trt_engine_cache_enable=1
trt_timing_cache_enable=1
trt_engine_cache_path=/var/cache/trt
trt_timing_cache_path=/var/cache/trt
trt_profile_min_shapes=Input:4x1x5,Accumulate_In:1x5
trt_profile_opt_shapes=Input:4x32x5,Accumulate_In:32x5
trt_profile_max_shapes=Input:4x64x5,Accumulate_In:64x5
`, lines(tensorRTOptions(onnx.SessionOptions{
		Provider: onnx.TensorRT, Device: 1,
		GPU: onnx.GPUOptions{FP16: true, CUDAGraph: true, CacheFolder: "/var/cache/trt", MemoryLimit: 1000000, Shapes: []onnx.InputShapes{
			{Name: "Input", Least: tensor.Shape{4, 1, 5}, Usual: tensor.Shape{4, 32, 5}, Most: tensor.Shape{4, 64, 5}},
			{Name: "Accumulate_In", Least: tensor.Shape{1, 5}, Usual: tensor.Shape{32, 5}, Most: tensor.Shape{64, 5}},
		}},
	})))
}

// TestOptionsOfAccelerators: options of the configuration win over ours.
func TestOptionsOfAccelerators(t *testing.T) {
	o := onnx.SessionOptions{Provider: onnx.TensorRT, GPU: onnx.GPUOptions{
		CUDA:     []onnx.Setting{{Key: "cudnn_conv_algo_search", Value: "HEURISTIC"}, {Key: "cudnn_conv_use_max_workspace", Value: "0"}},
		TensorRT: []onnx.Setting{{Key: "trt_max_workspace_size", Value: "1000"}, {Key: "trt_int8_enable", Value: "1"}},
		Shapes:   []onnx.InputShapes{{Name: "x", Least: tensor.Shape{1}, Usual: tensor.Shape{2}, Most: tensor.Shape{4}}},
	}}
	cuda, trt := lines(cudaOptions(o)), lines(tensorRTOptions(o))
	require.Contains(t, cuda, "cudnn_conv_algo_search=HEURISTIC\n")
	require.NotContains(t, cuda, "EXHAUSTIVE")
	require.Contains(t, cuda, "cudnn_conv_use_max_workspace=0\n")
	require.Contains(t, trt, "trt_max_workspace_size=1000\n")
	require.NotContains(t, trt, "4294967296")
	require.Contains(t, trt, "trt_int8_enable=1\n")
	require.Contains(t, trt, "trt_profile_max_shapes=x:4\n")
}

// TestRunOptions: a graph has a number above 0, and what is not captured says
// so only where the session captures graphs.
func TestRunOptions(t *testing.T) {
	require.Equal(t, "disable_synchronize_execution_providers=1\n", lines(runOptions(false, 0, nil)))
	require.Equal(t, "disable_synchronize_execution_providers=1\ngpu_graph_id=2\n", lines(runOptions(true, 2, nil)))
	require.Equal(t, "disable_synchronize_execution_providers=1\ngpu_graph_id=-1\n", lines(runOptions(true, 0, nil)))
	require.Equal(t, "disable_synchronize_execution_providers=1\nmemory.enable_memory_arena_shrinkage=gpu:0\n", lines(runOptions(false, 0, []option{{Key: onnx.ArenaShrinkage, Value: "gpu:0"}})))
}
