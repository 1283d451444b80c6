package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/status"
)

// mixedCalls use every ABI call that Execute makes.
func mixedCalls() []faketriton.Call {
	split := echoCall(2, 0, 0)
	split.Inputs[0] = x(i32(3), i32(4))
	text := echoCall(0, 5, 6)
	text.StringID, text.HasStringID, text.Traced = "five", true, true
	text.Parameters = []faketriton.Parameter{{Name: "priority", Value: "high"}, {Name: "stateful-step", Value: "5"}}
	missing := echoCall(4, 0, 0)
	missing.Inputs = missing.Inputs[1:]
	return []faketriton.Call{echoCall(1, 1, 2), split, text, missing}
}

// TestEveryCallOfExecuteFailsOnce makes the n-th ABI call of a batch fail, for
// every n: each request must be answered and released exactly once, or not at
// all where Execute returned the error.
func TestEveryCallOfExecuteFailsOnce(t *testing.T) {
	in := newEcho()
	good := in.execute
	in.execute = func(b backend.Batch) {
		for _, req := range []int{0, 2} {
			b.Describe(req, backend.AnswerParameters{Step: 1})
		}
		b.Hold(2).Release()
		good(b)
	}
	s := serve(t, takesParameters{in})
	for n := 1; ; n++ {
		rs := requests(t, mixedCalls()...)
		faketriton.FailAt(n)
		err := s.instance.Execute(rs...)
		reached := faketriton.Calls() >= n
		faketriton.FailAt(0)
		checkOutcome(t, n, err, rs)
		if !reached {
			require.Greater(t, n, 50, "the sweep is as long as a batch has calls")
			break
		}
	}
	rs := s.execute(t, mixedCalls()...)
	answered(t, rs[0], y(1, 2), z(7))
	answered(t, rs[1], y(3, 4), z(7))
	answered(t, rs[2], y(5, 6), z(7))
	refused(t, rs[3], status.InvalidArg, "missing")
}

func checkOutcome(t *testing.T, n int, err error, rs []*faketriton.Request) {
	t.Helper()
	times := 1
	if err != nil {
		failed(t, err, status.Unavailable, "injected failure")
		times = 0
	}
	for i, r := range rs {
		where := fmt.Sprintf("request %d when call %d failed", i, n)
		require.Equal(t, times, r.Sent(), where)
		require.Equal(t, times, r.Released(), where)
		checkAnswer(t, r, where)
	}
	count, last := faketriton.Violations()
	require.Zero(t, count, "%s when call %d failed", last, n)
	alive := faketriton.CountAlive()
	alive.Messages -= 2 // the backend's configuration and the instance's host policy
	require.Equal(t, faketriton.Alive{}, alive, "when call %d failed", n)
}

// checkAnswer checks that an answer without an error has all outputs.
func checkAnswer(t *testing.T, r *faketriton.Request, where string) {
	t.Helper()
	outputs, err := r.Answer()
	if err == nil && r.Sent() > 0 {
		require.Len(t, outputs, 2, where)
	}
}

// TestEveryCallOfALoadFailsOnce makes the n-th ABI call of the life of a backend
// fail, for every n. Triton calls Finalize whatever Initialize said.
func TestEveryCallOfALoadFailsOnce(t *testing.T) {
	before := faketriton.CountAlive()
	unnoticed := 0 // failures that are not returned: of the log line with the version
	for n := 1; ; n++ {
		faketriton.Reset()
		in := newEcho()
		opened := 0
		m := fakeModel{func(backend.InstanceInfo) (executor, error) { opened++; return in, nil }}
		b := faketriton.NewBackend("{}")
		s := server{backend: b, model: faketriton.NewModel(b, "m", "/m", "{}")}
		s.instance = faketriton.NewInstance(s.model, "m_0", 1, 0)

		faketriton.FailAt(n)
		errs := s.live(m)
		reached := faketriton.Calls() >= n
		faketriton.FailAt(0)
		switch {
		case !reached:
			require.Empty(t, errs)
		case len(errs) == 0:
			unnoticed++
		default:
			require.Len(t, errs, 1, "errors when call %d failed", n)
		}
		if !s.stateUnknown(errs) {
			require.Equal(t, opened, in.closed, "instances when call %d failed", n)
		}

		s.instance.Delete()
		s.model.Delete()
		s.backend.Delete()
		require.Equal(t, before, faketriton.CountAlive(), "when call %d failed", n)
		if !reached {
			require.Greater(t, n, 20)
			require.Equal(t, 1, unnoticed)
			return
		}
	}
}

// live loads and unloads a model as Triton does, and returns what went wrong.
func (s server) live(m model) (errs []error) {
	note := func(err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	}
	if note(s.initialize(componentsOf(m))) {
		if note(s.model.Initialize()) {
			note(s.instance.Initialize())
			note(s.instance.Finalize())
		}
		note(s.model.Finalize())
	}
	note(s.backend.Finalize())
	return errs
}

// stateUnknown reports whether Triton did not pass to Finalize what to finalize.
func (s server) stateUnknown(errs []error) bool {
	return len(errs) == 1 && errs[0].Error() == "code 4: injected failure of TRITONBACKEND_ModelInstanceState"
}
