package backend

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clockwork is a clock that goes when it is told to.
type clockwork struct {
	mu  sync.Mutex // answers that were saved wind it, too
	due []func()
}

func (c *clockwork) wind(in *Instance) {
	in.overlaps.quiet.after = func(_ time.Duration, f func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.due = append(c.due, f)
	}
}

// take is what waits now.
func (c *clockwork) take() []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.due
	c.due = nil
	return due
}

// tick lets the time pass that anybody waits for now, and reports whether anyone did.
func (c *clockwork) tick() bool {
	due := c.take()
	for _, f := range due {
		f()
	}
	return len(due) > 0
}

// run lets the server have nothing to do for long.
func (c *clockwork) run(in *Instance, now time.Duration) {
	for c.tick() {
	}
	in.Locked(func() { in.overlaps.settle(in, now) })
}

// busyServer always has something to run, and distinguishes its sequences only in its own
// account: by() is for the reference, and the instance does not see it.
func busyServer(t *testing.T) *server {
	s := newServer(t, slots(16, 8))
	s.busy, s.untold = true, true
	return s
}

// held are the requests of the last batch that were held, and whether they still are.
func (s *server) held() map[int]bool { return s.last.held }

// TestOverlap: a client sends START to END and START to END again of an ID, and waits for
// nothing. The second START is answered and held until the first sequence has ended.
func TestOverlap(t *testing.T) {
	s := busyServer(t)
	s.batch(startOf(7).by(1)).ok()
	require.Empty(t, s.held())
	s.batch(nextOf(7).by(1), startOf(7).by(2)).ok() // both in a batch: the older one first
	require.Equal(t, map[int]bool{1: true}, s.held())
	second := s.held()
	s.batch(nextOf(7).by(1), startOf(7).by(3)).ok() // and a third
	third := s.held()
	s.batch(nextOf(7).by(1)).ok()
	require.Equal(t, map[int]bool{1: true}, second)
	s.batch(endOf(7).by(1)).ok()
	require.Equal(t, map[int]bool{1: false}, second)
	require.Equal(t, map[int]bool{1: true}, third)
	s.batch(nextOf(7).by(2)).ok()
	s.batch(endOf(7).by(2)).ok()
	require.Equal(t, map[int]bool{1: false}, third)
	s.batch(nextOf(7).by(3)).ok()
	s.batch(endOf(7).by(3), startOf(7).by(4)).ok() // END was there: nothing is open
	require.Empty(t, s.held())
	require.Empty(t, s.in.overlaps.ids)
}

// TestOverlapOfFailures: also what fails says whose turn it is.
func TestOverlapOfFailures(t *testing.T) {
	s := busyServer(t)
	s.batch(startOf(7).by(1)).ok()
	s.batch(startOf(7).by(2).wrongInput()).want("input")
	second := s.held()
	s.batch(nextOf(7).by(1)).ok()
	s.batch(wholeOf(7).by(3)).ok()
	require.Empty(t, s.held(), "nothing comes after it")
	s.batch(endOf(7).by(1).cancel()).want("cancelled")
	require.Equal(t, map[int]bool{0: false}, second)
	s.batch(nextOf(7).by(2)).want("sequence 7: its START failed")
	s.batch(startOf(7).by(4)).ok()
	fourth := s.held()
	require.Equal(t, map[int]bool{0: true}, fourth, "the second may have more on its way")
	s.batch(endOf(7).by(2)).want("sequence 7: its START failed")
	require.Equal(t, map[int]bool{0: false}, fourth)
	s.batch(endOf(7).by(4)).ok()
	require.Empty(t, s.in.overlaps.ids)
}

// TestRestartIsReleased: a client that starts again without END goes on as soon as it is
// clear that nothing is queued of what it had.
func TestRestartIsReleased(t *testing.T) {
	begun := func(t *testing.T) *server {
		s := busyServer(t)
		s.batch(startOf(7), startOf(8)).ok()
		s.batch(nextOf(7), nextOf(8)).ok()
		s.batch(startOf(7)).answered(t)
		require.Equal(t, map[int]bool{0: true}, s.held())
		return s
	}
	t.Run("another sequence went on", func(t *testing.T) {
		s := begun(t)
		restart := s.held()
		s.batch(nextOf(8)).answered(t)
		require.Equal(t, map[int]bool{0: true}, restart, "it may have been queued before")
		s.batch(nextOf(8)).ok()
		require.Equal(t, map[int]bool{0: false}, restart)
		s.batch(nextOf(7), nextOf(8)).ok()
	})
	t.Run("the server had nothing to run", func(t *testing.T) {
		s := begun(t)
		restart := s.held()
		for range quietTicks {
			require.Equal(t, map[int]bool{0: true}, restart)
			s.clock.tick()
		}
		require.Equal(t, map[int]bool{0: false}, restart)
		s.batch(nextOf(7)).ok()
		require.Empty(t, s.in.overlaps.ids)
	})
	t.Run("a batch began in time", func(t *testing.T) {
		s := begun(t)
		restart := s.held()
		for range quietTicks - 1 {
			s.clock.tick()
		}
		old := s.clock.take()
		s.batch(nextOf(8)).answered(t)
		for _, f := range old {
			f()
		}
		require.Equal(t, map[int]bool{0: true}, restart)
	})
	t.Run("the instance is closed", func(t *testing.T) {
		s := begun(t)
		restart := s.held()
		s.in.overlaps.close(s.in)
		require.Equal(t, map[int]bool{0: false}, restart)
	})
}

// TestRestartAfterAWhile: where it is clear already, nothing is held.
func TestRestartAfterAWhile(t *testing.T) {
	s := busyServer(t)
	s.batch(startOf(7), startOf(8)).ok()
	s.batch(nextOf(8)).ok()
	s.batch(nextOf(8)).ok()
	s.batch(startOf(7)).ok()
	require.Empty(t, s.held())
	require.EqualValues(t, 1, s.in.store.Counters().Restarted)
}

// TestOvertakenStart: where nothing but a START came before another one, the server may
// have swapped them, and the client may still be sending.
func TestOvertakenStart(t *testing.T) {
	s := busyServer(t)
	s.batch(startOf(7).by(2), startOf(8)).ok()
	s.batch(startOf(7).by(1)).ok()
	first := s.held()
	for range 3 {
		s.batch(nextOf(8)).ok()
	}
	require.Equal(t, map[int]bool{0: true}, first)
	s.batch(endOf(7).by(2)).ok()
	require.Equal(t, map[int]bool{0: false}, first)
	s.batch(endOf(7).by(1)).ok()

	s.batch(startOf(7).by(3)).ok()
	s.batch(startOf(7).by(3)).answered(t)
	again := s.held()
	s.batch(nextOf(8)).answered(t)
	s.now += youth
	s.batch(nextOf(8)).answered(t)
	s.batch(nextOf(8)).ok()
	require.Equal(t, map[int]bool{0: false}, again)
}

// TestReleasedStartsAreNotInUse: STARTs that were released while nothing ran have idled since,
// so that they can make room for the next one.
func TestReleasedStartsAreNotInUse(t *testing.T) {
	s := newServer(t, slots(2, 2), param("when_full", "evict_lru"))
	s.busy, s.untold = true, true
	s.batch(startOf(7), startOf(8)).ok()
	s.batch(nextOf(7), nextOf(8)).ok()
	s.batch(startOf(7), startOf(8)).answered(t)
	require.Equal(t, map[int]bool{0: true, 1: true}, s.held())
	for s.clock.tick() {
	}
	require.NoError(t, s.batch(startOf(9)).answers[0].err)
}
