package config

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// parameterRow is what is allowed for a parameter, and what it becomes.
type parameterRow struct {
	get      func(*Parameters) any
	fallback any
	values   map[string]any
	want     string // of the error
	bad      []string
}

func parameterTable() map[string]parameterRow {
	flags := func(get func(*Parameters) any, fallback bool) parameterRow {
		return parameterRow{get, fallback, map[string]any{"0": false, "1": true, "false": false, "true": true, " 1 ": true},
			"one of 0, 1, false, true", []string{"2", "yes", "1.0", "-1"}}
	}
	words := map[string]any{"NONE": LogNone, "INFO": LogInfo, "VERBOSE": LogVerbose}
	level := func(get func(*Parameters) any, fallback Verbosity) parameterRow {
		return parameterRow{get, fallback, words, "one of NONE, INFO, VERBOSE", []string{"info", "DEBUG", "0"}}
	}
	badThreads := []string{"-1", "1025", "two", "1.5"}
	return map[string]parameterRow{
		"onnx_file_name": {func(p *Parameters) any { return p.onnxFile }, "", map[string]any{"m.onnx": "m.onnx", "sub/m.onnx": "sub/m.onnx", " m.onnx ": "m.onnx"},
			"the name of a file", []string{"/etc/passwd", "../m.onnx", "a/../../m.onnx"}},
		"state_pairs": {func(p *Parameters) any { return len(p.Pairs) }, 0, map[string]any{"<<<A, B>>>": 1, "<<<A, B>>> <<<C, D>>>": 2},
			"want <<<input, output>>> for each state", []string{"A, B", "<<<A B>>>", "<<<A, B"}},
		"ort_ep":                  {func(p *Parameters) any { return p.GPUProvider }, "trt", map[string]any{"trt": "trt", "cuda": "cuda", "cpu": "cpu", "tensorrt": "tensorrt"}, "", nil},
		"compute_precision":       {func(p *Parameters) any { return p.FP16Compute }, true, map[string]any{"fp16": true, "fp32": false}, "one of fp16, fp32", []string{"FP16", "16", "int8"}},
		"store_states_as_fp16":    flags(func(p *Parameters) any { return p.HalfStates }, false),
		"enable_trt_caching":      flags(func(p *Parameters) any { return p.TRTCache }, false),
		"enable_cuda_graph":       flags(func(p *Parameters) any { return p.CUDAGraph }, false),
		"infer_end_requests":      flags(func(p *Parameters) any { return p.InferEnd }, true),
		"always_pad_to_max_batch": {func(p *Parameters) any { return p.Padding }, PadAuto, map[string]any{"0": PadAuto, "1": PadPreferred}, "one of 0, 1, false, true", []string{"max", "2"}},
		"batch_padding":           {func(p *Parameters) any { return p.Padding }, PadAuto, map[string]any{"auto": PadAuto, "none": PadNone, "preferred": PadPreferred, "max": PadMax}, "one of auto, none, preferred, max", []string{"exact", "1"}},
		"trt_cache_dir":           {func(p *Parameters) any { return p.TRTCacheDir }, "/tmp", map[string]any{"/var/cache": "/var/cache", "relative": "relative"}, "", nil},
		"error_inject_rate":       {func(*Parameters) any { return nil }, nil, map[string]any{"15": nil, "anything": nil}, "", nil},
		"metric_logging_frequency_seconds": {func(p *Parameters) any { return p.MetricsPeriod }, time.Duration(0), map[string]any{"0": time.Duration(0), "2": 2 * time.Second, "2147483647": math.MaxInt32 * time.Second, "-1": time.Duration(0)},
			"a whole number of seconds", []string{"2s", "1e3", "2147483648", "99999999999999999999"}},
		"logging_level":                  level(func(p *Parameters) any { return p.Log }, LogInfo),
		"batch_info_logging_level":       level(func(p *Parameters) any { return p.BatchInfo }, LogInfo),
		"detailed_metrics_logging_level": level(func(p *Parameters) any { return p.Details }, LogVerbose),
		"max_candidate_sequence_use_ratio": {func(p *Parameters) any { return p.useRatio }, float32(0.9), map[string]any{"1": float32(1), "1.2": float32(1.2), ".5": float32(.5), "1e-1": float32(.1)},
			"a number above 0, such as 0.9", []string{"0", "-0.9", "0.9abc", "nan", "inf", "1e99", "ninety"}},
		"intra_op_threads":          {func(p *Parameters) any { return p.Session.IntraOpThreads }, 1, map[string]any{"0": 0, "1": 1, "1024": 1024}, "a whole number from 0 to 1024", badThreads},
		"inter_op_threads":          {func(p *Parameters) any { return p.Session.InterOpThreads }, 1, map[string]any{"0": 0, "1": 1, "1024": 1024}, "a whole number from 0 to 1024", badThreads},
		"intra_op_thread_count":     {func(p *Parameters) any { return p.Session.IntraOpThreads }, 1, map[string]any{"0": 0, "1": 1, "1024": 1024}, "a whole number from 0 to 1024", badThreads},
		"inter_op_thread_count":     {func(p *Parameters) any { return p.Session.InterOpThreads }, 1, map[string]any{"0": 0, "1": 1, "1024": 1024}, "a whole number from 0 to 1024", badThreads},
		"execution_mode":            {func(p *Parameters) any { return p.Session.Parallel }, false, map[string]any{"0": false, "1": true}, "one of 0, 1", []string{"2", "parallel"}},
		"enable_mem_arena":          flags(func(p *Parameters) any { return !p.Session.NoArena }, true),
		"enable_mem_pattern":        flags(func(p *Parameters) any { return !p.Session.NoPattern }, true),
		"cudnn_conv_algo_search":    {func(p *Parameters) any { return p.CUDA }, []onnx.Setting(nil), map[string]any{"2": []onnx.Setting{{Key: "cudnn_conv_algo_search", Value: "DEFAULT"}}}, "one of 0, 1, 2", []string{"EXHAUSTIVE", "3"}},
		"do_copy_in_default_stream": {func(p *Parameters) any { return p.CUDA }, []onnx.Setting(nil), map[string]any{"0": []onnx.Setting{{Key: "do_copy_in_default_stream", Value: "0"}}}, "one of 0, 1, false, true", []string{"2"}},
		"ort_ep_library":            {func(p *Parameters) any { return p.Session.Plugin }, (*onnx.Plugin)(nil), map[string]any{"/ep.so": &onnx.Plugin{Library: "/ep.so"}}, "", nil},
		"arena_extend_strategy":     {func(p *Parameters) any { return p.CUDA }, []onnx.Setting(nil), map[string]any{"0": []onnx.Setting{{Key: "arena_extend_strategy", Value: "kNextPowerOfTwo"}}}, "one of 0, 1", []string{"2"}},
		"graph_optimization":        {func(p *Parameters) any { return p.Session.Optimization }, "all", map[string]any{"disabled": "disabled", "basic": "basic", "extended": "extended", "all": "all"}, "one of disabled, basic, extended, all", []string{"99", "ALL"}},
		"when_full":                 {func(p *Parameters) any { return p.Full }, statebuffer.Reject, map[string]any{"reject": statebuffer.Reject, "evict_lru": statebuffer.EvictLRU}, "one of reject, evict_lru", []string{"evict", "LRU"}},
		"max_padded_length":         {func(p *Parameters) any { return p.MaxPaddedLength }, int64(0), map[string]any{"0": int64(0), "8192": int64(8192)}, "a whole number from 0", []string{"-1", "8k"}},
		"max_state_bytes":           {func(p *Parameters) any { return p.MaxStateBytes }, int64(64 << 20), map[string]any{"0": int64(0), "1000": int64(1000)}, "a whole number from 0", []string{"-1", "64M"}},
		"max_state_memory_bytes":    {func(p *Parameters) any { return p.MaxStateMemory }, int64(0), map[string]any{"0": int64(0), "1073741824": int64(1 << 30)}, "a whole number from 0", []string{"-1", "1G"}},
		"batch_axes":                assignmentRow(func(p *Parameters) []Assignment { return p.BatchAxes }),
		"initial_states":            assignmentRow(func(p *Parameters) []Assignment { return p.InitialStates }),
		"constant_inputs":           assignmentRow(func(p *Parameters) []Assignment { return p.Constants }),
		"derived_inputs":            assignmentRow(func(p *Parameters) []Assignment { return p.Derived }),
		// Three of the four without the first have no effect; see TestLazyParameters.
		"initial_buffer_size":      {func(p *Parameters) any { return p.Lazy != nil }, false, nil, "must be given with it", []string{"1", "-1", "x"}},
		"subsequent_buffer_size":   {func(p *Parameters) any { return p.Lazy != nil }, false, map[string]any{"100": false}, "a whole number", []string{"-1", "512abc"}},
		"buffer_alloc_threshold":   {func(p *Parameters) any { return p.Lazy != nil }, false, map[string]any{"100": false}, "a whole number", []string{"-1", "many"}},
		"buffer_dealloc_threshold": {func(p *Parameters) any { return p.Lazy != nil }, false, map[string]any{"100": false}, "a whole number", []string{"-1", "0x10"}},
	}
}

