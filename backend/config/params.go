package config

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"time"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// Parameters are the backend's own settings, from the parameters block of the
// model configuration. docs/parameters.md describes each.
type Parameters struct {
	onnxFile string // empty: that of the configuration
	Pairs    []Pair
	// PairsGiven: state_pairs was there and not empty.
	PairsGiven bool

	GPUProvider   string // the word of ort_ep, which an instance on a GPU must know
	FP16Compute   bool
	TRTCache      bool
	TRTCacheDir   string
	CUDAGraph     bool
	GPUMemory     int64 // what ONNX Runtime may take of a GPU, in bytes; 0 is no bound
	HalfStates    bool
	useRatio      float32
	ratioGiven    bool
	Lazy          *statebuffer.LazyBuffers
	Padding       Padding
	InferEnd      bool
	MetricsPeriod time.Duration
	Log           Verbosity
	BatchInfo     Verbosity
	Details       Verbosity
	LogGiven      bool // logging_level or batch_info_logging_level was given
	// faulty names the parameters that could not be understood and have their
	// defaults instead.
	faulty map[string]bool
	// Settings is the text of each parameter that is given or has a default, by its name.
	Settings map[string]string
	// Misspelt is about unknown parameters whose names are close to known ones: if the
	// model does not load, this may be why.
	Misspelt []string

	// Session is how the model is to be loaded, but for its file, its device and
	// libraries of operators.
	Session onnx.SessionOptions
	// CUDA and TensorRT are options of these execution providers by ONNX Runtime's names.
	CUDA, TensorRT []onnx.Setting
	// Accelerators are the names in gpu_execution_accelerator.
	Accelerators []string
	ShareSession ShareSession
	Full         statebuffer.Policy

	Verify        Verify       // which batch axes are proved by runs
	BatchAxes     []Assignment // tensor = axis, or none
	InitialStates []Assignment // state input = value
	StateUpdates  []Assignment // state input = replace, append(AXIS) or keep
	Constants     []Assignment // input = value
	Derived       []Assignment // input = steps and the like
	MaxStateBytes int64        // of one sequence's value of a state that varies
	// MaxPaddedLength bounds the length up to which sequences of unequal length share a run;
	// 0 means up to where trials at load have shown that a mask hides padding.
	MaxPaddedLength int64
	// MaxStateMemory bounds the states of all sequences of an instance, in bytes;
	// 0 means no bound.
	MaxStateMemory int64
	Checkpoint     Checkpoint
	Free           Free
}

// Understood reports whether the parameters of these names were understood.
func (p *Parameters) Understood(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return p.faulty[name] })
}

// Clone is a copy whose assignments can be marked as used.
func (p *Parameters) Clone() *Parameters {
	clone := *p
	clone.BatchAxes, clone.InitialStates, clone.StateUpdates = slices.Clone(p.BatchAxes), slices.Clone(p.InitialStates), slices.Clone(p.StateUpdates)
	return &clone
}

// Padding is which batch sizes the model is run with.
type Padding uint8

// The paddings.
const (
	PadAuto      Padding = iota // what measures fastest: the requests there are, or batches of large states in parts
	PadNone                     // exactly the requests there are
	PadPreferred                // up to the next preferred_batch_size
	PadMax                      // always max_batch_size
)

// String is the word that the parameter batch_padding has for it.
func (p Padding) String() string { return [...]string{"auto", "none", "preferred", "max"}[p] }

// Verify is which batch axes are proved by runs before a model is served.
type Verify uint8

// The choices of the parameter verify.
const (
	VerifyInferred Verify = iota // where batch_axes does not state all of them
	VerifyAlways
	VerifyNever
)

// String is the word that the parameter verify has for it.
func (v Verify) String() string { return [...]string{"inferred", "always", "never"}[v] }

// ShareSession is whether the instances of a model on the CPU share one session of ONNX
// Runtime, and so the weights.
type ShareSession uint8

// The choices of the parameter share_session_between_instances.
const (
	ShareAuto ShareSession = iota // unless each instance has several threads, or operators of its own
	ShareNever
	ShareAlways
)

// Verbosity is a logging level as the parameters name them.
type Verbosity int8

