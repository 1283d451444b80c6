package backend

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/statestore"
	"tritonstateful/internal/statestore/storetest"
	"tritonstateful/internal/status"
)

// TestResumeTwice: a START with resume that comes while the store is asked for its sequence
// resumes, too: a client that lost its answer sends it once more.
func TestResumeTwice(t *testing.T) { eachQueueing(t, onRequest(resumeTwice)) }

func resumeTwice(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		first := newServer(t, savedIn(t, store, "steps=1"), on)
		first.batch(startOf(7)).ok()
		synctest.Wait()
		store.Before = func(context.Context, string, string) error { time.Sleep(time.Second / 2); return nil }
		s := goesOn(t, first, store, savedIn(t, store, "steps=1"), on)
		s.batch(startOf(7).saying(resumes))
		s.batch(startOf(7).saying(requires))
		for range 5 {
			time.Sleep(600 * time.Millisecond)
			for _, answer := range s.rerun().answers {
				if answer.times > 0 {
					require.NoError(t, answer.err)
					require.True(t, answer.parameters.Resumed)
				}
			}
		}
		require.EqualValues(t, 3, s.in.store.Live(keyOf(7)).Steps())
	})
}

// TestEndOfUnknown: an END that does not run says nothing of the sequence that another server has.
func TestEndOfUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		edits := []func(*setup){savedIn(t, store, "steps=1"), param("infer_end_requests", "0")}
		first := newServer(t, edits...)
		first.batch(startOf(7)).ok()
		synctest.Wait()
		second := goesOn(t, first, store, edits...)
		second.resumed(startOf(7).saying(requires)).ok()
		synctest.Wait()
		first.batch(nextOf(7)).answered(t)
		synctest.Wait() // it is refused
		first.forget(7)
		first.batch(nextOf(7)).want("taken over by another server")
		first.batch(endOf(7))
		synctest.Wait()
		require.NotNil(t, store.Value(key7))
		second.batch(nextOf(7)).ok()
		synctest.Wait()
		second.batch(nextOf(7)).ok()
	})
}

// TestResumePaused: a sequence whose END could not be saved goes on when its client comes back.
func TestResumePaused(t *testing.T) { eachQueueing(t, onRequest(resumePaused)) }

func resumePaused(t *testing.T, on func(*setup)) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "request"), on)
		s.batch(startOf(7)).ok()
		synctest.Wait()
		store.Before = func(_ context.Context, method, _ string) error {
			if method == "Save" {
				return errors.New("store is down")
			}
			return nil
		}
		s.batch(endOf(7).saying(keepsIt))
		synctest.Wait()
		require.Equal(t, status.Unavailable, status.CodeOf(s.last.answers[0].err))
		o := s.resumed(startOf(7).saying(requires)).ok()
		require.EqualValues(t, 3, o.answers[0].parameters.Step)
		store.Before = nil
		time.Sleep(time.Minute)
		synctest.Wait()
		o = s.batch(nextOf(7).saying(told)).ok()
		require.EqualValues(t, 4, o.answers[0].parameters.Step)
	})
}

// TestResumeTwiceNothing: the second START goes on with the sequence that the first one begins.
func TestResumeTwiceNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		store.Before = func(context.Context, string, string) error { time.Sleep(time.Second / 2); return nil }
		s := newServer(t, savedIn(t, store, "steps=1"))
		s.batch(startOf(7).saying(resumes))
		s.batch(startOf(7).saying(resumes))
		for range 5 {
			time.Sleep(600 * time.Millisecond)
			s.rerun()
		}
		require.EqualValues(t, 2, s.in.store.Live(keyOf(7)).Steps())
	})
}

// TestSavesOfOverlap: while an answer to the older sequence of an ID waits until its state is
// saved, its next request is not queued, whatever else comes. So the START that comes after the
// older sequence is held.
func TestSavesOfOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "request"), slots(16, 8))
		s.busy, s.untold = true, true
		s.batch(startOf(7).by(1), startOf(8)).ok()
		s.batch(nextOf(7).by(1), nextOf(8)).ok()
		synctest.Wait()
		store.Before = func(context.Context, string, string) error { time.Sleep(500 * time.Millisecond); return nil }
		s.batch(nextOf(7).by(1).saying(savesStep))
		time.Sleep(time.Millisecond) // the store is called
		s.batch(startOf(7).by(2), nextOf(8))
		later := s.last
		held := func() bool {
			later.mu.Lock()
			defer later.mu.Unlock()
			return later.held[0]
		}
		for range 8 { // requests that were queued later come, or nothing
			time.Sleep(50 * time.Millisecond)
			s.batch(nextOf(8)).ok()
			s.clock.tick()
			require.True(t, held(), "the answer before waits")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, held(), "the request after it may be queued")
		s.batch(endOf(7).by(1), nextOf(8)).ok()
		require.False(t, held())
		s.batch(nextOf(7).by(2), nextOf(8)).ok()
	})
}

// TestIntervalAfterAPause: the first step after a time in which nothing was to be saved is saved, too.
func TestIntervalAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "interval=100"))
		s.batch(startOf(7)).ok()
		for steps := range uint64(3) {
			time.Sleep(time.Second)
			synctest.Wait()
			record, err := statestore.Parse(store.Value(key7))
			require.NoError(t, err)
			require.Equal(t, steps+1, record.Step)
			s.batch(nextOf(7)).ok()
		}
	})
}

// TestFreeRefused: requests that were parked in an instance of the server that is closed meanwhile do not come again. Those
// after them go on with what is saved.
func TestFreeRefused(t *testing.T) {
	for name, refused := range map[string][]int{"first": {0}, "second": {1}, "both": {0, 1}} {
		inBubble(t, name, func(t *testing.T) {
			store := &storetest.Memory{}
			second := begunElsewhere(t, store, free)
			second.batch(nextOf(7))
			second.batch(nextOf(7))
			synctest.Wait()
			again := second.reruns.asks
			second.reruns.asks = nil
			for i, a := range again {
				if slices.Contains(refused, i) {
					a.rerun.note.(Refusable).Refused()
				} else {
					second.batch(a).ok()
				}
			}
			synctest.Wait()
			require.Empty(t, second.in.resuming)
			second.batch(nextOf(7))
			synctest.Wait()
			if again := second.reruns.asks; len(again) > 0 { // nothing was here
				require.Equal(t, "both", name)
				second.rerun().ok()
			}
			require.EqualValues(t, 4-len(refused), second.in.store.Live(keyOf(7)).Steps())
			require.Empty(t, second.in.resuming)
		})
	}
}

// TestBatchSlotOfAParkedEnd: the direct scheduler gives the batch slot of a sequence to another one as soon as it has handed
// over its END, which may be parked.
func TestBatchSlotOfAParkedEnd(t *testing.T) {
	for name, other := range map[string]ask{"begins": startOf(8), "resumes": startOf(8).saying(resumes)} {
		inBubble(t, name, func(t *testing.T) {
			store := &storetest.Memory{}
			s := begunElsewhere(t, store, directly)
			both := startOf(7).saying(requires)
			both.end = true
			store.Before = func(context.Context, string, string) error { time.Sleep(time.Second / 2); return nil }
			s.batch(both)
			s.batch(other)
			s.batch(nextOf(8))
			for range 8 {
				time.Sleep(600 * time.Millisecond)
				synctest.Wait()
				s.rerun().ok()
			}
			require.Empty(t, s.in.resuming)
			require.Zero(t, s.in.store.Counters().Displaced)
			s.batch(nextOf(8)).ok()
		})
	}
}
