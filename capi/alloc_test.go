//go:build !asan

package main

import (
	"runtime/cgo"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
)

// TestBatchAllocatesNothing proves it with Go 1.26 for batches of a size that
// was there before, of any number of requests.
func TestBatchAllocatesNothing(t *testing.T) {
	for range 300 { // handles above 255 do not fit into an interface
		cgo.NewHandle(nil).Delete()
	}
	in := newEcho()
	good := in.execute
	in.execute = func(b backend.Batch) {
		b.Describe(0, backend.AnswerParameters{Step: b.Requests()[0].Parameters.Step})
		good(b)
	}
	s := serve(t, takesParameters{in})
	faketriton.KeepData()
	calls := slices.Repeat([]faketriton.Call{echoCall(1, 1, 2)}, 64)
	calls[0].Parameters = []faketriton.Parameter{named("stateful_step", "5"), named("stateful_key", "key"), named("stateful_save", true)}
	rs := requests(t, calls...)
	_, err := s.instance.ExecuteTimes(1, rs...)
	require.NoError(t, err)
	const times = 1000
	perTimes := testing.AllocsPerRun(1, func() { _, err = s.instance.ExecuteTimes(times, rs...) })
	require.NoError(t, err)
	require.Less(t, perTimes, float64(times)/10, "allocations of %d batches", times)
}
