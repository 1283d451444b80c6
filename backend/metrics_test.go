package backend

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/statebuffer"
)

// fakeSink adds up what an instance reports.
type fakeSink struct {
	labels       MetricLabels
	sums         [metricCount]float64 // of a gauge its value
	observations [metricCount][]float64
	calls        int
	closed       int
}

func (f *fakeSink) Close() { f.closed++ }

func (f *fakeSink) Record(updates []MetricUpdate) {
	f.calls++
	for _, u := range updates {
		f.sums[u.Metric] += u.Value
		if Metrics()[u.Metric].Kind == Gauge {
			f.sums[u.Metric] = u.Value
		}
		f.observations[u.Metric] = append(f.observations[u.Metric], u.Value)
	}
}

// measured makes the server take metrics.
func measured(f *fakeSink) func(*setup) {
	return func(s *setup) {
		s.metrics = func(l MetricLabels) MetricSink { f.labels = l; return f }
	}
}

// want checks gauges and counters; those that are not named must be 0, but for the ratio,
// which follows.
func (f *fakeSink) want(t *testing.T, want map[Metric]float64) {
	t.Helper()
	want = with(want, map[Metric]float64{MetricUsedRatio: want[MetricActive] / max(want[MetricCapacity], 1)})
	for i, info := range Metrics() {
		if info.Kind != Histogram {
			require.Equal(t, want[Metric(i)], f.sums[i], "%s %s", info.Name, info.Reason)
		}
	}
}

