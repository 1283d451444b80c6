package checkpoint

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// halfOfThem elements are half of what is encoded at a time.
const halfOfThem = maxEncoding / 2 / 4

// TestLargeValues: two are saved at a time, and one more that somebody waits for.
func TestLargeValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, halfOfThem, everyStep)
		const each, sequences = 10 * time.Millisecond, 10
		var running, most atomic.Int64
		w.memory.Before = func(_ context.Context, method, _ string) error {
			if method == "Save" {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(each)
				running.Add(-1)
			}
			return nil
		}
		for n := range uint64(sequences) {
			w.step(n, nil)
		}
		synctest.Wait()
		require.EqualValues(t, 2, most.Load())
		began, took := time.Now(), time.Duration(0)
		w.step(sequences, func(uint64, error) { took = time.Since(began) })
		time.Sleep(sequences / 2 * each)
		synctest.Wait()
		require.Equal(t, each, took)
		require.EqualValues(t, 3, most.Load())
		for n := range uint64(sequences) {
			require.EqualValues(t, 1, w.saved(n), "of sequence %d", n)
		}
		w.Saver.mu.Lock()
		defer w.Saver.mu.Unlock()
		require.LessOrEqual(t, len(w.encoders), 3)
	})
}

// TestLargeValuesWhileHung: those that take turns do not wait for a store that does not answer, one
// after the other, and are saved when it does.
func TestLargeValuesWhileHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t, halfOfThem, everyStep)
		const sequences = 10
		var hung atomic.Bool
		var calls atomic.Int64
		hung.Store(true)
		w.memory.Before = func(ctx context.Context, _, _ string) error {
			if calls.Add(1); hung.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		for n := range uint64(sequences) {
			w.step(n, nil)
		}
		time.Sleep(w.policy.Timeout)
		synctest.Wait()
		require.EqualValues(t, 2, calls.Load())
		_, backlog := w.Measure(nil)
		require.Equal(t, sequences, backlog.Sequences)
		w.Saver.mu.Lock()
		require.Zero(t, w.jobs)
		w.Saver.mu.Unlock()
		hung.Store(false)
		time.Sleep(maxBackoff)
		synctest.Wait()
		for n := range uint64(sequences) {
			require.EqualValues(t, 1, w.saved(n), "of sequence %d", n)
		}
	})
}