func assignmentRow(get func(*Parameters) []Assignment) parameterRow {
	return parameterRow{
		func(p *Parameters) any { return len(get(p)) }, 0,
		map[string]any{"a = 1": 1, "a=1;b = 2": 2, "a = 1\n b = 2;\n": 2, ";": 0}, "is not of the form NAME = VALUE", []string{"a", "a =", "= 1", "a = 1; b"},
	}
}

func TestParameters(t *testing.T) {
	for name, row := range parameterTable() {
		t.Run(name, func(t *testing.T) {
			p, warnings, err := ParseParameters(nil)
			require.NoError(t, err)
			require.Empty(t, warnings)
			require.Equal(t, row.fallback, row.get(p), "default")
			for _, blank := range []string{"", "  "} {
				p, _, err = ParseParameters(map[string]Value{name: {blank}})
				require.NoError(t, err)
				require.Equal(t, row.fallback, row.get(p), "%q counts as not given", blank)
			}
			for value, want := range row.values {
				p, _, err := ParseParameters(map[string]Value{name: {value}})
				require.NoError(t, err, "%q", value)
				require.Equal(t, want, row.get(p), "%q", value)
			}
			for _, value := range row.bad {
				_, _, err := ParseParameters(map[string]Value{name: {value}})
				require.ErrorContains(t, err, "parameter "+name, "%q", value)
				require.ErrorContains(t, err, row.want, "%q", value)
				require.Equal(t, status.InvalidArg, status.CodeOf(err))
			}
		})
	}
}

