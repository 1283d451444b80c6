package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tritonstateful/backend/config"
	"tritonstateful/internal/statestore"
	"tritonstateful/internal/statestore/storetest"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is an instance with one state, which begins with the number of the step.
type source struct {
	mu    sync.Mutex
	t     *testing.T
	store *statebuffer.Store
	lost  map[uint64]statebuffer.LossReason
}

func (s *source) Locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *source) Snapshot(q *statebuffer.Sequence, to *statebuffer.Snapshot) error {
	return s.store.Snapshot(q, to)
}

func (s *source) Lose(q *statebuffer.Sequence, reason statebuffer.LossReason) {
	s.lost[q.Generation()] = reason
	s.store.Lose(q, reason, 0)
}

func (s *source) Forget(q *statebuffer.Sequence) { s.store.Finish(q) }

// world is a saver and what it saves.
type world struct {
	*source
	*Saver
	memory *storetest.Memory
	began  time.Time
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// newWorld is called in a bubble.
func newWorld(t *testing.T, edit func(*config.Checkpoint)) *world { return newWorldOf(t, 1, edit) }

// newWorldOf is newWorld with a state of that many elements.
func newWorldOf(t *testing.T, elements int64, edit func(*config.Checkpoint)) *world {
	shape := tensor.Shape{1, elements}
	layout, err := statebuffer.LayoutOf(shape, 0, tensor.FP32)
	require.NoError(t, err)
	store, err := statebuffer.NewStore(statebuffer.Options{
		Memory: &statebuffer.Heap{}, MaxLanes: 1, Sizing: statebuffer.Sizing{Initial: 64, MaxChunks: 1},
		States: []statebuffer.State{{Name: "s", DType: tensor.FP32, Shape: shape, Layout: layout}},
		Limits: statebuffer.Limits{Tombstones: 64},
	})
	require.NoError(t, err)
	w := &world{source: &source{t: t, store: store, lost: map[uint64]statebuffer.LossReason{}}, memory: &storetest.Memory{}, began: time.Now()}
	policy := Policy{Checkpoint: config.Checkpoint{Timeout: time.Second}, States: []statestore.Tensor{{Name: "s", DType: tensor.FP32}}}
	edit(&policy.Checkpoint)
	w.Saver = New(Options{Store: w.memory, Policy: policy, Source: w.source, Clock: w.now, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		w.Saver.Close()
		store.Close()
	})
	return w
}

// step makes a step of a sequence, beginning it with the first.
func (w *world) step(number uint64, done func(uint64, error)) *statebuffer.Sequence {
	var q *statebuffer.Sequence
	w.Locked(func() {
		key := statebuffer.Key{Number: number}
		var err error
		if q = w.source.store.Live(key); q == nil {
			q, err = w.source.store.Begin(key, w.now())
			require.NoError(w.t, err)
		}
		step, err := w.source.store.Gather([]statebuffer.Lane{{Sequence: q}}, 1)
		require.NoError(w.t, err)
		step.Out[0].Bytes[0] = byte(q.Steps() + 1)
		require.NoError(w.t, w.source.store.Commit(step, w.now()))
		entry, _ := q.Attached.(*Entry)
		if entry == nil {
			entry = w.NewEntry(q, fmt.Sprint(number))
			q.Attached = entry
		}
		w.Stepped(entry, q.Steps(), w.now(), done)
	})
	w.Kick()
	return q
}

// saved is the step that the store has of a sequence, 0 if none.
func (w *world) saved(number uint64) uint64 {
	value := w.memory.Value(fmt.Sprint(number))
	if value == nil {
		return 0
	}
	record, err := statestore.Parse(value)
	require.NoError(w.t, err)
	require.Equal(w.t, byte(record.Step), record.Tensors[0].Data[0], "the state is not that of its step")
	return record.Step
}

func everyStep(c *config.Checkpoint)  { c.When, c.Steps = config.EverySteps, 1 }
func everyThird(c *config.Checkpoint) { c.When, c.Steps = config.EverySteps, 3 }

// TestNewest: what waits is saved once, with its newest state.
func TestNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		w.memory.Before = func(context.Context, string, string) error { time.Sleep(100 * time.Millisecond); return nil }
		for range 50 {
			w.step(7, nil)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 50, w.saved(7))
		require.Less(t, w.memory.Saves(), 10)
	})
}

// TestSlowSteps: what is saved of a sequence does not expire as long as it goes on, if it takes long
// until the policy wants it saved again.
func TestSlowSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyThird)
		w.policy.TTL = time.Minute
		for range 3 {
			w.step(7, nil)
		}
		for _, saved := range []uint64{3, 5, 5, 7} {
			time.Sleep(20 * time.Second)
			w.step(7, nil)
			synctest.Wait()
			require.Equal(t, saved, w.saved(7))
		}
	})
}

// TestFew: no more calls are under way than may be.
func TestFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		var mu sync.Mutex
		calls, most := 0, 0
		w.memory.Before = func(context.Context, string, string) error {
			mu.Lock()
			calls++
			most = max(most, calls)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			calls--
			mu.Unlock()
			return nil
		}
		for n := range uint64(60) {
			w.step(n+1, nil)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, maxJobs, most)
		for n := range uint64(60) {
			require.EqualValues(t, 1, w.saved(n+1))
		}
	})
}

