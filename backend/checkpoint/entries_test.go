package checkpoint

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/statestore"
	"tritonstateful/statebuffer"
)

// start begins a sequence once more, as a START does, and makes its first step.
func (w *world) start(number uint64, done func(uint64, error)) *statebuffer.Sequence {
	w.Locked(func() {
		_, err := w.source.store.Begin(statebuffer.Key{Number: number}, w.now())
		require.NoError(w.t, err)
	})
	return w.step(number, done)
}

// end ends a sequence after its last step.
func (w *world) end(number uint64) {
	w.Locked(func() {
		q := w.source.store.Live(statebuffer.Key{Number: number})
		entry := q.Attached.(*Entry)
		w.source.store.Finish(q)
		w.Ended(entry, w.now(), nil)
	})
	w.Kick()
}

// TestStepOfLost: a step can come between the loss of a sequence and the next turn; who waits for it is told.
func TestStepOfLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		q := w.step(7, nil)
		synctest.Wait()
		w.Locked(func() {
			w.Saver.mu.Lock()
			w.lose(q.Attached.(*Entry), statebuffer.TakenOver)
			w.Saver.mu.Unlock()
		})
		var refused error
		w.Stepped(q.Attached.(*Entry), 2, w.now(), func(_ uint64, err error) { refused = err })
		w.Kick()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Error(t, refused)
	})
}

// TestNextBatchOfLost: who is told that another server has the sequence may send the next request before the next turn.
func TestNextBatchOfLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		q := w.step(7, nil)
		synctest.Wait()
		_, _, err := w.memory.Take(t.Context(), "7", statestore.AnyStep, time.Minute)
		require.NoError(t, err)
		generation, refused, lost := q.Generation(), error(nil), statebuffer.LossReason(0)
		w.Stepped(q.Attached.(*Entry), 2, w.now(), func(_ uint64, err error) {
			refused = err
			w.source.Locked(w.LoseRefused)
			lost = w.source.lost[generation]
		})
		w.Kick()
		synctest.Wait()
		require.ErrorContains(t, refused, "taken over by another server")
		require.Equal(t, statebuffer.TakenOver, lost)
	})
}

// TestBeginsInOrder: of two sequences of one key, the later one owns it, however long the store takes for the first.
func TestBeginsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		var late atomic.Bool
		w.memory.Before = func(_ context.Context, method, _ string) error {
			if method == "Begin" && !late.Swap(true) {
				time.Sleep(500 * time.Millisecond)
			}
			return nil
		}
		w.step(7, nil)
		time.Sleep(time.Millisecond)
		w.end(7)
		w.start(7, nil)
		time.Sleep(time.Second)
		w.step(7, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, w.saved(7))
		require.Empty(t, w.source.lost)
		c, _ := w.Measure(nil)
		require.Zero(t, c.Fenced)
	})
}

// TestCloseWithDead: sequences that have lost their states do not delay an unload.
func TestCloseWithDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyThird)
		q := w.step(7, nil)
		synctest.Wait()
		w.Locked(func() { w.source.store.Lose(q, statebuffer.Expired, 0) })
		began := time.Now()
		w.flush()
		require.Less(t, time.Since(began), time.Second)
	})
}

// TestDead: of sequences that have lost their states nothing is left to be saved.
func TestDead(t *testing.T) {
	for name, edit := range map[string]func(*config.Checkpoint){"steps": everyThird, "request": func(c *config.Checkpoint) { c.When = config.OnRequest }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, edit)
				for range 1000 {
					w.start(7, nil)
					w.step(7, nil)
					time.Sleep(time.Second)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				_, b := w.Measure(nil)
				require.LessOrEqual(t, b.Sequences, 1)
			})
		})
	}
}

// TestDownForLong: memory does not grow with the sequences that end while the store is down.
func TestDownForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		w.memory.Before = func(context.Context, string, string) error { return errors.New("down") }
		for n := range uint64(100_000) {
			w.start(n+1, nil)
			w.end(n + 1)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		_, b := w.Measure(nil)
		require.Less(t, b.Sequences, 70_000)
	})
}

