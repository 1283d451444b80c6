package backend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ticks takes the calls that the server is to make between batches.
type ticks struct{ next func() }

func (k *ticks) after(d time.Duration, f func()) { k.next = f }

// tick makes the call, and returns whether another one is wanted.
func (k *ticks) tick(t *testing.T) (again bool) {
	f := k.next
	require.NotNil(t, f, "no tick is wanted")
	k.next = nil
	f()
	return k.next != nil
}

func ticking(k *ticks) func(*setup) { return func(s *setup) { s.after = k.after } }

// TestSequencesEndBetweenBatches: without a further request, sequences whose clients are gone
// end, their memory is given back, and the gauges say so.
func TestSequencesEndBetweenBatches(t *testing.T) {
	f, k := &fakeSink{}, &ticks{}
	s := newServer(t, slots(16, 2), idleLimit(time.Second), measured(f), ticking(k), param("initial_buffer_size", "4"),
		param("subsequent_buffer_size", "4"), param("buffer_alloc_threshold", "2"), param("buffer_dealloc_threshold", "6"))
	for id := range 6 {
		s.batch(startOf(1 + id)).ok()
	}
	require.Equal(t, []float64{6, 2, 6. / 16}, []float64{f.sums[MetricActive], f.sums[MetricChunks], f.sums[MetricUsedRatio]})
	calls := f.calls
	for range 2 {
		s.now += 5 * time.Second // twice the limit, and ten seconds: in parts
		require.True(t, k.tick(t))
		require.EqualValues(t, 6, f.sums[MetricActive])
	}
	s.now += 3 * time.Second
	require.True(t, k.tick(t))
	require.Equal(t, calls+3, f.calls)
	require.Zero(t, f.sums[MetricActive])
	require.Zero(t, f.sums[MetricUsedRatio])
	require.EqualValues(t, 6, f.sums[MetricExpired])
	require.EqualValues(t, 1, f.sums[MetricChunks])
	require.EqualValues(t, 4, f.sums[MetricFree])
	require.Len(t, f.observations[MetricStep], 6, "a tick is no batch")
	for id := range 6 {
		s.forget(1 + id)
	}
	for id := range 6 {
		s.batch(nextOf(1 + id)).want("its state expired 0s ago, after idling longer than 1s")
	}
}

// TestTickDuringABatch: a tick does not wait for a batch, which does what it would have done.
func TestTickDuringABatch(t *testing.T) {
	f, k := &fakeSink{}, &ticks{}
	s := newServer(t, measured(f), ticking(k))
	s.runner.before = func() error {
		calls := f.calls
		require.True(t, k.tick(t))
		require.Equal(t, calls, f.calls)
		return nil
	}
	s.batch(startOf(1)).ok()
	s.runner.before = nil
	require.True(t, k.tick(t), "and the next one comes")
}

// TestNoTickAfterClose: one that is due finds a closed instance.
func TestNoTickAfterClose(t *testing.T) {
	k := &ticks{}
	s, err := load(t, ticking(k))
	require.NoError(t, err)
	s.in.Close()
	require.False(t, k.tick(t))
}

// TestTickThatPanics is logged, and the instance goes on.
func TestTickThatPanics(t *testing.T) {
	f, k := &fakeSink{}, &ticks{}
	s := newServer(t, measured(f), ticking(k))
	sink := s.in.meter.sink
	s.in.meter.sink = panicking{}
	require.True(t, k.tick(t))
	require.Len(t, s.log.having("panic"), 1)
	s.in.meter.sink = sink
	s.batch(startOf(1)).ok()
}

type panicking struct{ discard }

func (panicking) Record([]MetricUpdate) { panic("injected") }
