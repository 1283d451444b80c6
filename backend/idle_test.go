package backend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// takes lets each run of the model take that long.
func (s *server) takes(run time.Duration) {
	s.runner.before = func() error { s.now += run; return nil }
}

// TestQueuedSequencesKeepTheirState: five clients whose requests are always in the
// server's queue, which one run after the other works off, wait for longer than twice
// the idle limit. No other sequence needs their slots, so they go on.
func TestQueuedSequencesKeepTheirState(t *testing.T) {
	s := newServer(t, slots(14, 1), idleLimit(300*time.Millisecond))
	s.takes(190 * time.Millisecond)
	const clients = 5
	for id := range clients {
		s.batch(startOf(1 + id)).ok()
	}
	for range 20 {
		for id := range clients {
			s.batch(nextOf(1 + id)).ok()
		}
	}
	require.Zero(t, s.in.store.Counters().Expired)

	for id := range 9 {
		s.batch(startOf(10 + id)).ok()
	}
	s.forget(1)
	s.batch(startOf(20)).ok() // takes the slot of the one that was used least recently
	require.EqualValues(t, 1, s.in.store.Counters().Expired)
	s.batch(nextOf(1)).want("its state expired 190ms ago")
}

func idleLimit(limit time.Duration) func(*setup) {
	return func(s *setup) { s.config.Sequence.MaxIdleMicroseconds = uint64(limit.Microseconds()) }
}