// TestAllFaultsAtOnce: one load shows everything that is wrong.
func TestAllFaultsAtOnce(t *testing.T) {
	_, _, err := ParseParameters(map[string]Value{
		"compute_precision": {"gpu"}, "state_pairs": {"<<<A"}, "logging_level": {"loud"}, "max_candidate_sequence_use_ratio": {"?"},
		"initial_buffer_size": {"512"}, "buffer_alloc_threshold": {"-3"}, "batch_axes": {"?"},
	})
	for _, want := range []string{
		"parameter compute_precision is \"gpu\"", "parameter state_pairs: at character 1", "parameter logging_level is \"loud\"",
		"parameter max_candidate_sequence_use_ratio is \"?\"", "parameter buffer_alloc_threshold is \"-3\"", "parameter batch_axes: \"?\"",
		"parameter initial_buffer_size is given",
	} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 7)
}

// TestProviders: an instance on a GPU must know the word; on the CPU it can be any.
func TestProviders(t *testing.T) {
	for word, want := range map[string]onnx.Provider{"": onnx.TensorRT, "trt": onnx.TensorRT, "cuda": onnx.CUDA, "cpu": onnx.CPU, "TensorRT": onnx.CPU} {
		p, _, err := ParseParameters(map[string]Value{"ort_ep": {word}})
		require.NoError(t, err)
		got, err := p.Provider("cpu")
		require.NoError(t, err)
		require.Equal(t, onnx.CPU, got)
		if got, err = p.Provider("gpu"); want == onnx.CPU {
			require.ErrorContains(t, err, `parameter ort_ep is "`+word+`": want one of trt, cuda`)
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// TestInterOpThreads: operators run one after the other, and a value that wants it
// otherwise gets a warning.
func TestInterOpThreads(t *testing.T) {
	_, warnings, err := ParseParameters(map[string]Value{"inter_op_threads": {"4"}})
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "inter_op_threads has no effect")
	_, warnings, err = ParseParameters(map[string]Value{"inter_op_threads": {"1"}})
	require.NoError(t, err)
	require.Empty(t, warnings)
}

func TestUnknownParameters(t *testing.T) {
	tests := []struct{ name, near string }{
		{"inital_buffer_size", "initial_buffer_size"}, {"infer_end_request", "infer_end_requests"}, {"ort-ep", "ort_ep"},
		{"always_pad_to_max_batch_size", "always_pad_to_max_batch"}, {"LOGGING_LEVEL", "logging_level"}, {"color", ""}, {"x", ""},
		{"enable_memory_arena_shrinkage", "memory.enable_memory_arena_shrinkage"}, {"disable_prepacking", "session.disable_prepacking"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, warnings, err := ParseParameters(map[string]Value{tt.name: {"anything"}})
			require.NoError(t, err, "it is ignored, as by NVIDIA's backend")
			require.NotNil(t, p)
			want := `parameter "` + tt.name + `" is unknown and has no effect`
			if tt.near != "" {
				want += `; did you mean "` + tt.near + `"?`
			}
			require.Equal(t, []string{want}, warnings)
		})
	}
}

func TestLazyParameters(t *testing.T) {
	given := func(values ...string) map[string]Value {
		m := map[string]Value{}
		for i, v := range values {
			m[LazyNames[i]] = Value{v}
		}
		return m
	}
	p, warnings, err := ParseParameters(given("512", "100", "32", "200"))
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, &statebuffer.LazyBuffers{Initial: 512, Subsequent: 100, AllocThreshold: 32, DeallocThreshold: 200}, p.Lazy)

	for missing := 1; missing < 4; missing++ {
		values := []string{"512", "100", "32", "200"}
		values[missing] = ""
		_, _, err = ParseParameters(given(values...))
		require.ErrorContains(t, err, "parameter initial_buffer_size is given: "+LazyNames[missing]+" must be given with it")
	}
	p, warnings, err = ParseParameters(given("", "100", "32", "200"))
	require.NoError(t, err)
	require.Nil(t, p.Lazy)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "parameter initial_buffer_size is not given")
	for i := range 4 {
		values := []string{"512", "100", "32", "200"}
		values[i] = "512abc"
		_, _, err = ParseParameters(given(values...))
		require.ErrorContains(t, err, "parameter "+LazyNames[i]+` is "512abc": want a whole number`)
	}
}

