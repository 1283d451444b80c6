package backend

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/statestore/storetest"
	"tritonstateful/internal/status"
)

// TestFreeMiss: a request of a sequence that has no state here goes on with what is saved, and
// the requests after it wait for it.
func TestFreeMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		saved := func(edits ...func(*setup)) []func(*setup) {
			return append([]func(*setup){savedIn(t, store, "steps=1"), free}, edits...)
		}
		first := newServer(t, saved()...)
		first.batch(startOf(7), startOf(8)).ok()
		first.batch(nextOf(7)).ok()
		synctest.Wait()
		second := goesOn(t, first, store, saved()...)
		second.resumed(nextOf(7), nextOf(8), endOf(7), startOf(7), nextOf(7)).ok()
		require.Equal(t, uint64(2), second.in.store.Live(keyOf(7)).Steps())
		require.Equal(t, uint64(2), second.in.store.Live(keyOf(8)).Steps())
		synctest.Wait()
		second.forget(9)
		o := second.resumed(nextOf(9), nextOf(9), nextOf(8))
		o.want("sequence 9: no such sequence is known", "sequence 9: no such sequence is known")
		require.Equal(t, status.NotFound, status.CodeOf(o.answers[0].err))
		second.batch(endOf(8), endOf(7)).ok()
		synctest.Wait()
		second.resumed(nextOf(8)).want("no such sequence is known")
	})
}

// TestFreeMissLater: what comes in later batches waits, too.
func TestFreeMissLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		second := begunElsewhere(t, store, free)
		second.batch(nextOf(7))
		second.batch(nextOf(7), startOf(9)).answered(t)
		second.batch(startOf(7).cancel())
		synctest.Wait()
		second.rerun()
		require.Zero(t, len(second.in.resuming))
		second.batch(nextOf(7)).want("its START failed") // and not on with what was saved before it
	})
}

// TestFreeMissDown: while the store cannot say, a request whose sequence may be there is neither
// refused for good nor begun.
func TestFreeMissDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		edits := []func(*setup){savedIn(t, store, "steps=1"), free, param("begin", "implicit")}
		s := newServer(t, edits...)
		s.resumed(nextOf(7)).ok()
		synctest.Wait()
		store.Before = func(context.Context, string, string) error { return errors.New("down") }
		s.resumed(nextOf(8), nextOf(8)).want("sequence 8: asking the store for its state: down", "sequence 8: asking the store for its state: down").code(status.Unavailable)
		s.batch(nextOf(7)).ok()
	})
}

// TestFreeImplicitAfterEnd: an ID that is used again begins with the initial values, however
// slowly the store hears of the END.
func TestFreeImplicitAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"), free, param("begin", "implicit"))
		s.resumed(nextOf(7)).ok()
		synctest.Wait()
		store.Before = slowly("End", 100*time.Millisecond)
		s.batch(endOf(7)).ok()
		s.batch(nextOf(7))
		time.Sleep(time.Second)
		synctest.Wait()
		s.rerun().ok()
	})
}

// TestFreeResumeWords: the parameter resume says who has the store asked.
func TestFreeResumeWords(t *testing.T) {
	for word, want := range map[string][3]string{
		"on_miss":    {"", "", ""},
		"on_request": {"no such sequence is known", "", ""},
		"off":        {"no such sequence is known", "the parameter resume of this model is off", "the parameter resume of this model is off"},
	} {
		inBubble(t, word, func(t *testing.T) {
			store := &storetest.Memory{}
			edits := []func(*setup){savedIn(t, store, "steps=1"), free}
			first := newServer(t, edits...)
			first.batch(startOf(7), startOf(8), startOf(9)).ok()
			synctest.Wait()
			s := goesOn(t, first, store, append(edits, param("resume", word))...)
			for i, a := range []ask{nextOf(7), nextOf(8).saying(resumes), startOf(9).saying(requires)} {
				o := s.batch(a)
				synctest.Wait()
				if again := s.rerun(); len(again.answers) > 0 {
					o = again
				}
				got := o.answers[0]
				if want[i] == "" {
					require.NoError(t, got.err, "request %d", i)
				} else {
					require.ErrorContains(t, got.err, want[i], "request %d", i)
				}
			}
		})
	}
}

