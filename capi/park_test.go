package main

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/status"
)

// How long a test waits for another goroutine, and how often it looks.
const (
	waitLong  = 10 * time.Second
	waitShort = time.Millisecond
)

// parking is an echo that parks the requests that have no note. The others get their notes,
// which are numbers, as MASK.
type parking struct {
	*fakeInstance
	reruns []func(note any)
	sizes  []int // of the batches of reruns
	// park, if not nil, says which of the requests without a note are parked.
	park func(req int) bool
	of   *reruns
	// run, if not nil, is called for batches of reruns, before anything else.
	run func(backend.Batch)
}

func newParking() *parking {
	p := &parking{fakeInstance: newEcho()}
	good := p.execute
	p.execute = func(b backend.Batch) {
		p.note(b)
		good(b)
	}
	return p
}

func (p *parking) note(b backend.Batch) {
	if p.of == nil {
		p.of = b.(*batch).reruns
	}
	rs := b.Requests()
	again := len(rs) > 0 && rs[0].Note != nil
	if again {
		p.sizes = append(p.sizes, len(rs))
		if p.run != nil {
			p.run(b)
		}
	}
	for req := range rs {
		switch r := &rs[req]; {
		case r.Cancelled:
			b.Fail(req, status.Errorf(status.Cancelled, "cancelled"))
		case r.Note != nil:
			r.Inputs[1].Data = i32(int32(r.Note.(int)))
		case p.park == nil || p.park(req):
			p.reruns = append(p.reruns, b.Park(req))
		}
	}
}

// comeBack waits until the requests are settled and their Execute has returned.
func (i *fakeInstance) comeBack(t *testing.T, rs ...*faketriton.Request) {
	t.Helper()
	require.Eventually(t, released(rs), waitLong, waitShort)
	i.mu.Lock()
	defer i.mu.Unlock()
	settled(t, rs)
}

// released reports whether all of the requests are.
func released(rs []*faketriton.Request) func() bool {
	return func() bool {
		return !slices.ContainsFunc(rs, func(r *faketriton.Request) bool { return r.Released() == 0 })
	}
}

// TestPark: a parked request is left alone by its batch, and runs when it is called.
func TestPark(t *testing.T) {
	p := newParking()
	p.park = func(req int) bool { return req == 1 }
	s := serve(t, p)
	traced := echoCall(2, 3, 4)
	traced.Traced = true
	rs := requests(t, echoCall(1, 1, 2), traced, echoCall(3, 5, 6))
	require.NoError(t, s.instance.Execute(rs...))
	settled(t, []*faketriton.Request{rs[0], rs[2]})
	answered(t, rs[2], y(5, 6), z(7))
	waiting(t, rs[1])
	require.Equal(t, 2, s.instance.BatchStatistics().BatchSize)
	p.run = func(b backend.Batch) {
		*b.Requests()[0].Trace = backend.RunTimes{Gather: 10, Run: 20, Store: 30, End: 40}
	}
	before := uint64(systemClock())
	p.reruns[0](11)
	p.reruns[0](12) // a second call does nothing
	p.comeBack(t, rs[1])
	answered(t, rs[1], y(3, 4), z(11))
	inOrder(t, rs[1].Statistics())
	require.GreaterOrEqual(t, rs[1].Statistics().ExecStart, before)
	require.Equal(t, 1, s.instance.BatchStatistics().BatchSize)
	require.Len(t, rs[1].Activities(), 6)
	require.Equal(t, []int{1}, p.sizes)
}

// TestRerunWhileTheBatchRuns waits for the end of the batch.
func TestRerunWhileTheBatchRuns(t *testing.T) {
	p := newParking()
	good := p.execute
	p.execute = func(b backend.Batch) {
		if b.Requests()[0].Note == nil {
			b.Park(0)(5)
			b.Fail(0, status.Errorf(status.Internal, "does nothing"))
			b.Answer(0, nil, 0, 1) // nor does that
			b.Send()
			return
		}
		good(b)
	}
	s := serve(t, p)
	rs := requests(t, echoCall(1, 1, 2))
	require.NoError(t, s.instance.Execute(rs...))
	p.comeBack(t, rs...)
	answered(t, rs[0], y(1, 2), z(5))
}

