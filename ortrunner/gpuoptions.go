package ortrunner

import (
	"strconv"
	"strings"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// option is a setting of an execution provider, by ONNX Runtime's name for it.
type option struct{ key, value string }

const (
	// workspace is how much memory TensorRT may try layers with, in bytes, unless
	// gpu_mem_limit is less.
	workspace = 4 << 30
	// partitions is how often TensorRT may split the model: in effect without limit.
	partitions = 1000
)

// cudaOptions are those of the CUDA execution provider. The stream is not among
// them: it is no string.
func cudaOptions(o onnx.SessionOptions) []option {
	options := []option{
		{"device_id", strconv.Itoa(o.Device)},
		{"has_user_compute_stream", "1"},
		{"do_copy_in_default_stream", "1"}, // that is, in the stream of the run
		{"cudnn_conv_algo_search", "EXHAUSTIVE"},
		// Doubling, the default, would take memory that the states need.
		{"arena_extend_strategy", "kSameAsRequested"},
		// FP32 that is computed with the mantissa of FP16 is not what fp32 asks for.
		{"use_tf32", flag(o.GPU.FP16)},
	}
	if o.GPU.MemoryLimit > 0 {
		options = append(options, option{"gpu_mem_limit", strconv.FormatInt(o.GPU.MemoryLimit, 10)})
	}
	// With TensorRT in front it is TensorRT that captures graphs.
	return append(options, option{"enable_cuda_graph", flag(o.GPU.CUDAGraph && o.Provider == onnx.CUDA)})
}

// tensorRTOptions are those of the TensorRT execution provider.
func tensorRTOptions(o onnx.SessionOptions) []option {
	most := int64(workspace)
	if o.GPU.MemoryLimit > 0 {
		most = min(most, o.GPU.MemoryLimit)
	}
	options := []option{
		{"device_id", strconv.Itoa(o.Device)},
		{"has_user_compute_stream", "1"},
		{"trt_max_partition_iterations", strconv.Itoa(partitions)},
		{"trt_min_subgraph_size", "1"},
		{"trt_max_workspace_size", strconv.FormatInt(most, 10)},
		{"trt_fp16_enable", flag(o.GPU.FP16)},
		{"trt_cuda_graph_enable", flag(o.GPU.CUDAGraph)},
	}
	folder := o.GPU.CacheFolder
	options = append(options, option{"trt_engine_cache_enable", flag(folder != "")}, option{"trt_timing_cache_enable", flag(folder != "")})
	if folder != "" {
		options = append(options, option{"trt_engine_cache_path", folder}, option{"trt_timing_cache_path", folder})
	}
	return append(options, profile(o.GPU.Shapes)...)
}

// profile gives TensorRT the shapes of all inputs that have dynamic axes, so that
// one engine serves every batch. Each must be in all three lists, or in none.
func profile(inputs []onnx.InputShapes) []option {
	if len(inputs) == 0 {
		return nil
	}
	var least, usual, most []string
	for i := range inputs {
		in := &inputs[i]
		least = append(least, profileEntry(in.Name, in.Least))
		usual = append(usual, profileEntry(in.Name, in.Usual))
		most = append(most, profileEntry(in.Name, in.Most))
	}
	return []option{
		{"trt_profile_min_shapes", strings.Join(least, ",")},
		{"trt_profile_opt_shapes", strings.Join(usual, ",")},
		{"trt_profile_max_shapes", strings.Join(most, ",")},
	}
}

// profileEntry is "name:1x80".
func profileEntry(name string, shape tensor.Shape) string {
	extents := make([]string, len(shape))
	for i, d := range shape {
		extents[i] = strconv.FormatInt(d, 10)
	}
	return name + ":" + strings.Join(extents, "x")
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// runOptions are those of one run. A run returns when its work is in the stream,
// and not when it is done. graph is the number of the CUDA graph that the run
// belongs to; 0 is none.
func runOptions(captures bool, graph int) []option {
	options := []option{{"disable_synchronize_execution_providers", "1"}}
	switch {
	case captures && graph > 0:
		options = append(options, option{"gpu_graph_id", strconv.Itoa(graph)})
	case captures:
		options = append(options, option{"gpu_graph_id", "-1"}) // else it would be captured as number 0
	}
	return options
}
