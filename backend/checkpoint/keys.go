package checkpoint

import (
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// A key can have several entries at a time: a client that sends START once more, or reuses an
// ID after END, does not wait until the store has done what the sequence before needs. Only the
// latest one calls the store. It waits until the job of an earlier one is over, since calls that
// are under way together may reach the store in any order, and the last to begin owns the key.

// enter notes that an entry calls the store, or will.
func (s *Saver) enter(e *Entry, now time.Duration) {
	if e.entered {
		return
	}
	e.entered = true
	before := s.latest[e.key]
	if before != nil && before.number > e.number {
		s.supersede(e, now)
		return
	}
	s.latest[e.key] = e
	if before == nil {
		return
	}
	if before.working || before.held {
		before.after, e.held = e, true
	}
	s.supersede(before, now)
}

// leave notes that an entry does not call the store any more, and lets the next one do so.
func (s *Saver) leave(e *Entry, now time.Duration) {
	if !e.entered {
		return
	}
	e.entered = false
	if s.latest[e.key] == e {
		delete(s.latest, e.key)
	}
	if next := e.after; next != nil {
		e.after, next.held, next.began = nil, false, now
		s.place(next, now)
	}
}

// supersede ends the calls for an entry because a later one has its key.
func (s *Saver) supersede(e *Entry, now time.Duration) {
	e.superseded = true
	s.lose(e, statebuffer.TakenOver)
	s.place(e, now)
}

// BeganAgain notes that the ID of a sequence has begun again while requests of the sequence may be
// queued. They run, but nothing of it is saved any more: the START deletes that.
func (s *Saver) BeganAgain(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.superseded, e.again, e.lost = true, true, true
	s.place(e, s.clock())
}

// refusal is the answer to those who wait for an entry that is lost, or whose store has failed.
// The END of a superseded one has nothing more to delete, and no one can want the steps back of
// a sequence whose client has begun another one.
func (e *Entry) refusal() error {
	switch {
	case e.superseded && e.end == drops, e.again && e.end == goesOn:
		return nil
	case e.superseded:
		return status.Errorf(status.Unavailable, "the state was not saved: a later sequence has the same key in the store")
	case e.lost:
		return status.Errorf(status.Unavailable, "the state was not saved: the sequence has lost its state here")
	default:
		return status.Errorf(status.Unavailable, "the state was not saved: the store has failed, see the server's log; it is tried again")
	}
}

// dropping reports whether what is saved under a key is about to be deleted.
func (s *Saver) dropping(key string) bool {
	e := s.latest[key]
	return e != nil && e.end == drops && !e.lost
}

// swept is how many entries of live sequences are looked at each time, so that the cost does not
// depend on how many sequences are idle.
const swept = 16

// maxReady is how many entries may wait for a store that is down before those whose sequences
// are gone are given up: what is saved of them expires.
const maxReady = 1 << 14

// sweep removes entries that have nothing to save any more, because their sequences have lost their
// states. With an interval they become ready soon, and with it this is found out. The lock of the
// instance is held.
func (s *Saver) sweep(now time.Duration) {
	if s.policy.When != config.EveryInterval { // else the order of the list counts
		s.removeDead(&s.dirty, now)
	}
	if s.ready.len > maxReady {
		s.removeDead(&s.ready, now)
	}
}

func (s *Saver) removeDead(l *entryList, now time.Duration) {
	alive := 0
	for range l.len {
		e := l.first
		if alive == swept || e == nil {
			return
		}
		e.unlink()
		if e.alive() {
			alive++
			l.push(e)
		} else {
			e.lost = true
			s.place(e, now)
		}
	}
}
