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

// setApart parts the requests of the batch: first those that can be trusted, then STARTs if
// these cannot, then one by one those of suspects. It is false if all can be trusted.
func (e *execution) setApart() bool {
	s, q := &e.in.suspects, &e.queue
	if !s.any(e.now) {
		return false
	}
	starts, found := s.has(newcomers), uint32(0)
	for _, req := range q.requests {
		switch r := &e.requests[req]; {
		case !r.Sequence.IsZero() && s.has(r.Sequence):
			found++
			q.turns[req] = turn{round: 2, kind: found}
		default:
			q.turns[req] = turn{round: uint32(index(starts && r.Start))}
		}
	}
	q.sort(q.requests, false)
	return true
}

// blame notes that the request of a run that failed, which was the only one, may be at
// fault: if it made runs of others fail just now, or runs apart already.
func (e *execution) blame() {
	s, req := &e.in.suspects, e.members[0].req
	id := e.requests[req].Sequence
	switch {
	case len(e.members) > 1 || !e.in.sequences || id.IsZero():
	case e.retried || s.has(id):
		e.blamed = append(e.blamed, req)
	case e.requests[req].Start && s.has(newcomers):
		s.blame(newcomers, e.now)
	}
}

// accuse makes suspects of the sequences that were blamed. Where not a single request of
// the batch succeeded, values are not what is wrong.
func (e *execution) accuse() {
	s := &e.in.suspects
	for _, req := range e.blamed {
		r := &e.requests[req]
		known := s.has(r.Sequence)
		if !known && e.succeeded == 0 {
			continue
		}
		if s.blame(r.Sequence, e.now); r.Start && !known {
			s.blame(newcomers, e.now)
		}
	}
}

// trust notes that a request has succeeded.
func (e *execution) trust(req int) {
	s, r := &e.in.suspects, &e.requests[req]
	if r.Sequence.IsZero() {
		return
	}
	if s.trust(r.Sequence); r.Start {
		s.trust(newcomers)
	}
}
