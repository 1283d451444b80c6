package checkpoint

import (
	"math"
	"runtime/debug"
	"time"
)

// serve is the goroutine of the Saver.
func (s *Saver) serve() {
	defer close(s.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.wake:
		case <-timer.C:
		}
		wait, over := s.turn()
		if over {
			return
		}
		timer.Reset(wait)
	}
}

// turn does what is to be done now, and returns when to look again at the latest.
func (s *Saver) turn() (wait time.Duration, over bool) {
	defer func() {
		if p := recover(); p != nil { // it would end the server
			s.log.Error("panic while states were saved", "panic", p, "stack", string(debug.Stack()))
			wait = maxBackoff
		}
	}()
	s.mu.Lock()
	over, idle := s.closed, s.urgent.len+s.ready.len+s.dirty.len+len(s.lost) == 0
	if idle {
		s.lookAt = math.MaxInt64
	}
	s.mu.Unlock()
	if over || idle {
		return math.MaxInt64, over
	}
	var refused []told
	s.source.Locked(func() { wait, refused = s.pump() })
	tell(refused)
	return wait, false
}

// pump begins jobs, as long as there is room, under the lock of the instance.
func (s *Saver) pump() (wait time.Duration, refused []told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast() // for flush
	defer s.loseAll()
	now := s.clock()
	s.sweep(now)
	for s.nextDue() <= now {
		e := s.dirty.first
		e.unlink()
		s.ready.push(e)
	}
	at, refused := s.begin(now)
	s.lookAt = min(at, s.nextDue())
	if s.lookAt == math.MaxInt64 {
		return math.MaxInt64, refused
	}
	return s.lookAt - now, refused
}

// begin begins jobs for the entries that are ready. It returns when those that are left can begin.
func (s *Saver) begin(now time.Duration) (at time.Duration, refused []told) {
	at = math.MaxInt64
	if now < s.retryAt { // those who wait are not kept waiting
		for e := s.urgent.first; e != nil; e = s.urgent.first {
			refused = e.refuse(refused)
			s.unsaved(e)
			e.unlink()
			s.place(e, now)
		}
		return min(at, s.retryAt), refused
	}
	for e := s.urgent.first; e != nil && s.hasRoom(); e = s.urgent.first {
		refused = s.start(e, now, refused)
	}
	for e := s.ready.first; e != nil && s.hasRoom(); e = s.ready.first {
		if s.paidAt > now && e.unsaved() && !s.flushing {
			at = min(at, s.paidAt)
			break
		}
		refused = s.start(e, now, refused)
	}
	return at, refused
}

// LoseRefused has the sequences lose their states that are to. The execution calls it before a
// batch, under the lock of the instance: the client of a refused save is told at once, and its next
// request must not find the state.
func (s *Saver) LoseRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseAll()
}

// loseAll has the sequences lose their states that are to. One whose ID has begun again keeps
// it, but is not saved any more: requests of it may be queued.
func (s *Saver) loseAll() {
	for _, e := range s.lost {
		if e.alive() && !(e.superseded && e.sequence.IsOlder()) {
			s.source.Lose(e.sequence, e.reason)
		}
	}
	clear(s.lost)
	s.lost = s.lost[:0]
}

// hasRoom reports whether one more job may begin. After a failure, one is tried at a time.
func (s *Saver) hasRoom() bool {
	if s.failures > 0 {
		return s.jobs == 0
	}
	return s.jobs < maxJobs && (s.jobs == 0 || s.bytes < maxBytes)
}

// start begins the job of an entry, if there is something to do. It adds the waiters who wait
// for what cannot be saved any more to those that are refused.
func (s *Saver) start(e *Entry, now time.Duration, refused []told) []told {
	e.unlink()
	j := s.jobOf(e)
	if !e.lost && e.unsaved() && (len(e.waiters) > 0 || e.end == pauses || s.due(e, now)) {
		switch {
		case j.saves:
			s.pay(j.bytes, now)
		case !e.alive():
			e.lost = e.epoch != 0 // else what an earlier sequence has saved is to be deleted
			refused = e.refuse(refused)
			e.steps, e.saved = 0, 0
		default:
			if err := j.snapshot(s.source); err != nil {
				s.counters.Failed++
				s.log.Error("could not take a snapshot of a sequence's state", "key", e.key, "error", err)
				refused = e.refuse(refused)
				e.since = now
				s.dirty.push(e)
				s.unused = append(s.unused, j)
				return refused
			}
			s.pay(j.bytes, now)
		}
	}
	if e.lost || e.epoch != 0 && !j.saves && e.end != drops {
		s.unused = append(s.unused, j)
		refused = e.refuse(refused)
		s.place(e, now)
		return refused
	}
	e.working = true
	s.jobs++
	s.bytes += j.bytes
	s.run(j)
	return refused
}

// pay notes that so many bytes are saved.
func (s *Saver) pay(bytes int64, now time.Duration) {
	if s.policy.Rate > 0 {
		s.paidAt = max(s.paidAt, now) + time.Duration(float64(bytes)/float64(s.policy.Rate)*float64(time.Second))
	}
}
