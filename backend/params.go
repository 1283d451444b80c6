package backend

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// Parameters are the backend's own settings, from the parameters block of the
// model configuration. docs/parameters.md describes each.
type Parameters struct {
	ONNXFile string // empty: the default
	Pairs    []Pair
	// PairsGiven: state_pairs was there and not empty.
	PairsGiven bool

	Provider      Provider // on a GPU
	FP16Compute   bool
	TRTCache      bool
	TRTCacheDir   string
	CUDAGraph     bool
	HalfStates    bool
	UseRatio      float32
	RatioGiven    bool
	Lazy          *statebuffer.LazyBuffers
	Padding       Padding
	InferEnd      bool
	MetricsPeriod time.Duration
	Log           Verbosity
	BatchInfo     Verbosity
	Details       Verbosity
	LogGiven      bool // logging_level or batch_info_logging_level was given

	IntraOpThreads int
	InterOpThreads int
	Optimization   string
	Full           statebuffer.Policy

	BatchAxes     []assignment // tensor = axis, or none
	InitialStates []assignment // state input = value
	Constants     []assignment // input = value
	Derived       []assignment // input = steps and the like
	MaxStateBytes int64        // of one sequence's value of a state that varies
}

// clone is a copy whose assignments can be marked as used.
func (p *Parameters) clone() *Parameters {
	c := *p
	c.BatchAxes, c.InitialStates = slices.Clone(p.BatchAxes), slices.Clone(p.InitialStates)
	return &c
}

// Padding is which batch sizes the model is run with.
type Padding uint8

// The paddings.
const (
	PadNone      Padding = iota // exactly the requests there are
	PadPreferred                // up to the next preferred_batch_size
	PadMax                      // always max_batch_size
)

// String is the word that the parameter batch_padding has for it.
func (p Padding) String() string { return [...]string{"none", "preferred", "max"}[p] }

// Verbosity is a logging level as the parameters name them.
type Verbosity int8

// The verbosities, with the numbers of NVIDIA's backend.
const (
	LogNone    Verbosity = -1
	LogInfo    Verbosity = 0
	LogVerbose Verbosity = 3
)

// Defaults of parameters that are not plainly off or zero.
const (
	defaultONNXFile = "model.onnx"
	defaultUseRatio = 0.9
	defaultCacheDir = "/tmp"
	// defaultMaxStateBytes keeps one runaway sequence from taking the memory.
	defaultMaxStateBytes = 64 << 20
)

// lazyNames are the four parameters of lazy allocation; the first switches it on.
var lazyNames = [4]string{"initial_buffer_size", "subsequent_buffer_size", "buffer_alloc_threshold", "buffer_dealloc_threshold"}

// gpuParameters have no effect on an instance that runs on the CPU.
var gpuParameters = []string{"ort_ep", "compute_precision", "enable_trt_caching", "trt_cache_dir", "enable_cuda_graph"}