// TestBatchPaddingOverrules: the parameter that says what it means wins.
func TestBatchPaddingOverrules(t *testing.T) {
	for padding, want := range map[string]Padding{"none": PadNone, "preferred": PadPreferred, "max": PadMax} {
		p, _, err := ParseParameters(map[string]Value{"always_pad_to_max_batch": {"1"}, "batch_padding": {padding}})
		require.NoError(t, err)
		require.Equal(t, want, p.Padding)
		require.Equal(t, padding, p.Padding.String())
	}
}

func TestModelFile(t *testing.T) {
	tests := []struct{ parameter, field, want, fault string }{
		{"", "", "model.onnx", ""}, {"a.onnx", "", "a.onnx", ""}, {"", "b.onnx", "b.onnx", ""}, {"a.onnx", "./a.onnx", "a.onnx", ""},
		{"a.onnx", "b.onnx", "", `parameter onnx_file_name = "a.onnx" and default_model_filename: "b.onnx" say different things of the same: remove one of them`},
		{"a.onnx", "model.stateful", "a.onnx", ""}, // the server has filled it in
		{"", "../b.onnx", "", `default_model_filename is "../b.onnx": want the name of a file inside the model's version folder`},
	}
	for _, tt := range tests {
		p := &Parameters{onnxFile: tt.parameter}
		name, err := p.ModelFile(&Config{DefaultModelFilename: tt.field})
		require.Equal(t, tt.want, name)
		if tt.fault != "" {
			require.EqualError(t, err, tt.fault)
			continue
		}
		require.NoError(t, err)
	}
}

func TestEdits(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"same", "same", 0}, {"ab", "ba", 2}} {
		require.Equal(t, tt.want, edits(tt.a, tt.b), "%q %q", tt.a, tt.b)
	}
}