// TestFreeParkedTimeout: the time at the store counts.
func TestFreeParkedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := begunElsewhere(t, store, free)
		store.Before = slowly("Take", 100*time.Millisecond)
		s.batch(nextOf(7).with(func(r *Request) { r.Timeout = 50 * time.Millisecond }), nextOf(7))
		time.Sleep(time.Second)
		synctest.Wait()
		s.rerun().want("the timeout of the request, 50ms, passed", "")
	})
}

// TestFreeSteps: stateful_step keeps requests that were reordered from running in the wrong
// order.
func TestFreeSteps(t *testing.T) {
	s := newServer(t, free)
	s.batch(startOf(7).saying(atStep(0))).ok()
	s.batch(nextOf(7).saying(atStep(2)), nextOf(7).saying(atStep(1))).want("step 2 leaves a gap: expected step 1", "")
	s.batch(endOf(7).saying(atStep(1))).want("step 1 was done before: expected step 2").code(status.AlreadyExists)
	s.batch(endOf(7).saying(atStep(2))).ok()
}

// slowly has a method of a store take its time.
func slowly(method string, took time.Duration) func(context.Context, string, string) error {
	return func(_ context.Context, called, _ string) error {
		if called == method {
			time.Sleep(took)
		}
		return nil
	}
}

// TestFreeMissGivenUp: when the first request of a sequence gives up while it waits, those after
// it go on with what is saved. They do not begin anew.
func TestFreeMissGivenUp(t *testing.T) {
	for _, begin := range []string{"start", "implicit"} {
		inBubble(t, begin, func(t *testing.T) {
			store := &storetest.Memory{}
			edits := []func(*setup){savedIn(t, store, "steps=1"), free, param("begin", begin)}
			first := newServer(t, edits...)
			first.batch(startOf(7)).ok()
			synctest.Wait()
			second := goesOn(t, first, store, edits...)
			second.batch(nextOf(7), nextOf(7), nextOf(7))
			synctest.Wait()
			second.reruns.asks[0].cancelled = true
			second.rerun()
			synctest.Wait()
			second.rerun().ok()
			require.Zero(t, len(second.in.resuming))
			require.Equal(t, uint64(3), second.in.store.Live(keyOf(7)).Steps())
		})
	}
}

// TestFreeOvertaken: of several instances of the server, each runs its own parked requests again. One
// that comes before the first of its sequence goes on with what is saved, too.
func TestFreeOvertaken(t *testing.T) {
	for name, c := range map[string]struct {
		asks  []ask
		order []int
		steps uint64
	}{
		"next":   {[]ask{nextOf(7), nextOf(7), nextOf(7)}, []int{1, 2, 0}, 4},
		"start":  {[]ask{nextOf(7), startOf(7)}, []int{1, 0}, 2},
		"resume": {[]ask{nextOf(7), nextOf(7).saying(requires)}, []int{1, 0}, 3},
		"ended":  {[]ask{nextOf(7), nextOf(7), endOf(7)}, []int{1, 0, 2}, 0},
	} {
		for _, begin := range []string{"start", "implicit"} {
			inBubble(t, name+" "+begin, func(t *testing.T) {
				store := &storetest.Memory{}
				edits := []func(*setup){savedIn(t, store, "steps=1"), free, param("begin", begin)}
				first := newServer(t, edits...)
				first.batch(startOf(7)).ok()
				synctest.Wait()
				second := goesOn(t, first, store, edits...)
				for _, a := range c.asks {
					second.batch(a)
				}
				synctest.Wait()
				again := second.reruns.asks
				second.reruns.asks = nil
				require.Len(t, again, len(c.asks))
				for _, i := range c.order {
					if o := second.batch(again[i]); name != "resume" {
						o.ok()
					}
				}
				synctest.Wait()
				for range 2 {
					second.rerun().ok()
					synctest.Wait()
				}
				require.Empty(t, second.in.resuming)
				require.Empty(t, second.log.having("taken over"))
				if q := second.in.store.Live(keyOf(7)); c.steps > 0 {
					require.Equal(t, c.steps, q.Steps())
					goesOn(t, second, store, edits...).resumed(nextOf(7)).ok()
				} else {
					require.Nil(t, q)
				}
			})
		}
	}
}