// with changes some of the numbers.
func with(numbers, changes map[Metric]float64) map[Metric]float64 {
	all := map[Metric]float64{}
	for _, m := range []map[Metric]float64{numbers, changes} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// TestMetricNames: the conventions of Prometheus, and what capi relies on.
func TestMetricNames(t *testing.T) {
	seen := map[string]int{}
	for i, m := range Metrics() {
		require.Regexp(t, `^stateful_[a-z0-9_]+$`, m.Name)
		require.NotEmpty(t, m.Help)
		require.NotContains(t, seen, m.Name+m.Reason)
		seen[m.Name+m.Reason] = i
		require.Equal(t, m.Kind == Counter, strings.HasSuffix(m.Name, "_total"), m.Name)
		require.Equal(t, m.Kind == Histogram, len(m.Buckets) > 0, m.Name)
		require.True(t, slices.IsSorted(m.Buckets), m.Name)
		require.Len(t, slices.Compact(slices.Clone(m.Buckets)), len(m.Buckets), m.Name)
		if first := slices.IndexFunc(Metrics(), func(o MetricInfo) bool { return o.Name == m.Name }); first != i {
			require.Equal(t, Metrics()[i-1].Name, m.Name, "reasons of one name stand side by side")
			require.Equal(t, [2]any{Metrics()[first].Kind, Metrics()[first].Help}, [2]any{m.Kind, m.Help})
		}
	}
}

// TestMetrics runs a scenario and compares every number.
func TestMetricsStory(t *testing.T) {
	f := &fakeSink{}
	s := newServer(t, slots(3, 2), measured(f), param("batch_padding", "max"), param("when_full", "reject"))
	require.Equal(t, MetricLabels{Model: "model", Version: 3, Instance: "model_0"}, f.labels)
	state := float64(5 * 4)
	idle := map[Metric]float64{MetricCapacity: 3, MetricFree: 3, MetricChunks: 1, MetricStateBytes: 3 * state}
	f.want(t, idle)

	s.batch(startOf(1)).ok() // padded to 2
	f.want(t, with(idle, map[Metric]float64{MetricActive: 1, MetricFree: 2, MetricStarted: 1, MetricPaddingLanes: 1}))
	require.Equal(t, []float64{1}, f.observations[MetricBatchSize])
	require.Empty(t, f.observations[MetricGap], "a START comes after nothing")

	s.now += 250 * time.Millisecond
	s.batch(nextOf(1), startOf(2)).ok()
	require.Equal(t, []float64{1, 2}, f.observations[MetricBatchSize])
	require.Equal(t, []float64{0.250001}, f.observations[MetricGap])

	s.batch(startOf(1), startOf(3)).ok() // a restart
	s.batch(startOf(4)).want("too many simultaneous sequences")
	s.batch(nextOf(9)).want("no such sequence is known")
	s.batch(nextOf(4)).want("its START was refused")
	s.batch(startOf(5).wrongInput()).want("want FP32")
	s.batch(endOf(3)).ok()
	story := with(idle, map[Metric]float64{
		MetricActive: 2, MetricFree: 1, MetricStarted: 3, MetricRestarted: 1, MetricEnded: 1, MetricUnknown: 2,
		MetricRejectedFull: 1, MetricRejectedStartFailed: 1, MetricPaddingLanes: 2,
	})
	f.want(t, story)
	require.Equal(t, []float64{1, 2, 2, 1}, f.observations[MetricBatchSize], "what is refused does not run")
	for _, m := range []Metric{MetricGather, MetricRun, MetricScatter, MetricStep} {
		require.Len(t, f.observations[m], 4, Metrics()[m].Name)
	}

	s.runner.before = func() error { return errors.New("no") }
	s.batch(nextOf(1)).want("no")
	s.runner.before = nil
	story = with(story, map[Metric]float64{MetricFailedRuns: 1, MetricPaddingLanes: 3})
	f.want(t, story)

	s.now += 13 * time.Second // more than twice the limit of one and ten seconds
	s.forget(1, 2)
	s.batch(startOf(6), startOf(7)).ok()
	f.want(t, with(story, map[Metric]float64{MetricExpired: 2, MetricStarted: 5}))

	require.Equal(t, 1+10, f.calls, "once at load, once a batch")
	s.in.Close()
	require.Equal(t, 1, f.closed)
	s.in.Close()
	require.Equal(t, 1, f.closed)
}

func TestMetricsOfEvictionAndSaturation(t *testing.T) {
	f := &fakeSink{}
	s := newServer(t, slots(1, 1), measured(f), param("when_full", "evict_lru"), param("store_states_as_fp16", "1"))
	s.batch(startOf(1)).ok()
	s.forget(1)
	s.batch(startOf(2)).ok()
	require.Equal(t, 1.0, f.sums[MetricEvicted])
	require.Equal(t, 1.0, f.sums[MetricActive])
	s.forget(2)
	s.batch(ask{id: "3", start: true, value: 1e6}).ok()
	require.Equal(t, 5.0, f.sums[MetricSaturated], "each element of the state")
}

// TestMetricsOfTwoRuns: a batch that takes two runs is two batch sizes, one step.
func TestMetricsOfTwoRuns(t *testing.T) {
	f := &fakeSink{}
	s := newServer(t, measured(f))
	s.batch(startOf(1)).ok()
	s.onCall = func() { s.now += time.Millisecond } // the server's calls take time
	s.batch(endOf(1), startOf(1)).ok()
	require.Equal(t, []float64{1, 1, 1}, f.observations[MetricBatchSize])
	require.Len(t, f.observations[MetricStep], 2)
	require.GreaterOrEqual(t, f.observations[MetricStep][1], 0.004, "until the answers are out")
}

// TestMetricsOff: an instance whose server takes none does nothing for them.
func TestMetricsOff(t *testing.T) {
	for name, open := range map[string]func(MetricLabels) MetricSink{"no way": nil, "not wanted": func(MetricLabels) MetricSink { return nil }} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(s *setup) { s.metrics = open })
			s.batch(startOf(1), nextOf(2))
			require.Empty(t, s.in.meter.updates)
			require.Zero(t, s.in.meter.sent)
		})
	}
}

// TestMetricsAllocateNothing, once a batch as large has been seen.
func TestMetricsAllocateNothing(t *testing.T) {
	s := newServer(t, func(s *setup) { s.metrics = func(MetricLabels) MetricSink { return discard{} } })
	s.batch(startOf(1)).ok()
	x := &s.in.work
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for range 8 {
			s.in.meter.observe(MetricGap, 1)
		}
		s.in.meter.ran(8, 8)
		s.in.recordMetrics(x)
	}))
}

type discard struct{}

func (discard) Record([]MetricUpdate) {}
func (discard) Close()                {}

func BenchmarkMeasure(b *testing.B) {
	store, err := statebuffer.NewStore(statebuffer.Options{Memory: &statebuffer.Heap{}, Sizing: statebuffer.Sizing{Initial: 8, MaxChunks: 1}, MaxLanes: 8})
	require.NoError(b, err)
	defer store.Close()
	in := &Instance{store: store, meter: meter{sink: discard{}}}
	in.work.timing.ComputeEnd = 1
	for b.Loop() {
		in.meter.ran(8, 8)
		in.recordMetrics(&in.work)
	}
}
