package ortrunner

import (
	"strconv"
	"strings"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// option is a setting of an execution provider, by ONNX Runtime's name for it.
type option = onnx.Setting

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
		{Key: "device_id", Value: strconv.Itoa(o.Device)},
		{Key: "has_user_compute_stream", Value: "1"},
		{Key: "do_copy_in_default_stream", Value: "1"}, // that is, in the stream of the run
		{Key: "cudnn_conv_algo_search", Value: "EXHAUSTIVE"},
		// Doubling, the default, would take memory that the states need.
		{Key: "arena_extend_strategy", Value: "kSameAsRequested"},
		// FP32 that is computed with the mantissa of FP16 is not what fp32 asks for.
		{Key: "use_tf32", Value: flag(o.GPU.FP16)},
	}
	if o.GPU.MemoryLimit > 0 {
		options = append(options, option{Key: "gpu_mem_limit", Value: strconv.FormatInt(o.GPU.MemoryLimit, 10)})
	}
	// With TensorRT in front it is TensorRT that captures graphs.
	options = append(options, option{Key: "enable_cuda_graph", Value: flag(o.GPU.CUDAGraph && o.Provider == onnx.CUDA)})
	return onnx.Override(options, o.GPU.CUDA)
}

// tensorRTOptions are those of the TensorRT execution provider.
func tensorRTOptions(o onnx.SessionOptions) []option {
	most := int64(workspace)
	if o.GPU.MemoryLimit > 0 {
		most = min(most, o.GPU.MemoryLimit)
	}
	options := []option{
		{Key: "device_id", Value: strconv.Itoa(o.Device)},
		{Key: "has_user_compute_stream", Value: "1"},
		{Key: "trt_max_partition_iterations", Value: strconv.Itoa(partitions)},
		{Key: "trt_min_subgraph_size", Value: "1"},
		{Key: "trt_max_workspace_size", Value: strconv.FormatInt(most, 10)},
		{Key: "trt_fp16_enable", Value: flag(o.GPU.FP16)},
		{Key: "trt_cuda_graph_enable", Value: flag(o.GPU.CUDAGraph)},
	}
	folder := o.GPU.CacheFolder
	options = append(options, option{Key: "trt_engine_cache_enable", Value: flag(folder != "")}, option{Key: "trt_timing_cache_enable", Value: flag(folder != "")})
	if folder != "" {
		options = append(options, option{Key: "trt_engine_cache_path", Value: folder}, option{Key: "trt_timing_cache_path", Value: folder})
	}
	return onnx.Override(append(options, profile(o.GPU.Shapes)...), o.GPU.TensorRT)
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
		{Key: "trt_profile_min_shapes", Value: strings.Join(least, ",")},
		{Key: "trt_profile_opt_shapes", Value: strings.Join(usual, ",")},
		{Key: "trt_profile_max_shapes", Value: strings.Join(most, ",")},
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
// belongs to; 0 is none. more are those that the model's configuration passes on.
func runOptions(captures bool, graph int, more []option) []option {
	options := []option{{Key: "disable_synchronize_execution_providers", Value: "1"}}
	switch {
	case captures && graph > 0:
		options = append(options, option{Key: "gpu_graph_id", Value: strconv.Itoa(graph)})
	case captures:
		options = append(options, option{Key: "gpu_graph_id", Value: "-1"}) // else it would be captured as number 0
	}
	return append(options, more...)
}
