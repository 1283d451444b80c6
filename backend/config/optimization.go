package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// optimization is the field optimization of a model configuration, as far as Triton's
// onnxruntime backend reads it.
type optimization struct {
	Graph *Graph `json:"graph"` // nil: not given
	CUDA  struct {
		Graphs bool `json:"graphs"`
	} `json:"cuda"`
	Accelerators struct {
		GPU []accelerator `json:"gpu_execution_accelerator"`
		CPU []accelerator `json:"cpu_execution_accelerator"`
	} `json:"execution_accelerators"`
}

// Graph is optimization.graph.
type Graph struct {
	Level int `json:"level"`
}

// accelerator is one of optimization.execution_accelerators.
type accelerator struct {
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters"`
}

// graphLevels is what Triton's onnxruntime backend makes of optimization.graph.level; any
// other number is all.
var graphLevels = map[int]string{-1: "basic", 1: "extended", 2: "disabled"}

// AddOptimization takes over what the field optimization says, which has the meaning that it
// has for Triton's onnxruntime backend. The error reports all faults: what there is no
// execution provider for, and what contradicts a parameter.
func (p *Parameters) AddOptimization(c *Config) error {
	r := &optimizationReader{p: p, parameters: c.Parameters}
	if graph := c.Optimization.Graph; graph != nil {
		r.graphLevel(graph.Level)
	}
	for i := range c.Optimization.Accelerators.GPU {
		a := &c.Optimization.Accelerators.GPU[i]
		switch a.Name {
		case "tensorrt":
			r.tensorRT(a)
		case "cuda":
			r.cuda(a)
		default:
			r.fault("gpu_execution_accelerator %q is no execution provider of this backend: want tensorrt or cuda, or remove it", a.Name)
		}
	}
	for i := range c.Optimization.Accelerators.CPU {
		r.onCPU(c.Optimization.Accelerators.CPU[i].Name)
	}
	return errors.Join(r.faults...)
}

// optimizationReader collects what is wrong with the field optimization.
type optimizationReader struct {
	p          *Parameters
	parameters map[string]Value
	faults     []error
}

func (r *optimizationReader) fault(format string, args ...any) {
	r.faults = append(r.faults, status.Errorf(status.InvalidArg, "optimization: "+format, args...))
}

// contradicts reports whether a parameter was given; if so, with what else than it says.
func (r *optimizationReader) contradicts(parameter string, same bool, field, value string) bool {
	given := strings.TrimSpace(r.parameters[parameter].String)
	if given == "" || !r.p.Understood(parameter) {
		return false
	}
	if !same {
		r.fault("%s is %s and the parameter %s is %q: they contradict each other: remove one of them", field, value, parameter, given)
	}
	return !same
}

func (r *optimizationReader) graphLevel(level int) {
	word, known := graphLevels[level]
	if !known {
		word = "all"
	}
	o := &r.p.Session.Optimization
	if !r.contradicts("graph_optimization", *o == word, "graph.level", fmt.Sprintf("%d (%s)", level, word)) {
		*o = word
		r.p.Settings["graph_optimization"] = word
	}
}

// provider notes which execution provider is asked for. CUDA follows TensorRT in any case.
func (r *optimizationReader) provider(word string) {
	given := strings.TrimSpace(r.parameters["ort_ep"].String)
	switch {
	case given == "":
		if !r.accelerated("tensorrt") {
			r.p.GPUProvider = word
			r.p.Settings["ort_ep"] = word
		}
	case given == "cuda" && word == "trt":
		r.fault(`gpu_execution_accelerator "tensorrt" and the parameter ort_ep = "cuda" contradict each other: remove one of them`)
	}
}

func (r *optimizationReader) accelerated(name string) bool {
	return slices.Contains(r.p.Accelerators, name)
}

// renamed are the names of Triton's onnxruntime backend for options of TensorRT.
var renamed = map[string]string{
	"int8_calibration_table_name":       "trt_int8_calibration_table_name",
	"int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
	"max_workspace_size_bytes":          "trt_max_workspace_size",
}

// precisions are the words of precision_mode, and the option that switches each on; TensorRT
// computes in FP32 without one. FP16 has a parameter of its own.
var precisions = map[string]string{"FP32": "", "FP16": "", "BF16": "trt_bf16_enable", "INT8": "trt_int8_enable"}

