package backend

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTraces: a traced request gets the times of its own run, the others and those that do not
// run get none.
func TestTraces(t *testing.T) {
	s := newServer(t, slots(8, 2))
	s.takes(time.Millisecond)
	traced := func(a ask, times *RunTimes) ask { return a.with(func(r *Request) { r.Trace = times }) }
	var first, second, refused, again RunTimes
	s.batch(traced(startOf(1), &first), traced(wholeOf(2), &second), traced(nextOf(9), &refused), traced(startOf(3), &again))
	require.Zero(t, refused)
	require.Equal(t, first, second, "one run")
	for _, times := range []RunTimes{first, again} {
		require.Positive(t, times.Gather)
		require.LessOrEqual(t, times.Gather, times.Run)
		require.GreaterOrEqual(t, times.Store-times.Run, time.Millisecond)
		require.LessOrEqual(t, times.Store, times.End)
	}
	require.GreaterOrEqual(t, again.Gather, first.End, "a later run of the batch")

	s.runner.before = func() error { return errors.New("no") }
	var failed RunTimes
	s.batch(traced(nextOf(1), &failed)).want("no")
	require.Positive(t, failed.Run)
	require.Zero(t, failed.Store)
	require.GreaterOrEqual(t, failed.End, failed.Run)
}
