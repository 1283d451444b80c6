package backend

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/docstable"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

func verbose(s *setup) { s.level = slog.LevelDebug }

// TestBatchInfoLevels is NVIDIA's matrix of logging_level and
// batch_info_logging_level. Only where nothing at all is said of logging does the
// line stay at verbose.
func TestBatchInfoLevels(t *testing.T) {
	const info, debug = "INFO", "DEBUG"
	tests := []struct{ logging, batchInfo, want string }{
		{"NONE", "", debug}, {"NONE", "INFO", debug}, {"NONE", "VERBOSE", debug}, {"NONE", "NONE", info},
		{"INFO", "", info}, {"INFO", "INFO", info}, {"INFO", "VERBOSE", debug}, {"INFO", "NONE", info},
		{"VERBOSE", "", info}, {"VERBOSE", "INFO", info}, {"VERBOSE", "VERBOSE", info}, {"VERBOSE", "NONE", debug},
		{"", "", debug}, {"", "INFO", info}, {"", "VERBOSE", debug}, {"", "NONE", info},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("logging=%s/batch_info=%s", tt.logging, tt.batchInfo), func(t *testing.T) {
			s := newServer(t, verbose, param("logging_level", tt.logging), param("batch_info_logging_level", tt.batchInfo))
			s.batch(startOf(7), startOf(8)).ok()
			require.Equal(t, []string{tt.want + " running inference model=model instance=model_0 requests=2"}, s.log.having("running inference"))
		})
	}
}

// TestQuantizersAreWarnedOf: where batches meet an operator that scales all lanes
// alike, and only there.
func TestQuantizersAreWarnedOf(t *testing.T) {
	const line = "one scale for all requests"
	has := func(operators map[string]int) func(*setup) {
		return func(s *setup) {
			s.model = newAccumulator(s.memory, s.streams...)
			s.model.sig.Operators = operators
		}
	}
	warned := newServer(t, has(map[string]int{"MatMulInteger": 7, "DynamicQuantizeLinear": 3})).log.having(line)
	require.Len(t, warned, 1)
	require.Contains(t, warned[0], "WARN")
	require.Contains(t, warned[0], "set max_batch_size: 1")
	require.Contains(t, warned[0], "operator=DynamicQuantizeLinear times=3")
	require.Len(t, newServer(t, has(map[string]int{"DynamicQuantizeMatMul": 1, "DynamicQuantizeLSTM": 1})).log.having(line), 2)
	require.Empty(t, newServer(t, has(map[string]int{"DynamicQuantizeLinear": 3}), slots(4, 1)).log.having(line))
	require.Empty(t, newServer(t, has(map[string]int{"QuantizeLinear": 3})).log.having(line))
	require.Empty(t, newServer(t, has(nil)).log.having(line))
}

func TestRunTimeLines(t *testing.T) {
	for level, want := range map[string]int{"NONE": 0, "INFO": 1, "VERBOSE": 1} {
		s := newServer(t, verbose, param("logging_level", level), param("infer_end_requests", "0"))
		s.batch(startOf(7), nextOf(9)).want("", "no such sequence")
		s.batch(endOf(7)).ok()
		require.Len(t, s.log.having("resetting the states of a sequence"), want, level)
		require.Len(t, s.log.having("ending a sequence without inference"), want, level)
	}
	quiet := newServer(t)
	quiet.log.clear()
	quiet.batch(startOf(7)).ok()
	require.Empty(t, *quiet.log.lines, "nothing is written for requests by default")
}

// TestRefusedStartIsNoReset: the line is about what happens.
func TestRefusedStartIsNoReset(t *testing.T) {
	s := newServer(t, verbose, slots(1, 1))
	s.batch(startOf(7)).ok()
	s.log.clear()
	s.batch(startOf(8)).want("slots are taken")
	require.Empty(t, s.log.having("resetting"))
}

