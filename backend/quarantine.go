package backend

import (
	"maps"
	"strings"
	"time"
)

// suspects are the sequences whose values have lately made runs fail that others
// shared. Each of their requests runs apart, so that a client who goes on sending such
// values costs the others one small run, and not all the halves of theirs. Whoever is
// new cannot be known: after a START that failed, all STARTs run apart from the rest.
//
// As long as there are none, nothing is looked up.
type suspects struct {
	seen    map[SequenceID]suspicion
	sweepAt time.Duration // when to look for what is over
}

// suspicion is why a sequence runs apart.
type suspicion struct {
	until time.Duration
	left  int // runs that have to succeed before it is over
}

// newcomers is the key of all STARTs. No request of a sequence has this ID.
var newcomers = SequenceID{}

// How many suspects there are at most, for how long at most after their last failure,
// and how many of their requests have to succeed until they are trusted again.
const (
	mostSuspects = 256
	suspectFor   = 10 * time.Second
	suspectRuns  = 8
)

// any tells whether there are suspects.
func (s *suspects) any(now time.Duration) bool {
	if len(s.seen) > 0 && now >= s.sweepAt {
		s.sweep(now)
	}
	return len(s.seen) > 0
}

// sweep forgets those whose time is over.
func (s *suspects) sweep(now time.Duration) {
	maps.DeleteFunc(s.seen, func(_ SequenceID, why suspicion) bool { return now >= why.until })
	s.sweepAt = now + suspectFor
}

// has tells whether a sequence is one.
func (s *suspects) has(id SequenceID) bool {
	_, is := s.seen[id]
	return is
}

// blame makes a sequence a suspect, or keeps it one.
func (s *suspects) blame(id SequenceID, now time.Duration) {
	if !s.has(id) {
		if s.seen == nil {
			s.seen = map[SequenceID]suspicion{}
		}
		if len(s.seen) == 0 {
			s.sweepAt = now + suspectFor
		}
		for some := range s.seen {
			if len(s.seen) < mostSuspects {
				break
			}
			delete(s.seen, some)
		}
		id.Text = strings.Clone(id.Text) // it is borrowed
	}
	s.seen[id] = suspicion{until: now + suspectFor, left: suspectRuns}
}

// trust notes that a request of a sequence has succeeded.
func (s *suspects) trust(id SequenceID) {
	why, is := s.seen[id]
	if !is {
		return
	}
	if why.left--; why.left > 0 {
		s.seen[id] = why
		return
	}
	delete(s.seen, id)
}
