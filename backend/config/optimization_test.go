package config

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// optimized parses a field optimization and parameters as a model has them.
func optimized(t *testing.T, field string, parameters map[string]Value) (*Parameters, error) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"optimization": json.RawMessage(field), "parameters": map[string]any{}})
	require.NoError(t, err)
	c, err := Parse(text)
	require.NoError(t, err)
	c.Parameters = parameters
	p, _, err := ParseParameters(parameters)
	require.NoError(t, err)
	return p, p.AddOptimization(c)
}

// gpu is the field optimization with accelerators of the GPU.
func gpu(accelerators string) string {
	return fmt.Sprintf(`{"execution_accelerators": {"gpu_execution_accelerator": [%s]}}`, accelerators)
}

// TestGraphLevel: the numbers mean what they mean for Triton's onnxruntime backend.
func TestGraphLevel(t *testing.T) {
	for level, want := range map[int]string{-1: "basic", 0: "all", 1: "extended", 2: "disabled", 3: "all"} {
		p, err := optimized(t, fmt.Sprintf(`{"graph": {"level": %d}}`, level), nil)
		require.NoError(t, err)
		require.Equal(t, want, p.Session.Optimization, level)
		require.Equal(t, want, p.Settings["graph_optimization"], "what the log says")
	}
	p, err := optimized(t, `{"graph": {"level": 1}}`, given("graph_optimization", "extended"))
	require.NoError(t, err)
	require.Equal(t, "extended", p.Session.Optimization)
	_, err = optimized(t, `{"graph": {"level": -1}}`, given("graph_optimization", "all"))
	require.EqualError(t, err, `optimization: graph.level is -1 (basic) and the parameter graph_optimization is "all": they contradict each other: remove one of them`)
	require.Equal(t, status.InvalidArg, status.CodeOf(err))
	_, err = optimized(t, `{"graph": {"level": 0}}`, given("graph_optimization", "basic"))
	require.EqualError(t, err, `optimization: graph.level is 0 (all) and the parameter graph_optimization is "basic": they contradict each other: remove one of them`)
	p, err = optimized(t, `{}`, given("graph_optimization", "basic"))
	require.NoError(t, err)
	require.Equal(t, "basic", p.Session.Optimization)
}

// TestTensorRTAccelerator: its options get ONNX Runtime's names, and its precision is FP32.
func TestTensorRTAccelerator(t *testing.T) {
	p, err := optimized(t, gpu(`{"name": "tensorrt", "parameters": {
		"precision_mode": "FP16", "max_workspace_size_bytes": "1073741824", "trt_engine_cache_enable": "true",
		"trt_engine_cache_path": "/cache", "trt_cuda_graph_enable": "1", "int8_use_native_calibration_table": "0"}}`), nil)
	require.NoError(t, err)
	require.Equal(t, "trt", p.GPUProvider)
	require.True(t, p.FP16Compute)
	require.True(t, p.CUDAGraph)
	require.Equal(t, []onnx.Setting{
		{Key: "trt_int8_use_native_calibration_table", Value: "0"}, {Key: "trt_max_workspace_size", Value: "1073741824"},
		{Key: "trt_engine_cache_enable", Value: "1"}, {Key: "trt_engine_cache_path", Value: "/cache"},
	}, p.TensorRT)
	p, err = optimized(t, gpu(`{"name": "tensorrt"}, {"name": "cuda", "parameters": {"cudnn_conv_use_max_workspace": "0"}}`), nil)
	require.NoError(t, err)
	require.Equal(t, "trt", p.GPUProvider)
	require.False(t, p.FP16Compute)
	require.Equal(t, []onnx.Setting{{Key: "cudnn_conv_use_max_workspace", Value: "0"}}, p.CUDA)
	p, err = optimized(t, gpu(`{"name": "tensorrt", "parameters": {"precision_mode": "INT8"}}`), nil)
	require.NoError(t, err)
	require.Equal(t, []onnx.Setting{{Key: "trt_int8_enable", Value: "1"}}, p.TensorRT)
}

