package statebuffer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serve is a batch in which these sequences are used.
func serve(t *testing.T, s *Store, from, to time.Duration, ids ...uint64) (expired int) {
	t.Helper()
	s.BeginBatch(from)
	for _, id := range ids {
		require.NotNil(t, s.Touch(number(id), from), "%d has no state", id)
	}
	return s.EndBatch(to)
}

// TestIdle: a slot that another sequence needs is free strictly after the limit, counted
// from the last answer. Sequences that need nothing do not affect that.
func TestIdle(t *testing.T) {
	const limit, answered = time.Minute, 20 * time.Second
	tests := []struct {
		name  string
		idle  time.Duration
		after time.Duration // the answer
		room  bool
	}{
		{"at once", limit, 1, false},
		{"at the limit", limit, limit, false},
		{"just over it", limit, limit + 1, true},
		{"no limit", 0, 1 << 60, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestStore(t, Options{Sizing: Sizing{Initial: 1, MaxChunks: 1}, Limits: Limits{Idle: tt.idle, Tombstones: 4}})
			s.BeginBatch(1)
			begin(t, s, number(1), 1)
			require.Zero(t, s.EndBatch(answered))
			s.BeginBatch(answered + tt.after)
			_, err := s.Begin(number(2), answered+tt.after)
			require.Equal(t, tt.room, err == nil, "room for another: %v", err)
		})
	}
}

// TestGone: a sequence whose slot no other needs ends when the instance has waited
// for requests strictly longer than twice the limit and ten seconds since its last
// answer, or after twice the limit and an hour of work.
func TestGone(t *testing.T) {
	const limit = time.Minute
	restless := func(s *Store) (now time.Duration) { // nine tenths of the time in a batch
		for range 1000 {
			require.Zero(t, serve(t, s, now+100*time.Millisecond, now+time.Second, 2))
			now += time.Second
		}
		return now // 100 s of rest
	}
	tests := []struct {
		name    string
		idle    time.Duration
		story   func(s *Store) (now time.Duration)
		expired int
	}{
		{"rest up to the limit", limit, func(s *Store) time.Duration { return 2*limit + 10*time.Second }, 0},
		{"rest beyond it", limit, func(s *Store) time.Duration { return 2*limit + 10*time.Second + 1 }, 1},
		{"much work and some rest", limit, restless, 0},
		{"much work and enough rest", limit, func(s *Store) time.Duration { return restless(s) + 31*time.Second }, 1},
		{"work up to the limit", limit, func(s *Store) time.Duration { return serveFor(t, s, 2*limit+time.Hour) }, 0},
		{"work beyond it", limit, func(s *Store) time.Duration { return serveFor(t, s, 2*limit+time.Hour) + 1 }, 1},
		{"no limit", 0, func(s *Store) time.Duration { return 1 << 60 }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestStore(t, Options{Limits: Limits{Idle: tt.idle, Tombstones: 4}})
			fill(t, s, 1, 3)
			serve(t, s, 0, 0, 1, 2)
			now := tt.story(s)
			require.Equal(t, tt.expired, serve(t, s, now, now, 2))
			_, err := s.Continue(number(1), now)
			require.Equal(t, tt.expired == 1, err != nil)
		})
	}
}

// serveFor is one batch that takes so long.
func serveFor(t *testing.T, s *Store, long time.Duration) time.Duration {
	require.Zero(t, serve(t, s, 1, long, 2))
	return long
}

// TestIdled counts from batch to batch, wherever the run ended.
func TestIdled(t *testing.T) {
	s := newTestStore(t, Options{})
	fill(t, s, 1, 2)
	for _, from := range []time.Duration{100, 300} {
		serve(t, s, from, from+150, 1)
		q, err := s.Continue(number(1), from)
		require.NoError(t, err)
		require.Equal(t, map[time.Duration]time.Duration{100: 99, 300: 200}[from], q.IdleTime())
	}
}