// TestManyReruns run in batches of at most the largest size, and in the order of the calls.
func TestManyReruns(t *testing.T) {
	const count = 11
	p := newParking()
	s := serve(t, p)
	rs := requests(t, slices.Repeat([]faketriton.Call{echoCall(1, 1, 2)}, count)...)
	require.NoError(t, s.instance.Execute(rs...))
	waiting(t, rs...)
	p.mu.Lock() // so that the first one waits, and the others come together
	for i, rerun := range p.reruns {
		rerun(100 + i)
	}
	p.mu.Unlock()
	p.comeBack(t, rs...)
	for i, r := range rs {
		answered(t, r, y(1, 2), z(int32(100+i)))
	}
	total := 0
	for _, size := range p.sizes {
		require.LessOrEqual(t, size, p.LargestBatch())
		total += size
	}
	require.Equal(t, count, total)
	require.LessOrEqual(t, len(p.sizes), 7)
}

// TestRerunsFromManyThreads come while batches run, are parked again, held and released.
func TestRerunsFromManyThreads(t *testing.T) {
	const rounds, size = 40, 6
	p := newParking()
	var wg sync.WaitGroup
	good := p.execute
	p.execute = func(b backend.Batch) {
		for req, r := range b.Requests() {
			var n int
			if r.Note != nil {
				n = r.Note.(int)
			}
			switch {
			case n < 2: // twice
				rerun := b.Park(req)
				wg.Go(func() { rerun(n + 1) })
			case req%2 == 0:
				held := b.Hold(req)
				wg.Go(func() { held.ReleaseWith(&backend.AnswerParameters{Step: 1}, nil) })
			}
		}
		if b.Requests()[0].Note == nil {
			return
		}
		good(b)
	}
	p.park = func(int) bool { return false }
	s := serve(t, p)
	var all []*faketriton.Request
	for range rounds {
		rs := requests(t, slices.Repeat([]faketriton.Call{echoCall(1, 1, 2)}, size)...)
		require.NoError(t, s.instance.Execute(rs...))
		all = append(all, rs...)
	}
	p.comeBack(t, all...)
	for _, r := range all {
		answered(t, r, y(1, 2), z(2))
	}
	wg.Wait()
}

// TestTokenOfARerun is what the instance has made of it.
func TestTokenOfARerun(t *testing.T) {
	p := newParking()
	p.park = func(req int) bool { return true }
	good := p.execute
	var tokens []uint64
	p.execute = func(b backend.Batch) {
		for req := range b.Requests() {
			if r := &b.Requests()[req]; r.Note == nil {
				r.Token = uint64(5 + req)
			} else {
				tokens = append(tokens, r.Token)
			}
		}
		good(b)
	}
	s := serve(t, p)
	rs := requests(t, echoCall(1, 1, 2), echoCall(1, 1, 2))
	require.NoError(t, s.instance.Execute(rs...))
	for _, i := range []int{1, 0} {
		p.reruns[i](1)
		p.comeBack(t, rs[i])
	}
	require.Equal(t, []uint64{6, 5}, tokens)
}

// TestCancelledRerun: what has become of the client meanwhile is seen.
func TestCancelledRerun(t *testing.T) {
	p := newParking()
	s := serve(t, p)
	rs := requests(t, echoCall(1, 1, 2))
	require.NoError(t, s.instance.Execute(rs...))
	rs[0].Cancel()
	p.reruns[0](1)
	p.comeBack(t, rs...)
	refused(t, rs[0], status.Cancelled, "cancelled")
}

// TestRerunThatFails: whatever goes wrong, its requests are answered, and the next one runs.
func TestRerunThatFails(t *testing.T) {
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			p := newParking()
			s := serve(t, p)
			rs := requests(t, echoCall(1, 1, 2), echoCall(2, 3, 4))
			require.NoError(t, s.instance.Execute(rs...))
			p.run = func(backend.Batch) { mistake() }
			p.reruns[0](1)
			p.comeBack(t, rs[0])
			refused(t, rs[0], status.Internal, "panic in the stateful backend")
			p.run = nil
			p.reruns[1](1)
			p.comeBack(t, rs[1])
			answered(t, rs[1], y(3, 4), z(1))
		})
	}
}