// ParseParameters reads the parameters. All faults are reported in one error.
// Warnings say what was given but has no effect; unknown names are among them.
func ParseParameters(given map[string]Value) (p *Parameters, warnings []string, err error) {
	r := &paramReader{given: given, known: map[string]bool{}}
	p = &Parameters{
		ONNXFile:       r.fileName("onnx_file_name", ""),
		Provider:       oneOf(r, "ort_ep", TensorRT, choice("trt", TensorRT), choice("cuda", CUDA)),
		FP16Compute:    oneOf(r, "compute_precision", true, choice("fp16", true), choice("fp32", false)),
		TRTCache:       r.flag("enable_trt_caching", false),
		TRTCacheDir:    r.text("trt_cache_dir", defaultCacheDir),
		CUDAGraph:      r.flag("enable_cuda_graph", false),
		HalfStates:     r.flag("store_states_as_fp16", false),
		UseRatio:       r.ratio("max_candidate_sequence_use_ratio", defaultUseRatio),
		InferEnd:       r.flag("infer_end_requests", true),
		MetricsPeriod:  time.Duration(r.count("metric_logging_frequency_seconds", 0, math.MaxInt32)) * time.Second,
		Log:            r.verbosity("logging_level", LogInfo),
		BatchInfo:      r.verbosity("batch_info_logging_level", LogInfo),
		Details:        r.verbosity("detailed_metrics_logging_level", LogVerbose),
		IntraOpThreads: r.count("intra_op_threads", 1, 1024),
		InterOpThreads: r.count("inter_op_threads", 1, 1024),
		Optimization: oneOf(r, "graph_optimization", "all",
			choice("disabled", "disabled"), choice("basic", "basic"), choice("extended", "extended"), choice("all", "all")),
		Full: oneOf(r, "when_full", statebuffer.Reject,
			choice("reject", statebuffer.Reject), choice("evict_lru", statebuffer.EvictLRU)),
	}
	_, p.RatioGiven = r.value("max_candidate_sequence_use_ratio")
	p.BatchAxes = r.assignments("batch_axes")
	p.InitialStates = r.assignments("initial_states")
	p.Constants = r.assignments("constant_inputs")
	p.Derived = r.assignments("derived_inputs")
	p.MaxStateBytes = int64(r.count("max_state_bytes", defaultMaxStateBytes, math.MaxInt))
	_, log := r.value("logging_level")
	_, batchInfo := r.value("batch_info_logging_level")
	p.LogGiven = log || batchInfo
	p.Padding = r.padding()
	p.Lazy = r.lazy()
	r.pairs(p)
	r.text("error_inject_rate", "") // accepted: sample configurations of NVIDIA's backend carry it
	r.reportUnknown()
	if len(r.faults) > 0 {
		return nil, r.warnings, Errorf(InvalidArg, "%w", errors.Join(r.faults...))
	}
	return p, r.warnings, nil
}

// paramReader collects what is wrong while parameters are read one by one.
type paramReader struct {
	given    map[string]Value
	known    map[string]bool
	faults   []error
	warnings []string
}

// value is the text of a parameter without surrounding blanks. An empty text
// counts as not given, as it does for NVIDIA's backend.
func (r *paramReader) value(name string) (string, bool) {
	r.known[name] = true
	text := strings.TrimSpace(r.given[name].String)
	return text, text != ""
}

func (r *paramReader) fault(name, value, want string) {
	r.faults = append(r.faults, fmt.Errorf("parameter %s is %q: want %s", name, value, want))
}

func (r *paramReader) text(name, fallback string) string {
	if text, ok := r.value(name); ok {
		return text
	}
	return fallback
}

func (r *paramReader) flag(name string, fallback bool) bool {
	return oneOf(r, name, fallback, choice("0", false), choice("1", true), choice("false", false), choice("true", true))
}

func (r *paramReader) verbosity(name string, fallback Verbosity) Verbosity {
	return oneOf(r, name, fallback, choice("NONE", LogNone), choice("INFO", LogInfo), choice("VERBOSE", LogVerbose))
}

