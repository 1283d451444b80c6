package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/version"
)

var labels = backend.MetricLabels{Model: "m", Version: 2, Instance: "m_0"}

// series is a metric of the instance with those labels, as Prometheus writes it.
func series(m backend.Metric) string {
	info := backend.Metrics()[m]
	reason := ""
	if info.Reason != "" {
		reason = fmt.Sprintf(",reason=%q", info.Reason)
	}
	return fmt.Sprintf(`%s{model="m",version="2",instance="m_0"%s}`, info.Name, reason)
}

// newMetrics is the metrics of a backend, closed when the test ends; then nothing
// of them may be left.
func newMetrics(t *testing.T, log *strings.Builder) *metrics {
	faketriton.Reset()
	require.NoError(t, newServer(t, fakeModel{}).backend.Finalize()) // it has found Triton's functions
	m := &metrics{log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), onnxRuntime: "1.31.1"}
	t.Cleanup(func() {
		m.close()
		count, last := faketriton.Violations()
		require.Zero(t, count, last)
		alive := faketriton.CountAlive()
		require.Zero(t, alive.Metrics)
		require.Zero(t, alive.Parameters)
	})
	return m
}

func TestMetrics(t *testing.T) {
	var log strings.Builder
	m := newMetrics(t, &log)
	sink := m.open(labels)
	for i := range backend.Metrics() {
		value, updates, exists := faketriton.Metric(series(backend.Metric(i)))
		require.True(t, exists, series(backend.Metric(i)))
		require.Zero(t, value)
		require.Zero(t, updates)
	}
	sink.Record([]backend.MetricUpdate{
		{Metric: backend.MetricActive, Value: 7}, {Metric: backend.MetricStarted, Value: 3},
		{Metric: backend.MetricRejectedFull, Value: 1}, {Metric: backend.MetricRun, Value: 0.5}, {Metric: backend.MetricRun, Value: 0.25},
	})
	sink.Record([]backend.MetricUpdate{{Metric: backend.MetricActive, Value: 5}, {Metric: backend.MetricStarted, Value: 1}})
	sink.Record(nil)
	for metric, want := range map[backend.Metric][2]float64{ // value, updates
		backend.MetricActive: {5, 2}, backend.MetricStarted: {4, 2}, backend.MetricRejectedFull: {1, 1},
		backend.MetricRejectedStartFailed: {0, 0}, backend.MetricRun: {0.75, 2}, backend.MetricGather: {0, 0},
	} {
		value, updates, _ := faketriton.Metric(series(metric))
		require.Equal(t, want, [2]float64{value, float64(updates)}, series(metric))
	}
	sink.Close()
	_, _, exists := faketriton.Metric(series(backend.MetricActive))
	require.False(t, exists)
	build, updates, _ := faketriton.Metric(fmt.Sprintf(`stateful_build_info{version=%q,onnxruntime="1.31.1"}`, version.Number))
	require.Equal(t, 1.0, build, "the backend's own, whatever instances there are")
	require.Equal(t, 1, updates)
	require.Empty(t, log.String())
}

// TestMetricsOfAReloadedModel: the old instance goes when the new one is
// there, and takes nothing away from it.
func TestMetricsOfAReloadedModel(t *testing.T) {
	var log strings.Builder
	m := newMetrics(t, &log)
	before := m.open(labels)
	before.Record([]backend.MetricUpdate{{Metric: backend.MetricStarted, Value: 3}})
	after := m.open(labels)
	before.Close()
	after.Record([]backend.MetricUpdate{{Metric: backend.MetricStarted, Value: 2}})
	value, _, exists := faketriton.Metric(series(backend.MetricStarted))
	require.True(t, exists)
	require.Equal(t, 5.0, value, "a counter does not fall")
	after.Close()
	require.Empty(t, log.String())
}

// TestMetricsOfAGPU: families take metrics with and without the labels of a GPU.
func TestMetricsOfAGPU(t *testing.T) {
	var log strings.Builder
	m := newMetrics(t, &log)
	onCPU := m.open(labels)
	whole, part := labels, labels
	whole.Instance, whole.GPUUUID, whole.GPUName = "m_1", "GPU-7", "NVIDIA H200"
	part.Instance, part.GPUUUID, part.GPUName, part.GPUPart = "m_2", "GPU-7", "NVIDIA H200 MIG 1g.18gb", "MIG-8"
	onWhole, onPart := m.open(whole), m.open(part)
	for _, series := range []string{
		`stateful_chunks{model="m",version="2",instance="m_0"}`,
		`stateful_chunks{model="m",version="2",instance="m_1",gpu_uuid="GPU-7",gpu_name="NVIDIA H200"}`,
		`stateful_chunks{model="m",version="2",instance="m_2",gpu_uuid="GPU-7",gpu_name="NVIDIA H200 MIG 1g.18gb",gpu_part="MIG-8"}`,
		`stateful_sequences_rejected_total{model="m",version="2",instance="m_1",gpu_uuid="GPU-7",gpu_name="NVIDIA H200",reason="full"}`,
	} {
		_, _, exists := faketriton.Metric(series)
		require.True(t, exists, series)
	}
	for _, sink := range []backend.MetricSink{onCPU, onWhole, onPart} {
		sink.Close()
	}
	require.Empty(t, log.String())
}