// TestFreeMissFull: a sequence whose saved state finds no room does not begin anew, although there
// is room for the request after it.
func TestFreeMissFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		edits := []func(*setup){slots(1, 1), savedIn(t, store, "steps=1"), free, param("begin", "implicit")}
		first := newServer(t, edits...)
		first.batch(startOf(7)).ok()
		synctest.Wait()
		second := newServer(t, edits...)
		second.batch(startOf(8)).ok()
		second.batch(nextOf(7), nextOf(7))
		synctest.Wait()
		second.reruns.asks = []ask{second.reruns.asks[0], endOf(8), second.reruns.asks[1]}
		o := second.rerun()
		for _, req := range []int{0, 2} {
			require.ErrorContains(t, o.answers[req].err, "sequence 7: restoring its state: too many simultaneous sequences")
		}
		second.plain = first.plain
		second.resumed(nextOf(7)).ok()
	})
}

// TestFreeEndOfFailedStart: after a START that failed, no END makes the next request go on with what
// was saved before it.
func TestFreeEndOfFailedStart(t *testing.T) {
	for _, infer := range []string{"1", "0"} {
		for name, end := range map[string]ask{"plain": endOf(7), "cancelled": endOf(7).cancel()} {
			inBubble(t, name+", infer_end_requests "+infer, func(t *testing.T) {
				s := newServer(t, savedIn(t, &storetest.Memory{}, "steps=1"), free, param("infer_end_requests", infer))
				s.batch(startOf(7)).ok()
				synctest.Wait()
				s.batch(startOf(7).cancel())
				s.batch(end)
				s.batch(nextOf(7)).want("its START failed")
				s.batch(startOf(7)).ok()
			})
		}
	}
}

// TestFreeCancelledEnd: it ends its sequence in the store, too, where the last step may not be saved.
func TestFreeCancelledEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, savedIn(t, &storetest.Memory{}, "steps=2"), free)
		for _, r := range []ask{startOf(7), nextOf(7), nextOf(7)} {
			s.batch(r).ok()
			synctest.Wait()
		}
		s.batch(endOf(7).cancel()).want("cancelled")
		synctest.Wait()
		s.forget(7)
		s.resumed(nextOf(7)).want("no such sequence is known")
	})
}

// TestFreeStepsNotSaved: a sequence that lost its state on this server does not go on without its
// last steps in silence.
func TestFreeStepsNotSaved(t *testing.T) {
	for _, begin := range []string{"start", "implicit"} {
		inBubble(t, begin, func(t *testing.T) {
			store := &storetest.Memory{}
			s := newServer(t, slots(1, 1), param("when_full", "evict_lru"), savedIn(t, store, "steps=2"), free, param("begin", begin))
			s.batch(startOf(7)).ok()
			s.batch(nextOf(7)).ok()
			synctest.Wait()
			saved := plainSequence{slices.Clone(s.plain["7"].states)}
			s.batch(nextOf(7)).ok()
			s.forget(7)
			time.Sleep(time.Millisecond)
			s.batch(startOf(8)).ok()
			const want = "sequence 7: its state was evicted 1ms ago to make room for another sequence: there are at most 1 slots (max_sequences); " +
				"the last 1 of its steps were not saved: its next request goes on after step 2"
			time.Sleep(time.Millisecond)
			s.resumed(nextOf(7), nextOf(7)).want(want, want).code(status.NotFound)
			s.plain = map[string]*plainSequence{"7": &saved}
			time.Sleep(time.Millisecond)
			s.resumed(nextOf(7)).ok()
			s.batch(nextOf(7)).ok()
			synctest.Wait()
			all := s.plain["7"]
			s.forget(7)
			time.Sleep(time.Millisecond)
			s.batch(startOf(8)).ok()
			s.plain = map[string]*plainSequence{"7": all}
			time.Sleep(time.Millisecond)
			s.resumed(nextOf(7)).ok() // all are saved
			time.Sleep(time.Millisecond)
			s.batch(startOf(8).saying(atStep(0)))
			s.forget(8)
			time.Sleep(time.Millisecond)
			s.resumed(nextOf(7).saying(atStep(5))).want("step 5 leaves a gap: expected step 4")
		})
	}
}