func (r *paramReader) count(name string, fallback, most int) int {
	text, ok := r.value(name)
	if !ok {
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > int64(most) {
		r.fault(name, text, fmt.Sprintf("a whole number from 0 to %d", most))
		return fallback
	}
	return int(n)
}

func (r *paramReader) ratio(name string, fallback float32) float32 {
	text, ok := r.value(name)
	if !ok {
		return fallback
	}
	f, err := strconv.ParseFloat(text, 32)
	if err != nil || !(f > 0) || math.IsInf(f, 0) {
		r.fault(name, text, "a number above 0, such as 0.9")
		return fallback
	}
	return float32(f)
}

// fileName keeps the path inside the version's folder.
func (r *paramReader) fileName(name, fallback string) string {
	text, ok := r.value(name)
	if !ok {
		return fallback
	}
	if !filepath.IsLocal(text) {
		r.fault(name, text, "the name of a file inside the model's version folder")
	}
	return text
}

func (r *paramReader) padding() Padding {
	padding := PadNone
	if r.flag("always_pad_to_max_batch", false) {
		padding = PadPreferred // what NVIDIA's backend does, whatever the name says
	}
	return oneOf(r, "batch_padding", padding, choice("none", PadNone), choice("preferred", PadPreferred), choice("max", PadMax))
}

func (r *paramReader) lazy() *statebuffer.LazyBuffers {
	var numbers [4]int
	var missing []string
	given := 0
	for i, name := range lazyNames {
		if _, ok := r.value(name); !ok {
			missing = append(missing, name)
			continue
		}
		given++
		numbers[i] = r.count(name, 0, math.MaxInt32)
	}
	switch {
	case given == 0:
		return nil
	case slices.Contains(missing, lazyNames[0]):
		r.warnings = append(r.warnings, fmt.Sprintf("parameter %s is not given, so all slots are allocated at once and the other parameters of lazy allocation have no effect", lazyNames[0]))
		return nil
	case len(missing) > 0:
		r.faults = append(r.faults, fmt.Errorf("parameter %s is given: %s must be given with it", lazyNames[0], strings.Join(missing, " and ")))
		return nil
	}
	return &statebuffer.LazyBuffers{Initial: numbers[0], Subsequent: numbers[1], AllocThreshold: numbers[2], DeallocThreshold: numbers[3]}
}

func (r *paramReader) assignments(name string) []assignment {
	text, ok := r.value(name)
	if !ok {
		return nil
	}
	all, err := parseAssignments(text)
	if err != nil {
		r.faults = append(r.faults, fmt.Errorf("parameter %s: %w", name, err))
	}
	return all
}

func (r *paramReader) pairs(p *Parameters) {
	text, ok := r.value("state_pairs")
	if !ok {
		return
	}
	pairs, err := ParsePairs(text)
	switch {
	case err != nil:
		r.faults = append(r.faults, err)
	case len(pairs) == 0:
		r.fault("state_pairs", text, "<<<input, output>>> for each state")
	}
	p.Pairs, p.PairsGiven = pairs, true
}

func (r *paramReader) reportUnknown() {
	for _, name := range slices.Sorted(maps.Keys(r.given)) {
		if r.known[name] {
			continue
		}
		warning := fmt.Sprintf("parameter %q is unknown and has no effect", name)
		if near := nearest(name, slices.Sorted(maps.Keys(r.known))); near != "" {
			warning += fmt.Sprintf("; did you mean %q?", near)
		}
		r.warnings = append(r.warnings, warning)
	}
}

type option[T any] struct {
	word  string
	value T
}

func choice[T any](word string, value T) option[T] { return option[T]{word, value} }

// oneOf reads a parameter that is one of some words.
func oneOf[T any](r *paramReader, name string, fallback T, options ...option[T]) T {
	text, ok := r.value(name)
	if !ok {
		return fallback
	}
	words := make([]string, len(options))
	for i, o := range options {
		if o.word == text {
			return o.value
		}
		words[i] = o.word
	}
	r.fault(name, text, "one of "+strings.Join(words, ", "))
	return fallback
}

// nearest is the candidate that takes the fewest edits, or "" if none is close.
func nearest(name string, candidates []string) string {
	best, distance := "", 1+len(name)/3
	for _, c := range candidates {
		if d := edits(name, c); d <= distance && (best == "" || d < distance) {
			best, distance = c, d
		}
	}
	return best
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// file is the name of the ONNX file in the version's folder.
func (p *Parameters) file(c *Config) string {
	switch {
	case p.ONNXFile != "":
		return p.ONNXFile
	case c.DefaultModelFilename != "":
		return c.DefaultModelFilename
	default:
		return defaultONNXFile
	}
}

// ratio is max_candidate_sequence_use_ratio. Unless it is given, the strategy
// direct gets all its slots: its sequences are never more than lanes.
func (p *Parameters) ratio(c *Config) float32 {
	if c.Sequence.Oldest == nil && !p.RatioGiven {
		return 1
	}
	return p.UseRatio
}

// conversion is how states of a type are stored: only FP32 is ever narrowed.
func (p *Parameters) conversion(dtype tensor.DType) statebuffer.Conversion {
	if p.HalfStates && dtype == tensor.FP32 {
		return statebuffer.Half
	}
	return statebuffer.Keep
}