// TestStoreFails: it is called again after a while, less often the longer it fails, and what
// waited is saved.
func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyThird)
		var calls atomic.Int64
		var down atomic.Bool
		down.Store(true)
		w.memory.Before = func(context.Context, string, string) error {
			calls.Add(1)
			if down.Load() {
				return errors.New("down")
			}
			return nil
		}
		for range 4 {
			w.step(7, nil)
			w.step(8, nil)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.InDelta(t, 60/maxBackoff.Seconds(), calls.Load(), 6)
		var refused error
		w.step(7, func(_ uint64, err error) { refused = err })
		synctest.Wait()
		require.ErrorContains(t, refused, "the store has failed", "who waits is not kept waiting")
		down.Store(false)
		time.Sleep(2 * maxBackoff)
		synctest.Wait()
		require.EqualValues(t, 5, w.saved(7))
		require.EqualValues(t, 4, w.saved(8))
		c, backlog := w.Measure(nil)
		require.Zero(t, backlog)
		require.EqualValues(t, 2, c.Saved)
	})
}

// TestHung: a store that does not answer ends calls after their time.
func TestHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *config.Checkpoint) { c.When = config.OnRequest })
		w.memory.Before = func(ctx context.Context, _, _ string) error { <-ctx.Done(); return ctx.Err() }
		began, took := time.Now(), time.Duration(0)
		var refused error
		w.step(7, func(_ uint64, err error) { refused, took = err, time.Since(began) })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, refused, context.DeadlineExceeded)
		require.Equal(t, time.Second, took)
	})
}

// TestRate: no more is saved than the policy allows, and everything is in the end.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *config.Checkpoint) { everyStep(c); c.Rate = 40 }) // 10 states a second
		for n := range uint64(50) {
			w.step(n+1, nil)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.InDelta(t, 20, w.memory.Saves(), 2)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Equal(t, 50, w.memory.Saves())
	})
}

// TestLostMeanwhile: a sequence that has lost its state is not saved, and who waits is told.
func TestLostMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyThird)
		w.step(7, nil)
		q := w.step(7, nil)
		synctest.Wait()
		w.Locked(func() { w.source.store.Lose(q, statebuffer.Expired, 0) })
		var refused error
		w.Stepped(w.NewEntry(q, "7"), 3, 0, func(_ uint64, err error) { refused = err })
		w.Kick()
		synctest.Wait()
		require.Error(t, refused)
		require.Zero(t, w.saved(7))
	})
}

// TestPanics: of the store, or of a state, do not end the server.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		var broke atomic.Bool
		w.memory.Before = func(_ context.Context, method, _ string) error {
			if method == "Save" && !broke.Swap(true) {
				panic("broken")
			}
			return nil
		}
		w.step(7, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, w.saved(7))
	})
}

// TestCloseWhileDown: an unload does not wait for a store that is down, and releases who waits.
func TestCloseWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyThird)
		w.memory.Before = func(ctx context.Context, _, _ string) error { <-ctx.Done(); return ctx.Err() }
		w.step(7, nil)
		w.step(7, nil)
		began := time.Now()
		w.Saver.Close()
		require.Less(t, time.Since(began), flushTime+2*time.Second)
		w.Saver = New(Options{Store: w.memory, Source: w.source, Clock: w.now, Log: slog.New(slog.DiscardHandler)}) // for the cleanup
	})
}

// TestNarrowed: states are saved in less precision, and come back in their own.
func TestNarrowed(t *testing.T) {
	for precision, dtype := range map[config.Precision]tensor.DType{config.SaveFP16: tensor.FP16, config.SaveBF16: tensor.BF16} {
		p := Policy{Checkpoint: config.Checkpoint{Precision: precision}, States: []statestore.Tensor{{Name: "s", DType: tensor.FP32}}}
		require.Equal(t, dtype, p.savedType(tensor.FP32))
		require.Equal(t, tensor.FP64, p.savedType(tensor.FP64))
		from := tensor.FloatElement(1.5, tensor.FP32)
		small := make([]byte, 2)
		require.Zero(t, narrow(small, from, dtype))
		require.Equal(t, from, widen(small, dtype))
	}
	clamped := narrow(make([]byte, 2), tensor.FloatElement(1e30, tensor.FP32), tensor.FP16)
	require.EqualValues(t, 1, clamped)
}

// TestManyResumesWhileHung: they do not wait for one another's time-outs, unless the store answers
// some of them.
func TestManyResumesWhileHung(t *testing.T) {
	for name, took := range map[string]time.Duration{"hung": time.Hour, "slow": 900 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, everyStep)
				w.memory.Before = func(ctx context.Context, _, _ string) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(took):
						return nil
					}
				}
				var failed, waits atomic.Int64
				waits.Store(20 * maxResumes)
				for i := range 20 * maxResumes {
					w.Resume(Wanted{Key: fmt.Sprint(i), AtMost: statestore.AnyStep}, func(r Resumption) {
						waits.Add(-1)
						if r.Err != nil {
							failed.Add(1)
						}
					})
				}
				if name == "slow" {
					time.Sleep(19 * time.Second)
					synctest.Wait()
					require.Zero(t, failed.Load())
				} else {
					time.Sleep(3 * time.Second)
				}
				synctest.Wait()
				require.Zero(t, waits.Load())
			})
		})
	}
}