// TestPauseFails: a sequence that could not be saved is not forgotten.
func TestPauseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *config.Checkpoint) { c.When = config.OnRequest })
		var down atomic.Bool
		down.Store(true)
		w.memory.Before = func(_ context.Context, method, _ string) error {
			if method == "Save" && down.Load() {
				return errors.New("down")
			}
			return nil
		}
		q := w.step(7, nil)
		synctest.Wait()
		var refused error
		w.Locked(func() {
			w.Paused(q.Attached.(*Entry), q.Steps(), w.now(), func(_ uint64, err error) { refused = err })
		})
		w.Kick()
		synctest.Wait()
		require.Error(t, refused)
		down.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 1, w.saved(7))
	})
}

// TestBeginsLate: a sequence whose client has moved on to another server while the store did not
// answer does not take its key back.
func TestBeginsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		var down atomic.Bool
		down.Store(true)
		w.memory.Before = func(context.Context, string, string) error {
			if down.Load() {
				return errors.New("down")
			}
			return nil
		}
		q := w.step(7, nil)
		synctest.Wait()
		generation := q.Generation()
		time.Sleep(time.Second)
		down.Store(false)
		_, _, err := w.memory.Take(t.Context(), "7", statestore.AnyStep, time.Minute)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, statebuffer.TakenOver, w.source.lost[generation])
		require.Zero(t, w.saved(7))
	})
}

// TestPausesTwice: a sequence that goes on while it is saved to be forgotten, and pauses again, is
// saved once more.
func TestPausesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *config.Checkpoint) { c.When = config.OnRequest })
		w.memory.Before = func(context.Context, string, string) error { time.Sleep(100 * time.Millisecond); return nil }
		q := w.step(7, nil)
		time.Sleep(time.Second)
		saved := map[uint64]error{}
		pause := func() {
			steps := q.Steps()
			w.Paused(q.Attached.(*Entry), steps, w.now(), func(_ uint64, err error) { saved[steps] = err })
			w.Kick()
		}
		pause()
		time.Sleep(50 * time.Millisecond)
		w.Continues(q.Attached.(*Entry))
		w.step(7, nil)
		pause()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, map[uint64]error{1: nil, 2: nil}, saved)
		require.EqualValues(t, 2, w.saved(7))
		require.Nil(t, w.source.store.Live(statebuffer.Key{Number: 7}))
	})
}

// TestBeganAgain: of a sequence whose ID has begun again nothing is saved, and no one waits.
func TestBeganAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		q := w.step(7, nil)
		synctest.Wait()
		w.BeganAgain(q.Attached.(*Entry))
		told := false
		w.step(7, func(_ uint64, err error) { told = err == nil })
		synctest.Wait()
		require.True(t, told)
		require.EqualValues(t, 1, w.saved(7))
		require.NotNil(t, w.source.store.Live(statebuffer.Key{Number: 7}))
	})
}

// TestTooFew: steps that are not to be saved yet are no reason for an alert.
func TestTooFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyThird)
		w.step(7, nil)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		_, b := w.Measure(nil)
		require.Equal(t, Backlog{Sequences: 1}, b)
	})
}

// TestPauseGivenAway: what a sequence had when it paused is saved, also if its batch slot is given
// to another one at once.
func TestPauseGivenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, everyStep)
		w.memory.Before = func(context.Context, string, string) error { time.Sleep(time.Millisecond); return nil }
		w.step(7, nil)
		q := w.step(7, nil)
		refused := errors.New("nothing was said")
		w.Locked(func() {
			w.Paused(q.Attached.(*Entry), q.Steps(), w.now(), func(_ uint64, err error) { refused = err })
			w.source.store.Lose(q, statebuffer.Expired, 0)
		})
		w.Kick()
		time.Sleep(time.Second)
		synctest.Wait()
		require.NoError(t, refused)
		require.EqualValues(t, 2, w.saved(7))
	})
}