// The verbosities, with the numbers of NVIDIA's backend.
const (
	LogNone    Verbosity = -1
	LogInfo    Verbosity = 0
	LogVerbose Verbosity = 3
)

// String is the word that the parameters have for it.
func (v Verbosity) String() string {
	return map[Verbosity]string{LogNone: "NONE", LogInfo: "INFO", LogVerbose: "VERBOSE"}[v]
}

// Defaults of parameters that are not plainly off or zero.
const (
	defaultONNXFile = "model.onnx"
	// serversFile is the default_model_filename that the server fills in if the backend is
	// known by nothing but the folder, NAME.stateful.
	serversFile     = "model.stateful"
	defaultUseRatio = 0.9
	defaultCacheDir = "/tmp"
	// defaultMaxStateBytes keeps one runaway sequence from taking the memory.
	defaultMaxStateBytes = 64 << 20
)

// LazyNames are the four parameters of lazy allocation; the first switches it on.
var LazyNames = [4]string{"initial_buffer_size", "subsequent_buffer_size", "buffer_alloc_threshold", "buffer_dealloc_threshold"}

// TensorParameters are the parameters that say what the model's tensors are for.
var TensorParameters = []string{"state_pairs", "batch_axes", "initial_states", "state_updates", "constant_inputs", "derived_inputs", "verify"}

// ParseParameters reads the parameters. The error reports all faults; what is
// returned with it has defaults for them, so that the rest can be checked too.
// Warnings say what was given but has no effect; unknown names are among them.
func ParseParameters(given map[string]Value) (p *Parameters, warnings []string, err error) {
	r := newParamReader(given)
	p = r.parameters()
	r.reportUnknown()
	p.faulty, p.Misspelt, p.Settings = r.faulty, r.misspelt, r.settings
	if len(r.faults) > 0 {
		return p, r.warnings, status.Errorf(status.InvalidArg, "%w", errors.Join(r.faults...))
	}
	return p, r.warnings, nil
}

// parameters reads each parameter that there is.
func (r *paramReader) parameters() *Parameters {
	p := &Parameters{
		onnxFile:      r.fileName("onnx_file_name", ""),
		GPUProvider:   r.text("ort_ep", "trt"),
		FP16Compute:   oneOf(r, "compute_precision", true, choice("fp16", true), choice("fp32", false)),
		TRTCache:      r.flag("enable_trt_caching", false),
		TRTCacheDir:   r.text("trt_cache_dir", defaultCacheDir),
		CUDAGraph:     r.flag("enable_cuda_graph", false),
		HalfStates:    r.flag("store_states_as_fp16", false),
		useRatio:      r.ratio("max_candidate_sequence_use_ratio", defaultUseRatio),
		InferEnd:      r.flag("infer_end_requests", true),
		MetricsPeriod: r.period("metric_logging_frequency_seconds"),
		Log:           r.verbosity("logging_level", LogInfo),
		BatchInfo:     r.verbosity("batch_info_logging_level", LogInfo),
		Details:       r.verbosity("detailed_metrics_logging_level", LogVerbose),
		Session:       r.session(),
		CUDA:          r.cuda(),
		ShareSession: oneOf(r, "share_session_between_instances", ShareAuto, choice("auto", ShareAuto),
			choice("0", ShareNever), choice("1", ShareAlways), choice("false", ShareNever), choice("true", ShareAlways)),
		Full: oneOf(r, "when_full", statebuffer.Reject,
			choice("reject", statebuffer.Reject), choice("evict_lru", statebuffer.EvictLRU)),
	}
	_, p.ratioGiven = r.value("max_candidate_sequence_use_ratio")
	p.Verify = oneOf(r, "verify", VerifyInferred,
		choice("inferred", VerifyInferred), choice("always", VerifyAlways), choice("never", VerifyNever))
	p.BatchAxes = r.assignments("batch_axes")
	p.InitialStates = r.assignments("initial_states")
	p.StateUpdates = r.assignments("state_updates")
	p.Constants = r.assignments("constant_inputs")
	p.Derived = r.assignments("derived_inputs")
	p.GPUMemory = r.gpuMemory()
	p.MaxPaddedLength = int64(r.count("max_padded_length", 0, math.MaxInt))
	p.MaxStateBytes = int64(r.count("max_state_bytes", defaultMaxStateBytes, math.MaxInt))
	p.MaxStateMemory = int64(r.count("max_state_memory_bytes", 0, math.MaxInt))
	_, log := r.value("logging_level")
	_, batchInfo := r.value("batch_info_logging_level")
	p.LogGiven = log || batchInfo
	p.Checkpoint = r.checkpoint()
	p.Free = r.free()
	p.Padding = r.padding()
	p.Lazy = r.lazy()
	r.pairs(p)
	r.text("error_inject_rate", "") // accepted: sample configurations of NVIDIA's backend carry it
	return p
}

