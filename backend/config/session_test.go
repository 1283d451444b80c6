package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// given is a parameters block.
func given(pairs ...string) map[string]Value {
	all := map[string]Value{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = Value{pairs[i+1]}
	}
	return all
}

// TestSession: a configuration of Triton's onnxruntime backend means the same here.
func TestSession(t *testing.T) {
	p, warnings, err := ParseParameters(given(
		"intra_op_thread_count", "4", "inter_op_thread_count", "2", "execution_mode", "1",
		"enable_mem_arena", "1", "enable_mem_pattern", "False",
		"memory.enable_memory_arena_shrinkage", "cpu:0;gpu:1",
		"session.use_device_allocator_for_initializers", "true", "session.dynamic_block_base", "4",
		"gpu_mem_limit", "18446744073709551615", // its way to say that there is no limit
	))
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Equal(t, onnx.SessionOptions{
		IntraOpThreads: 4, InterOpThreads: 2, Parallel: true, Optimization: "all", NoPattern: true,
		Session: []onnx.Setting{{Key: "session.dynamic_block_base", Value: "4"}, {Key: "session.use_device_allocator_for_initializers", Value: "1"}},
		Run:     []onnx.Setting{{Key: "memory.enable_memory_arena_shrinkage", Value: "cpu:0;gpu:1"}},
	}, p.Session)
	require.Zero(t, p.GPUMemory)
}

// TestInterOpThreadsAlone: threads that the execution mode leaves idle are worth a warning.
func TestInterOpThreadsAlone(t *testing.T) {
	for _, name := range []string{"inter_op_threads", "inter_op_thread_count"} {
		_, warnings, err := ParseParameters(given(name, "4"))
		require.NoError(t, err)
		require.Equal(t, []string{"parameter " + name + " has no effect: the operators of a model run one after the other, unless execution_mode is 1"}, warnings)
		_, warnings, err = ParseParameters(given(name, "0", "execution_mode", "0"))
		require.NoError(t, err)
		require.Empty(t, warnings, "samples of Triton's onnxruntime backend have these")
	}
}

// TestTwoNames: both names of a parameter can be given with one value, not with two.
func TestTwoNames(t *testing.T) {
	p, _, err := ParseParameters(given("intra_op_threads", "3", "intra_op_thread_count", "3"))
	require.NoError(t, err)
	require.Equal(t, 3, p.Session.IntraOpThreads)
	_, _, err = ParseParameters(given("intra_op_threads", "3", "intra_op_thread_count", "4", "inter_op_threads", "0", "inter_op_thread_count", "1"))
	require.ErrorContains(t, err, `parameters intra_op_threads = "3" and intra_op_thread_count = "4" say different things of the same: remove one of them`)
	require.ErrorContains(t, err, `parameters inter_op_threads = "0" and inter_op_thread_count = "1" say different things`)
	require.Equal(t, status.InvalidArg, status.CodeOf(err))
}

// TestRefusedSettings: one load reports every setting that ONNX Runtime would pass over in
// silence.
func TestRefusedSettings(t *testing.T) {
	_, _, err := ParseParameters(given(
		"session.disable_prepaking", "1",
		"session.intra_op_num_threads", "4",
		"optimization.level", "2",
		"ep.openvino.device", "CPU",
		"session.disable_prepacking", "yes",
		"session.dynamic_block_base", "four",
		"session.moe_expert_counter_alpha", "much",
		"session.set_denormal_as_zero", "1",
		"mlas.kleidiai.conv_igemm_max_work", "-1",
		"memory.enable_memory_arena_shrinkage", "cpu0",
	))
	for _, want := range []string{
		`parameter session.disable_prepaking is no setting of ONNX Runtime that can be passed on: did you mean "session.disable_prepacking"?`,
		"parameter session.intra_op_num_threads is no setting of ONNX Runtime that can be passed on: use the parameter intra_op_thread_count",
		"parameter optimization.level is no setting of ONNX Runtime that can be passed on: docs/parameters.md lists those that there are",
		"parameter ep.openvino.device is no setting",
		`parameter session.disable_prepacking is "yes": want one of 0, 1, false, true`,
		`parameter session.dynamic_block_base is "four": want a whole number`,
		`parameter session.moe_expert_counter_alpha is "much": want a number`,
		`parameter session.set_denormal_as_zero is no setting of ONNX Runtime that can be passed on: it would stay set for the thread`,
		`parameter mlas.kleidiai.conv_igemm_max_work is "-1": want a whole number that is 0 or more`,
		`parameter memory.enable_memory_arena_shrinkage is "cpu0": want DEVICE:NUMBER, separated by semicolons, such as cpu:0;gpu:0`,
	} {
		require.ErrorContains(t, err, want)
	}
}