// TestCUDAAccelerator: alone it chooses CUDA, and the parameters of the same names count too.
func TestCUDAAccelerator(t *testing.T) {
	p, err := optimized(t, gpu(`{"name": "cuda", "parameters": {"enable_cuda_graph": "1", "use_ep_level_unified_stream": "True"}}`), given("cudnn_conv_algo_search", "1", "do_copy_in_default_stream", "0"))
	require.NoError(t, err)
	require.Equal(t, "cuda", p.GPUProvider)
	require.True(t, p.CUDAGraph)
	require.Equal(t, []onnx.Setting{
		{Key: "cudnn_conv_algo_search", Value: "HEURISTIC"}, {Key: "do_copy_in_default_stream", Value: "0"}, {Key: "use_ep_level_unified_stream", Value: "1"},
	}, p.CUDA)
	p, err = optimized(t, gpu(`{"name": "cuda"}`), given("ort_ep", "trt"))
	require.NoError(t, err)
	require.Equal(t, "trt", p.GPUProvider) // CUDA follows TensorRT in any case
}

// TestRefusedAccelerators: everything that is wrong is said at once, each with a remedy.
func TestRefusedAccelerators(t *testing.T) {
	_, err := optimized(t, `{"execution_accelerators": {
		"gpu_execution_accelerator": [
			{"name": "tensorrt", "parameters": {"precision_mode": "FP8", "trt_dla_cor": "1", "trt_dla_core": "first", "device_id": "1", "trt_cuda_graph_enable": "yes"}},
			{"name": "cuda", "parameters": {"gpu_mem_limit": "1000", "cudnn_conv_algo_search": "DEFAULT", "enable_cuda_graph": "1"}},
			{"name": "auto_mixed_precision"}],
		"cpu_execution_accelerator": [{"name": "openvino"}, {"name": "acl"}]}}`,
		given("ort_ep", "cuda", "gpu_mem_limit", "2000", "cudnn_conv_algo_search", "0", "enable_cuda_graph", "0"))
	for _, want := range []string{
		`tensorrt: precision_mode is "FP8": want one of FP32, FP16, BF16, INT8`,
		`tensorrt has no parameter "trt_dla_cor" that can be set: did you mean "trt_dla_core"?`,
		`tensorrt: trt_dla_core is "first": want a whole number`,
		`tensorrt has no parameter "device_id" that can be set: the backend sets it, or ONNX Runtime does not have it: remove it`,
		`tensorrt: trt_cuda_graph_enable is "yes": want one of 0, 1, false, true`,
		`gpu_execution_accelerator "tensorrt" and the parameter ort_ep = "cuda" contradict each other: remove one of them`,
		`gpu_mem_limit is 1000 and the parameter gpu_mem_limit is "2000": they contradict each other: remove one of them`,
		`cuda: cudnn_conv_algo_search is "DEFAULT" and the parameter of that name comes to "EXHAUSTIVE": remove one of them`,
		`cuda: enable_cuda_graph is 1 and the parameter enable_cuda_graph is "0": they contradict each other`,
		`gpu_execution_accelerator "auto_mixed_precision" is no execution provider of this backend: want tensorrt or cuda, or remove it`,
		`cpu_execution_accelerator "openvino": the ONNX Runtime of this backend has no OpenVINO in it: remove it to compute with ONNX Runtime's own kernels, or name OpenVINO's plugin library in the parameter ort_ep_library`,
		`cpu_execution_accelerator "acl" is no execution provider of this backend: remove it`,
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = optimized(t, gpu(`{"name": "tensorrt", "parameters": {"precision_mode": "FP32", "trt_engine_cache_enable": "1", "trt_engine_cache_path": "/a"}}`),
		given("compute_precision", "fp16", "enable_trt_caching", "0", "trt_cache_dir", "/b"))
	for _, want := range []string{
		`tensorrt: precision_mode is FP32 and the parameter compute_precision is "fp16"`,
		`trt_engine_cache_enable is 1 and the parameter enable_trt_caching is "0"`,
		`trt_engine_cache_path is /a and the parameter trt_cache_dir is "/b"`,
	} {
		require.ErrorContains(t, err, want)
	}
}

// TestOpenVINOByPlugin: with a plugin the accelerator names what that is.
func TestOpenVINOByPlugin(t *testing.T) {
	const field = `{"execution_accelerators": {"cpu_execution_accelerator": [{"name": "openvino"}]}}`
	p, err := optimized(t, field, given("ort_ep_library", "/opt/libopenvino_ep.so"))
	require.NoError(t, err)
	require.Equal(t, "OpenVINOExecutionProvider", p.Session.Plugin.Name)
	p, err = optimized(t, field, given("ort_ep_library", "/opt/libopenvino_ep.so", "ort_ep_name", "OpenVINOExecutionProvider.AUTO"))
	require.NoError(t, err)
	require.Equal(t, "OpenVINOExecutionProvider.AUTO", p.Session.Plugin.Name)
}
