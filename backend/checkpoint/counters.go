package checkpoint

import (
	"time"

	"tritonstateful/backend/config"
)

// Counters count what has happened since the Saver was made.
type Counters struct {
	Saved, SavedBytes, Failed, Fenced       uint64
	Restored, Missing, NotRestored, Damaged uint64
	// Saturated are elements that checkpoint_precision clamped.
	Saturated uint64
	// Seconds are how long calls of the store took since they were last taken.
	Seconds []float64
}

// mostSeconds bounds the observations that nobody takes.
const mostSeconds = 1 << 12

func (c *Counters) observe(took time.Duration) {
	if len(c.Seconds) < mostSeconds {
		c.Seconds = append(c.Seconds, took.Seconds())
	}
}

// Backlog is what is not saved at a moment.
type Backlog struct {
	Sequences int           // that have steps to save
	Oldest    time.Duration // how long the first of them waits that is to be saved
}

func (s *Saver) count(add func(*Counters)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.counters)
}

// Measure returns the counters and what is not saved. seconds is the last result's Seconds, whose
// memory is used again.
func (s *Saver) Measure(seconds []float64) (Counters, Backlog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, now := s.counters, s.clock()
	s.counters.Seconds = seconds[:0]
	b := Backlog{Sequences: s.dirty.len + s.ready.len + s.urgent.len + s.jobs}
	for _, l := range []*entryList{&s.dirty, &s.ready, &s.urgent} {
		if l == &s.dirty && s.policy.When == config.EverySteps {
			continue // they have too few steps, and may never have more
		}
		if e := l.first; e != nil && e.unsaved() {
			b.Oldest = max(b.Oldest, now-e.since)
		}
	}
	return c, b
}
