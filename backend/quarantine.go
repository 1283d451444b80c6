package backend

import (
	"maps"
	"strings"
	"time"
)

// quarantine holds the sequences whose values have lately made runs fail that they shared
// with others. Each of their requests runs by itself, so that a client that goes on sending
// such values costs the others one small run, and not all the halves of theirs. A new
// sequence is not known by its ID: after a START that failed, all STARTs run separately
// from the other requests.
//
// As long as it is empty, nothing is looked up.
type quarantine struct {
	held    map[SequenceID]quarantined
	sweepAt time.Duration // when to look for sequences whose time is over
}

// quarantined is how long a sequence stays.
type quarantined struct {
	until time.Duration
	left  int // requests that have to succeed before it leaves
}

// allStarts is the key for all STARTs. No request of a sequence has this ID.
var allStarts = SequenceID{}

// How many sequences are in quarantine at most, for how long at most after their last
// failure, and how many of their requests have to succeed until they leave.
const (
	quarantineMost = 256
	quarantineFor  = 10 * time.Second
	quarantineRuns = 8
)

// any reports whether a sequence is in quarantine.
func (q *quarantine) any(now time.Duration) bool {
	if len(q.held) > 0 && now >= q.sweepAt {
		q.sweep(now)
	}
	return len(q.held) > 0
}

// sweep lets sequences go whose time is over.
func (q *quarantine) sweep(now time.Duration) {
	maps.DeleteFunc(q.held, func(_ SequenceID, of quarantined) bool { return now >= of.until })
	q.sweepAt = now + quarantineFor
}

// has reports whether a sequence is in quarantine.
func (q *quarantine) has(id SequenceID) bool {
	_, is := q.held[id]
	return is
}

// failed puts a sequence into quarantine, or starts its time again.
func (q *quarantine) failed(id SequenceID, now time.Duration) {
	if !q.has(id) {
		if q.held == nil {
			q.held = map[SequenceID]quarantined{}
		}
		if len(q.held) == 0 {
			q.sweepAt = now + quarantineFor
		}
		for some := range q.held {
			if len(q.held) < quarantineMost {
				break
			}
			delete(q.held, some)
		}
		id.Text = strings.Clone(id.Text) // it is borrowed
	}
	q.held[id] = quarantined{until: now + quarantineFor, left: quarantineRuns}
}

// succeeded notes that a request of a sequence has succeeded.
func (q *quarantine) succeeded(id SequenceID) {
	of, is := q.held[id]
	if !is {
		return
	}
	if of.left--; of.left > 0 {
		q.held[id] = of
		return
	}
	delete(q.held, id)
}