// TestMistakeAfterPark: the parked request is not answered with the others.
func TestMistakeAfterPark(t *testing.T) {
	p := newParking()
	good := p.execute
	p.execute = func(b backend.Batch) {
		if b.Requests()[0].Note == nil {
			p.reruns = append(p.reruns, b.Park(0))
			panic("because")
		}
		good(b)
	}
	s := serve(t, p)
	rs := requests(t, echoCall(1, 1, 2), echoCall(2, 3, 4))
	require.NoError(t, s.instance.Execute(rs...))
	refused(t, rs[1], status.Internal, "because")
	waiting(t, rs[0])
	p.reruns[0](1)
	p.comeBack(t, rs[0])
	answered(t, rs[0], y(1, 2), z(1))
}

// TestRequestInUse cannot be parked, and one that is parked cannot be held.
func TestRequestInUse(t *testing.T) {
	for name, use := range map[string]func(backend.Batch){
		"answered": func(b backend.Batch) { b.Fail(0, status.Errorf(status.Internal, "x")); b.Park(0) },
		"held":     func(b backend.Batch) { defer b.Hold(0).Release(); b.Park(0) },
		"parked":   func(b backend.Batch) { defer b.Park(0)(1); b.Park(0) },
		"hold":     func(b backend.Batch) { defer b.Park(0)(1); b.Hold(0) },
	} {
		t.Run(name, func(t *testing.T) {
			in := then(use)
			s := serve(t, in)
			rs := requests(t, echoCall(1, 1, 2), echoCall(2, 3, 4))
			require.NoError(t, s.instance.Execute(rs...))
			in.comeBack(t, rs...)
			refused(t, rs[1], status.Internal, "parked")
		})
	}
}

// refusable counts how often it is told.
type refusable int

func (r *refusable) Refused() { *r++ }

// TestUnloadWithParkedRequests: Triton waits for them. If it did not, what runs again would
// run first, and what comes later would be answered with an error.
func TestUnloadWithParkedRequests(t *testing.T) {
	p := newParking()
	s := newServer(t, fakeModel{func(backend.InstanceInfo) (executor, error) { return p, nil }})
	require.NoError(t, s.model.Initialize())
	require.NoError(t, s.instance.Initialize())
	rs := requests(t, echoCall(1, 1, 2), echoCall(2, 3, 4))
	require.NoError(t, s.instance.Execute(rs...))
	p.reruns[0](1)
	require.NoError(t, s.instance.Finalize())
	settled(t, rs[:1])
	answered(t, rs[0], y(1, 2), z(1))
	require.Equal(t, 1, p.closed)
	told := refusable(0)
	p.reruns[1](&told)
	require.EqualValues(t, 1, told)
	require.Equal(t, []int{1, 1, 0}, []int{rs[1].Sent(), rs[1].Released(), rs[1].Statistics().Reports})
	_, err := rs[1].Answer()
	failed(t, err, status.Unavailable, "the model was unloaded")
	require.NoError(t, s.model.Finalize())
	require.NoError(t, s.backend.Finalize())
}

// TestEveryCallOfARerunFailsOnce makes the n-th ABI call of a batch and of its rerun fail, for
// every n: each request is answered and released exactly once.
func TestEveryCallOfARerunFailsOnce(t *testing.T) {
	p := newParking()
	s := serve(t, takesParametersAndParks{p})
	for n := 1; ; n++ {
		p.reruns = nil
		rs := requests(t, mixedCalls()...)
		faketriton.FailAt(n)
		err := s.instance.Execute(rs...)
		for _, rerun := range p.reruns {
			rerun(1)
		}
		if err == nil {
			require.Eventually(t, released(rs), waitLong, waitShort)
			p.of.rest()
		}
		reached := faketriton.Calls() >= n
		faketriton.FailAt(0)
		checkOutcome(t, n, err, rs)
		if !reached {
			require.Greater(t, n, 100, "the sweep is as long as both batches have calls")
			return
		}
	}
}

// rest waits until nothing is to run again.
func (r *reruns) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.isRunning {
		r.ended.Wait()
	}
}

type takesParametersAndParks struct{ *parking }

func (takesParametersAndParks) TakesParameters() bool { return true }