// tensorRT reads the accelerator tensorrt. FP32 is its precision unless it says otherwise.
func (r *optimizationReader) tensorRT(a *accelerator) {
	r.provider("trt")
	r.p.Accelerators = append(r.p.Accelerators, a.Name)
	precision := "FP32"
	given := a.Parameters["precision_mode"]
	if given != "" {
		precision = given
	}
	option, known := precisions[precision]
	if !known {
		r.fault("tensorrt: precision_mode is %q: want one of FP32, FP16, BF16, INT8", precision)
	}
	if precisionGiven := strings.TrimSpace(r.parameters["compute_precision"].String) != ""; !precisionGiven {
		r.p.FP16Compute = precision == "FP16"
		r.p.Settings["compute_precision"] = map[bool]string{false: "fp32", true: "fp16"}[r.p.FP16Compute]
	} else if given != "" {
		r.contradicts("compute_precision", r.p.FP16Compute == (precision == "FP16"), "tensorrt: precision_mode", precision)
	}
	if option != "" {
		r.p.TensorRT = append(r.p.TensorRT, onnx.Setting{Key: option, Value: "1"})
	}
	for _, name := range slices.Sorted(maps.Keys(a.Parameters)) {
		key := name
		if to, is := renamed[name]; is {
			key = to
		}
		value := a.Parameters[name]
		switch {
		case name == "precision_mode":
		case key == "trt_cuda_graph_enable":
			r.cudaGraph(a.Name, key, value)
		default:
			r.add(&r.p.TensorRT, onnx.TensorRTKeys, a.Name, name, key, value)
		}
	}
	r.sameAsParameter(r.p.TensorRT, "trt_engine_cache_enable", "enable_trt_caching", func(value string) bool { return r.p.TRTCache == (value == "1") })
	r.sameAsParameter(r.p.TensorRT, "trt_engine_cache_path", "trt_cache_dir", func(value string) bool { return r.p.TRTCacheDir == value })
}

// cuda reads the accelerator cuda, which has ONNX Runtime's own names.
func (r *optimizationReader) cuda(a *accelerator) {
	r.provider("cuda")
	r.p.Accelerators = append(r.p.Accelerators, a.Name)
	for _, name := range slices.Sorted(maps.Keys(a.Parameters)) {
		value := a.Parameters[name]
		if name == "enable_cuda_graph" {
			r.cudaGraph(a.Name, name, value)
			continue
		}
		if at := slices.IndexFunc(r.p.CUDA, func(s onnx.Setting) bool { return s.Key == name }); at >= 0 && r.p.CUDA[at].Value != value {
			r.fault("cuda: %s is %q and the parameter of that name comes to %q: remove one of them", name, value, r.p.CUDA[at].Value)
			continue
		}
		r.add(&r.p.CUDA, onnx.CUDAKeys, a.Name, name, name, value)
	}
	r.sameAsParameter(r.p.CUDA, "gpu_mem_limit", "gpu_mem_limit", func(value string) bool { return value == strings.TrimSpace(r.parameters["gpu_mem_limit"].String) })
}

// add checks an option and adds it.
func (r *optimizationReader) add(to *[]onnx.Setting, keys map[string]onnx.Kind, accelerator, name, key, value string) {
	kind, known := keys[key]
	if !known {
		remedy := "the backend sets it, or ONNX Runtime does not have it: remove it"
		if near := nearest(name, slices.Sorted(maps.Keys(keys))); near != "" {
			remedy = fmt.Sprintf("did you mean %q?", near)
		}
		r.fault("%s has no parameter %q that can be set: %s", accelerator, name, remedy)
		return
	}
	checked, err := kind.Check(strings.TrimSpace(value))
	if err != nil {
		r.fault("%s: %s is %q: %w", accelerator, name, value, err)
		return
	}
	*to = onnx.Override(*to, []onnx.Setting{{Key: key, Value: checked}})
}

// cudaGraph reads the option that captures CUDA graphs, which is the backend's work here.
func (r *optimizationReader) cudaGraph(accelerator, name, value string) {
	checked, err := onnx.Bool.Check(strings.TrimSpace(value))
	if err != nil {
		r.fault("%s: %s is %q: %w", accelerator, name, value, err)
		return
	}
	if !r.contradicts("enable_cuda_graph", r.p.CUDAGraph == (checked == "1"), accelerator+": "+name, checked) {
		r.p.CUDAGraph = checked == "1"
		r.p.Settings["enable_cuda_graph"] = checked
	}
}

// sameAsParameter makes sure that an option that a parameter is for, too, has its value.
func (r *optimizationReader) sameAsParameter(options []onnx.Setting, key, parameter string, same func(value string) bool) {
	for _, s := range options {
		if s.Key == key {
			r.contradicts(parameter, same(s.Value), key, s.Value)
		}
	}
}

// onCPU reads an accelerator of the CPU.
func (r *optimizationReader) onCPU(name string) {
	switch {
	case name == "openvino" && r.p.Session.Plugin != nil:
		if plugin := r.p.Session.Plugin; plugin.Name == "" {
			plugin.Name = "OpenVINOExecutionProvider"
		}
	case name == "openvino":
		r.fault("cpu_execution_accelerator %q: the ONNX Runtime of this backend has no OpenVINO in it: remove it to compute with ONNX Runtime's own kernels, or name OpenVINO's plugin library in the parameter ort_ep_library", name)
	default:
		r.fault("cpu_execution_accelerator %q is no execution provider of this backend: remove it", name)
	}
}
