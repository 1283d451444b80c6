package main

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/status"
)

// then is an echo that does something else first in its first batch.
func then(first func(backend.Batch)) *fakeInstance {
	in := newEcho()
	good, once := in.execute, sync.Once{}
	in.execute = func(b backend.Batch) {
		once.Do(func() { first(b) })
		good(b)
	}
	return in
}

// waiting checks that nothing has become of the requests yet.
func waiting(t *testing.T, rs ...*faketriton.Request) {
	t.Helper()
	for i, r := range rs {
		require.Equal(t, []int{0, 0, 0}, []int{r.Sent(), r.Released(), r.Statistics().Reports}, "request %d", i)
	}
}

// TestHold: a request that is held is answered, reported and released when the instance says
// so, also one that fails.
func TestHold(t *testing.T) {
	var held []backend.Held
	s := serve(t, then(func(b backend.Batch) {
		held = append(held, b.Hold(1), b.Hold(2))
		b.Fail(2, status.Errorf(status.Unavailable, "not today"))
	}))
	rs := requests(t, echoCall(1, 1, 2), echoCall(2, 3, 4), echoCall(3, 5, 6))
	require.NoError(t, s.instance.Execute(rs...))
	settled(t, rs[:1])
	waiting(t, rs[1:]...)
	require.Equal(t, 2, s.instance.BatchStatistics().BatchSize)
	next := requests(t, echoCall(1, 5, 6))
	require.NoError(t, s.instance.Execute(next...))
	for _, h := range held {
		h.Release()
	}
	settled(t, append(rs, next...))
	answered(t, rs[1], y(3, 4), z(7))
	refused(t, rs[2], status.Unavailable, "not today")
	inOrder(t, rs[1].Statistics())
}

// TestHoldThatFails: an answer that waits can still become an error, which counts as one. An
// error of the run stays, and of two that come while it waits the first.
func TestHoldThatFails(t *testing.T) {
	var held []backend.Held
	s := serve(t, then(func(b backend.Batch) {
		held = append(held, b.Hold(0), b.Hold(1), b.Hold(2), b.Hold(2))
		b.Fail(1, status.Errorf(status.Internal, "did not run"))
		b.Describe(0, backend.AnswerParameters{Step: 1})
	}))
	rs := requests(t, echoCall(1, 1, 2), echoCall(2, 3, 4), echoCall(3, 5, 6))
	require.NoError(t, s.instance.Execute(rs...))
	held[0].ReleaseWith(&backend.AnswerParameters{Step: 2}, status.Errorf(status.Unavailable, "not saved"))
	held[1].ReleaseWith(nil, status.Errorf(status.Unavailable, "not saved"))
	held[2].ReleaseWith(nil, status.Errorf(status.Unavailable, "first"))
	waiting(t, rs[2])
	held[3].ReleaseWith(nil, status.Errorf(status.Unavailable, "second"))
	settled(t, rs)
	refused(t, rs[0], status.Unavailable, "not saved")
	require.Empty(t, rs[0].AnswerParameters())
	refused(t, rs[1], status.Internal, "did not run")
	refused(t, rs[2], status.Unavailable, "first")
}

// holding is an instance that releases what it holds after it was closed, as one that goes on for
// another instance of the server does.
type holding struct {
	*fakeInstance
	held backend.Held
}

func (h *holding) Close() {
	go func() {
		time.Sleep(10 * time.Millisecond)
		h.held.Release()
	}()
}

// TestUnloadWithHeldRequests: an answer that waits is reported to its instance, which must not be
// gone.
func TestUnloadWithHeldRequests(t *testing.T) {
	h := &holding{}
	h.fakeInstance = then(func(b backend.Batch) { h.held = b.Hold(0) })
	s := newServer(t, fakeModel{func(backend.InstanceInfo) (executor, error) { return h, nil }})
	require.NoError(t, s.model.Initialize())
	require.NoError(t, s.instance.Initialize())
	rs := requests(t, echoCall(1, 1, 2))
	require.NoError(t, s.instance.Execute(rs...))
	waiting(t, rs...)
	require.NoError(t, s.instance.Finalize())
	settled(t, rs)
	require.NoError(t, s.model.Finalize())
	require.NoError(t, s.backend.Finalize())
}

// TestReleaseBeforeFinish has its effect when the batch is finished.
func TestReleaseBeforeFinish(t *testing.T) {
	s := serve(t, then(func(b backend.Batch) {
		b.Hold(0).Release()
		b.Hold(1).ReleaseWith(nil, status.Errorf(status.Unavailable, "not saved"))
		b.Hold(2).ReleaseWith(nil, status.Errorf(status.Unavailable, "not saved"))
		b.Fail(2, status.Errorf(status.Internal, "did not run"))
	}))
	rs := s.execute(t, echoCall(1, 1, 2), echoCall(2, 3, 4), echoCall(3, 5, 6))
	answered(t, rs[0], y(1, 2), z(7))
	refused(t, rs[1], status.Unavailable, "not saved")
	refused(t, rs[2], status.Internal, "did not run")
}

// TestAnswerParameters are sent with an answer, but not with an error; the latest count.
func TestAnswerParameters(t *testing.T) {
	var held backend.Held
	s := serve(t, then(func(b backend.Batch) {
		b.Describe(0, backend.AnswerParameters{Step: 8})
		b.Describe(0, backend.AnswerParameters{Step: 9, SavedStep: -1, Resumed: true})
		b.Describe(1, backend.AnswerParameters{Step: 1})
		b.Fail(1, status.Errorf(status.Internal, "did not run"))
		held = b.Hold(3)
		b.Describe(3, backend.AnswerParameters{Step: 4})
	}))
	rs := requests(t, echoCall(1, 1, 2), echoCall(2, 3, 4), echoCall(3, 5, 6), echoCall(4, 7, 8))
	require.NoError(t, s.instance.Execute(rs...))
	held.ReleaseWith(&backend.AnswerParameters{Step: 5, SavedStep: 5}, nil)
	settled(t, rs)
	require.Equal(t, map[string]any{"stateful_step": int64(9), "stateful_saved_step": int64(-1), "stateful_resumed": true}, rs[0].AnswerParameters())
	require.Empty(t, rs[1].AnswerParameters())
	require.Empty(t, rs[2].AnswerParameters())
	require.Equal(t, map[string]any{"stateful_step": int64(5), "stateful_saved_step": int64(5), "stateful_resumed": false}, rs[3].AnswerParameters())
}

// TestHoldsFromManyThreads: whoever releases a request last sends its answer, and nobody else.
func TestHoldsFromManyThreads(t *testing.T) {
	const holds = 8
	var held []backend.Held
	in := newEcho()
	good := in.execute
	in.execute = func(b backend.Batch) {
		for req := range b.Requests() {
			for range holds {
				held = append(held, b.Hold(req))
			}
		}
		go held[0].Release() // while the batch runs
		good(b)
	}
	s := serve(t, in)
	for range 50 {
		held = held[:0]
		rs := requests(t, echoCall(1, 1, 2), echoCall(2, 3, 4))
		require.NoError(t, s.instance.Execute(rs...))
		var wg sync.WaitGroup
		for i, h := range held[1:] {
			wg.Go(func() { h.ReleaseWith(&backend.AnswerParameters{Step: int64(i)}, nil) })
		}
		wg.Wait()
		require.Eventually(t, func() bool { return rs[0].Released() == 1 }, waitLong, waitShort)
		settled(t, rs)
		answered(t, rs[1], y(3, 4), z(7))
	}
}