// TestMetrics: every so often, what the batches since the last time took. Failed
// ones do not count (B31).
func TestMetrics(t *testing.T) {
	tests := []struct {
		logging, details string
		want             []string // levels of the two lines
	}{
		{"INFO", "", []string{"DEBUG", "INFO"}}, {"INFO", "INFO", []string{"INFO", "INFO"}}, {"INFO", "NONE", []string{"DEBUG", "INFO"}},
		{"VERBOSE", "VERBOSE", []string{"DEBUG", "INFO"}}, {"NONE", "INFO", nil},
	}
	for _, tt := range tests {
		t.Run(tt.logging+"/"+tt.details, func(t *testing.T) {
			s := newServer(t, verbose, configEdit(func(c *config.Config) { c.Sequence.MaxIdleMicroseconds = 1e9 }), param("metric_logging_frequency_seconds", "2"), param("logging_level", tt.logging), param("detailed_metrics_logging_level", tt.details))
			s.batch(startOf(1), startOf(2), startOf(3)).ok()
			s.runner.before = func() error { return errInjected }
			s.batch(nextOf(1), nextOf(2), nextOf(3)).code(status.Internal)
			s.runner.before = nil
			require.Empty(t, s.log.having("since the last report"))
			s.now += 2*time.Second - 10*time.Microsecond
			s.batch(nextOf(1)).ok()
			require.Empty(t, s.log.having("since the last report"))
			s.now += 10 * time.Microsecond
			s.batch(nextOf(1), nextOf(2)).ok()
			var got []string
			for _, line := range s.log.having("since the last report") {
				got = append(got, strings.Fields(line)[0])
			}
			require.Equal(t, tt.want, got)
			if tt.want == nil {
				return
			}
			require.Len(t, s.log.having("requests=6 runs=3"), 1)
			require.Len(t, s.log.having("average=2 largest=3"), 1)
			s.log.clear()
			s.now += 2 * time.Second
			s.batch(startOf(1)).ok()
			require.Len(t, s.log.having("average=1 largest=1"), 1, "the counters began again")
		})
	}
}

func TestNoMetricsByDefault(t *testing.T) {
	s := newServer(t, verbose)
	s.batch(startOf(1)).ok()
	s.now += time.Hour
	s.batch(startOf(1)).ok()
	require.Empty(t, s.log.having("since the last report"))
}

// TestLoadReport names every tensor, what it is for, and the memory (B25).
func TestLoadReport(t *testing.T) {
	s := accumulate()
	server := newServer(t, streamsOf(s, s.of(tensor.Int32)), func(s *setup) { s.config.Parameters["initial_buffer_size"] = config.Value{} })
	text := strings.Join(*server.log.lines, "\n")
	for _, name := range []string{"Input", "Input_int32", "Output", "Output_int32", "Accumulate_In", "Accumulate_Out", "Accumulate_In_int32", "Accumulate_Out_int32", resetName} {
		require.Contains(t, text, name)
	}
	for _, line := range *server.log.lines {
		require.NotContains(t, line, "\n", "one message for each line")
	}
	require.Contains(t, text, "slots: 57 now, at most 57")
	require.Contains(t, text, "/models/model/3/model.onnx")
	silent := newServer(t, param("logging_level", "NONE"))
	require.NotContains(t, strings.Join(*silent.log.lines, "\n"), "state from")
}

// TestSettings: each parameter with its default, and each that is given, by its own name.
func TestSettings(t *testing.T) {
	s := newServer(t, param("always_pad_to_max_batch", "1"), param("max_state_memory_bytes", "4096"))
	lines := s.log.having("INFO settings model=model")
	require.Len(t, lines, 1)
	has := func(name, value string) { require.Contains(t, lines[0]+" ", fmt.Sprintf(" %s=%s ", name, value)) }
	given := map[string]string{"always_pad_to_max_batch": "1", "batch_padding": "preferred", "max_state_memory_bytes": "4096"}
	for _, cells := range docstable.Rows(t, "parameters.md", "| Parameter |") {
		if name, fallback := cells[0], cells[2]; fallback != "none" {
			has(name, cmp.Or(given[name], fallback))
		}
	}
	has("max_batch_size", "8")
	has("max_candidate_sequences", "64")
	has("max_sequence_idle_microseconds", "1000000")
}