// TestNoMetrics: a server that has none gets no warning.
func TestNoMetrics(t *testing.T) {
	var log strings.Builder
	m := newMetrics(t, &log)
	faketriton.MetricsOff(true)
	require.Nil(t, m.open(labels))
	require.Nil(t, m.open(labels))
	require.Equal(t, 1, faketriton.CallsOf("TRITONSERVER_MetricFamilyNew"), "asked once")
	require.Contains(t, log.String(), "level=DEBUG msg=\"metrics are off\"")
	require.NotContains(t, log.String(), "level=WARN")
}

// TestEveryCallOfMetricsFailsOnce makes the n-th ABI call fail, for every n: the
// instance goes on without metrics, and nothing is left over.
func TestEveryCallOfMetricsFailsOnce(t *testing.T) {
	for n := 1; ; n++ {
		var log strings.Builder
		reached := false
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := newMetrics(t, &log)
			faketriton.FailAt(n)
			sink := m.open(labels)
			if sink != nil {
				sink.Record([]backend.MetricUpdate{{Metric: backend.MetricEnded, Value: 1}, {Metric: backend.MetricFree, Value: 1}, {Metric: backend.MetricGap, Value: 1}})
				sink.Close()
			}
			reached = faketriton.Calls() >= n
			faketriton.FailAt(0)
			if reached && sink == nil {
				require.Contains(t, log.String(), "level=WARN msg=\"metrics are off\"")
			}
		})
		if !reached {
			require.Greater(t, n, 2*len(backend.Metrics()))
			return
		}
	}
}

// TestFailingUpdateIsSaidOnce: a batch a millisecond must not become a line each.
func TestFailingUpdateIsSaidOnce(t *testing.T) {
	var log strings.Builder
	m := newMetrics(t, &log)
	sink := m.open(labels)
	defer sink.Close()
	update := []backend.MetricUpdate{{Metric: backend.MetricEnded, Value: 1}}
	before := faketriton.CallsOf("TRITONSERVER_LogMessage")
	for range 2 {
		faketriton.FailAt(1)
		sink.Record(update)
		faketriton.FailAt(0)
	}
	require.Equal(t, before+1, faketriton.CallsOf("TRITONSERVER_LogMessage"))
	line, _ := faketriton.LastLog()
	require.Contains(t, line, "updating a metric")
	sink.Record(update)
	value, _, _ := faketriton.Metric(series(backend.MetricEnded))
	require.Equal(t, 1.0, value)
}

func TestRecordAllocatesNothing(t *testing.T) {
	var log strings.Builder
	sink := newMetrics(t, &log).open(labels)
	defer sink.Close()
	updates := make([]backend.MetricUpdate, 32)
	for i := range updates {
		updates[i] = backend.MetricUpdate{Metric: backend.MetricGap, Value: float64(i)}
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { sink.Record(updates) }))
}

// TestMetricsSetting: models get metrics, unless the command line disables them.
func TestMetricsSetting(t *testing.T) {
	for config, want := range map[string]bool{"{}": true, `{"cmdline":{"metrics":"false"}}`: false} {
		faketriton.Reset()
		b := faketriton.NewBackend(config)
		m := faketriton.NewModel(b, "m", "/m", "{}")
		s := server{backend: b, model: m}
		var server backend.Server
		require.NoError(t, s.initialize(func(settings, *slog.Logger) (components, error) {
			return components{load: func(_ backend.ModelInfo, h backend.Server) (model, error) { server = h; return fakeModel{}, nil }}, nil
		}))
		require.NoError(t, m.Initialize())
		require.Equal(t, want, server.Metrics != nil, config)
		if want {
			server.Metrics(labels).Close()
			require.NotZero(t, faketriton.CountAlive().Metrics, "the families live as long as the backend")
		}
		require.NoError(t, m.Finalize())
		require.NoError(t, b.Finalize())
		require.Zero(t, faketriton.CountAlive().Metrics)
		m.Delete()
		b.Delete()
	}
}