// ModelFile returns the name of the ONNX file, a path inside the version's folder. It fails
// if onnx_file_name and default_model_filename say different things, or if the latter leads
// out of the folder.
func (p *Parameters) ModelFile(c *Config) (string, error) {
	name, field := p.onnxFile, c.DefaultModelFilename
	switch {
	case field != "" && !filepath.IsLocal(field):
		return "", status.Errorf(status.InvalidArg, "default_model_filename is %q: want the name of a file inside the model's version folder", field)
	case name != "" && field != "" && field != serversFile && filepath.Clean(name) != filepath.Clean(field):
		return "", status.Errorf(status.InvalidArg, "parameter onnx_file_name = %q and default_model_filename: %q say different things of the same: remove one of them", name, field)
	case name != "":
		return name, nil
	case field != "":
		return field, nil
	default:
		return defaultONNXFile, nil
	}
}

// gpuProviders are the words of ort_ep for an instance on a GPU.
var gpuProviders = map[string]onnx.Provider{"trt": onnx.TensorRT, "cuda": onnx.CUDA}

// NamesGPUProvider reports whether ort_ep is a word for an instance on a GPU.
func (p *Parameters) NamesGPUProvider() bool {
	_, known := gpuProviders[p.GPUProvider]
	return known
}

// Provider is where an instance of this kind runs. On the CPU, as with NVIDIA's
// backend, ort_ep can be any word.
func (p *Parameters) Provider(kind string) (onnx.Provider, error) {
	switch kind {
	case "cpu":
		return onnx.CPU, nil
	case "gpu":
		provider, known := gpuProviders[p.GPUProvider]
		if !known {
			return onnx.CPU, status.Errorf(status.InvalidArg, "parameter ort_ep is %q: want one of trt, cuda for an instance on a GPU, or instance_group [{ kind: KIND_CPU }]", p.GPUProvider)
		}
		return provider, nil
	default:
		return onnx.CPU, status.Errorf(status.InvalidArg, "the instance's kind is %s: want instance_group [{ kind: KIND_CPU }] or KIND_GPU", kind)
	}
}

// SlotRatio is max_candidate_sequence_use_ratio. Unless it is given, the strategy
// direct gets all its slots, and so does oldest without max_candidate_sequences:
// their sequences are never more than lanes. So does a configuration that lists its states
// as Triton manages them, which rejects no sequence either; NVIDIA's backend, whose default
// it is otherwise, has state_pairs. And so does one whose slots would be fewer than a batch has
// lanes, which NVIDIA's backend does not load: no sequence of a batch is to lack a slot. With
// chunks of slots, what that backend refuses is refused.
func (p *Parameters) SlotRatio(c *Config) float32 {
	if p.ratioGiven {
		return p.useRatio
	}
	if c.Sequence == nil || c.Sequence.Oldest == nil || c.Sequence.Oldest.MaxCandidateSequences == 0 || len(c.Sequence.States) > 0 && !p.PairsGiven {
		return 1
	}
	if p.Lazy == nil && int(float32(c.Candidates())*p.useRatio) < max(c.MaxBatchSize, 1) {
		return 1
	}
	return p.useRatio
}

// Conversion is how states of a type are stored: only FP32 is ever narrowed.
func (p *Parameters) Conversion(dtype tensor.DType) statebuffer.Conversion {
	if p.HalfStates && dtype == tensor.FP32 {
		return statebuffer.Half
	}
	return statebuffer.Same
}