// TestLoadReportOfVaryingStates: what varies in size is not said to have 0 bytes.
func TestLoadReportOfVaryingStates(t *testing.T) {
	in := deltaModel(func([]int32) {}).loaded(t, deltaConfig())
	var b strings.Builder
	in.describeMemory(&b)
	require.Contains(t, b.String(), "states: 1 that vary, ")
	require.Contains(t, b.String(), "at most 67108864 bytes (max_state_bytes)")
	require.Contains(t, b.String(), "no limit (max_state_memory_bytes)")
	require.NotContains(t, b.String(), " 0 bytes for each sequence")

	model, c, _ := maskedModel(0)
	b.Reset()
	model.loaded(t, c).describeTensors(&b)
	require.Regexp(t, `(?m)^Mask +mask .* varies *$`, b.String())
}

// TestWithoutEffect: settings for a GPU say once that they do nothing here.
func TestWithoutEffect(t *testing.T) {
	s := newServer(t, param("ort_ep", "trt"), param("enable_cuda_graph", "1"), param("compute_precision", "fp32"), param("error_inject_rate", "3"))
	lines := s.log.having("without effect on this instance (CPU)")
	require.Len(t, lines, 1)
	for _, name := range []string{"ort_ep", "enable_cuda_graph", "compute_precision", "error_inject_rate"} {
		require.Contains(t, lines[0], name)
	}
	require.Empty(t, newServer(t).log.having("without effect"))
	ints := accumulate()
	s = newServer(t, param("store_states_as_fp16", "1"), streamsOf(ints.of(tensor.Int32)))
	require.Len(t, s.log.having("store_states_as_fp16"), 2, "among the settings, and as without effect")
}

// TestProviderOnTheCPU: nothing there speaks of TensorRT, and only an odd word is
// warned of.
func TestProviderOnTheCPU(t *testing.T) {
	for word, warned := range map[string]bool{"": false, "cpu": false, "trt": false, "cuda": false, "gpu": true} {
		s := newServer(t, param("ort_ep", word))
		require.Empty(t, s.log.having("TensorRT"), word)
		lines := s.log.having(`WARN parameter ort_ep is "` + word + `" and has no effect: this instance is on the CPU`)
		require.Equal(t, warned, len(lines) == 1, word)
	}
	require.Empty(t, newServer(t, param("ort_ep", "cpu")).log.having("without effect"))
}

func TestUnknownParameterWarnsOnce(t *testing.T) {
	s := newServer(t, param("infer_end_request", "0"))
	require.Len(t, s.log.having(`did you mean "infer_end_requests"?`), 1)
	s.batch(wholeOf(1)).ok()
	require.Len(t, s.log.having("infer_end_request"), 2, "the warning, and the settings")
}

func TestLazyLines(t *testing.T) {
	s := newServer(t, param("initial_buffer_size", "8"), param("subsequent_buffer_size", "8"), param("buffer_alloc_threshold", "8"), param("buffer_dealloc_threshold", "9"))
	s.batch(startOf(1)).ok()
	require.Len(t, s.log.having("INFO allocated a chunk of slots"), 1)
	require.Len(t, s.log.having("chunks=2 slots=16 free=15"), 1)
	s.batch(nextOf(1)).ok()
	require.Len(t, s.log.having("INFO released a chunk of slots"), 1)
	require.Len(t, s.log.having("chunks=1 slots=8 free=7"), 1)
}

// TestRestlessChunksWarnOnce: a model is told at load that its chunks can come and go
// without end, and what would stop it.
func TestRestlessChunksWarnOnce(t *testing.T) {
	chunks := func(initial, above string) *server {
		return newServer(t, param("initial_buffer_size", initial), param("subsequent_buffer_size", "8"), param("buffer_alloc_threshold", "8"), param("buffer_dealloc_threshold", above))
	}
	const warning = "buffer_dealloc_threshold is 14; want at least 15"
	s := chunks("8", "14")
	s.batch(wholeOf(1)).ok()
	require.Len(t, s.log.having(warning), 1)
	require.Empty(t, chunks("8", "15").log.having("in turns"))
	require.Empty(t, chunks("10000", "14").log.having("in turns"), "there is one chunk, which stays")
	require.Empty(t, newServer(t).log.having("in turns"))
}