// TestCanonicalNumbers: ONNX Runtime reads fewer texts as a number than Go does, and ends the
// process at some others.
func TestCanonicalNumbers(t *testing.T) {
	for text, want := range map[string]string{"+5": "5", "-0": "0", "007": "7"} {
		for _, name := range []string{"session.dynamic_block_base", "mlas.nchwc_pointwise_conv_max_input_channel_batch"} {
			p, _, err := ParseParameters(given(name, text))
			require.NoError(t, err)
			require.Equal(t, []onnx.Setting{{Key: name, Value: want}}, p.Session.Session)
		}
	}
}

// TestNothingIsLikeIt: a name that has words in common with another one is not meant for it.
func TestNothingIsLikeIt(t *testing.T) {
	_, _, err := ParseParameters(given("session.enable_profiling", "1"))
	require.EqualError(t, err, "parameter session.enable_profiling is no setting of ONNX Runtime that can be passed on: docs/parameters.md lists those that there are")
}

// TestShareSession: true and false are taken in either case, as those of flags are.
func TestShareSession(t *testing.T) {
	for text, want := range map[string]ShareSession{"True": ShareAlways, "TRUE": ShareAlways, "true": ShareAlways, "False": ShareNever, "FALSE": ShareNever} {
		p, warnings, err := ParseParameters(given("share_session_between_instances", text))
		require.NoError(t, err)
		require.Empty(t, warnings)
		require.Equal(t, want, p.ShareSession, text)
	}
	_, _, err := ParseParameters(given("share_session_between_instances", "Auto"))
	require.ErrorContains(t, err, "want one of auto, 0, 1, false, true")
}

// TestNoArenaToShrink: ONNX Runtime fails every run with these two, also those that prove the
// batch axes, so what is returned with the error has no list.
func TestNoArenaToShrink(t *testing.T) {
	p, _, err := ParseParameters(given("enable_mem_arena", "0", "memory.enable_memory_arena_shrinkage", "gpu:0;cpu:0"))
	require.ErrorContains(t, err, `parameter memory.enable_memory_arena_shrinkage is "gpu:0;cpu:0", and enable_mem_arena is 0: there is no arena on the CPU to shrink`)
	require.Empty(t, p.Session.Run)
	_, _, err = ParseParameters(given("enable_mem_arena", "0", "memory.enable_memory_arena_shrinkage", "gpu:0"))
	require.NoError(t, err)
}

// TestPlugin reads the parameters of an execution provider of its own.
func TestPlugin(t *testing.T) {
	p, _, err := ParseParameters(given("ort_ep_library", "libep.so", "ort_ep_name", "OpenVINOExecutionProvider", "ort_ep_options", "device_type = CPU; num_of_threads = 2"))
	require.NoError(t, err)
	require.Equal(t, &onnx.Plugin{Library: "libep.so", Name: "OpenVINOExecutionProvider", Options: []onnx.Setting{{Key: "device_type", Value: "CPU"}, {Key: "num_of_threads", Value: "2"}}}, p.Session.Plugin)
	_, _, err = ParseParameters(given("ort_ep_name", "OpenVINOExecutionProvider", "ort_ep_options", "a = 1"))
	require.ErrorContains(t, err, "parameter ort_ep_name is given: ort_ep_library must be given with it")
	require.ErrorContains(t, err, "parameter ort_ep_options is given: ort_ep_library must be given with it")
}

// TestSlotsOfTritonsStates: every candidate sequence has a slot where Triton would have
// kept its states; state_pairs mean NVIDIA's backend and its default, unless a batch can have
// more sequences than there would be slots.
func TestSlotsOfTritonsStates(t *testing.T) {
	listed := &Config{Sequence: &SequenceConfig{Oldest: &OldestConfig{MaxCandidateSequences: 16}, States: []StateConfig{{InputName: "s"}}}}
	inferred := &Config{Sequence: &SequenceConfig{Oldest: &OldestConfig{MaxCandidateSequences: 16}}}
	few := func(candidates int) *Config {
		return &Config{MaxBatchSize: 16, Sequence: &SequenceConfig{Oldest: &OldestConfig{MaxCandidateSequences: candidates}}}
	}
	for _, c := range []struct {
		config *Config
		given  map[string]Value
		want   float32
	}{
		{listed, nil, 1},
		{listed, given("state_pairs", "<<<s, s_out>>>"), 0.9},
		{listed, given("max_candidate_sequence_use_ratio", "0.5"), 0.5},
		{inferred, nil, 0.9},
		{few(17), nil, 1}, // 0.9 of it is 15
		{few(18), nil, 0.9},
		{few(4), nil, 1},
		{&Config{Sequence: &SequenceConfig{Oldest: &OldestConfig{MaxCandidateSequences: 1}}}, nil, 1},
		{few(17), given("max_candidate_sequence_use_ratio", "0.9"), 0.9},
		{few(17), given("initial_buffer_size", "16", "subsequent_buffer_size", "16", "buffer_alloc_threshold", "16", "buffer_dealloc_threshold", "16"), 0.9},
	} {
		p, _, err := ParseParameters(c.given)
		require.NoError(t, err)
		require.Equal(t, c.want, p.SlotRatio(c.config))
	}
}
