package main

import (
	"fmt"
	"strings"
	"time"
)

// rules are what a model may do with the sequences of its clients.
type rules struct {
	Model     string        `json:"model"`
	Evicts    bool          `json:"evicts"`     // when_full is evict_lru
	Budget    bool          `json:"budget"`     // max_state_memory_bytes is given
	EndSilent bool          `json:"end_silent"` // infer_end_requests is 0: the answer to END is empty
	Idle      time.Duration `json:"idle"`       // max_sequence_idle_microseconds, in nanoseconds
}

// kind is what came of a request.
type kind int

const (
	answered  kind = iota
	cancelled      // by us, so that nobody knows whether it ran
	dropped        // Triton has forgotten the idle sequence
	expired        // the backend has
	evicted
	unknown
	refused // an earlier START was
	failed  // an earlier START did
	full
	budget
	// overtaken is an END that Triton gave to the backend after the START that was sent behind it, unanswered, of the
	// next sequence of the same ID: it ended that one. Clients who wait for the answer to END are safe.
	overtaken
	forbidden // an error that should not be
	foreign   // an answer from a state that is not the sequence's
	kinds
)

var kindNames = [kinds]string{"answered", "cancelled", "dropped by Triton", "expired", "evicted", "unknown",
	"START was refused", "START failed", "full", "over the budget", "END overtaken", "NOT ALLOWED", "FOREIGN VALUES"}

// texts tell the kind of an error, the first that is found in it.
var texts = []struct {
	text string
	kind kind
}{
	{"must specify the START flag", dropped},
	{"its state expired", expired},
	{"its state was evicted", evicted},
	{"no such sequence is known", unknown},
	{"its START was refused", refused},
	{"its START failed", failed},
	{"too many simultaneous sequences", full},
	{"max_state_memory_bytes", budget},
}

// exchange is a request and its answer.
type exchange struct {
	start, end bool
	name       int64 // what the request carries; with START it becomes the sequence's name
	sent       time.Time
	done       bool
	err        string
	values     [3]int64 // least and greatest name found in the states, and the count of steps
	empty      bool     // the answer has no such values
	// successor is the name of the sequence whose START was sent behind this END without waiting; 0: none was.
	successor int64
}

// account is what a client knows of its sequence. It is the plain model that every answer is held against.
type account struct {
	alive bool
	name  int64
	steps int64
	// slack is how many requests were cancelled on the way since the last answer: each may have been a step.
	slack int64
	// lost: a START or END was cancelled, so that only a START makes sense.
	lost bool
	// overtaken: the END before was, so the START that comes now is of a sequence that has ended already.
	overtaken bool
	// doubtful: an END before, whose answer tells nothing, may have been overtaken by the sequence's START.
	doubtful bool
	last     time.Time // when the last request was sent
}

// settle brings the account up to date with an exchange, and tells its kind; the text says what is wrong with a
// forbidden or foreign one.
func (a *account) settle(x *exchange, r *rules) (k kind, text string) {
	idle := x.sent.Sub(a.last)
	a.last = x.sent
	if x.err != "" {
		return a.settleError(x, r, idle)
	}
	if x.start {
		*a = account{alive: true, name: x.name, last: x.sent, overtaken: a.overtaken, doubtful: a.doubtful}
	}
	silent := x.end && r.EndSilent
	switch {
	case silent:
		a.doubtful = x.successor != 0
	case x.successor != 0 && x.values == [3]int64{x.successor, x.successor, 2}:
		a.overtaken = true
		return overtaken, ""
	default:
		if text := a.compare(x); text != "" {
			a.alive = false
			return foreign, text
		}
		a.steps, a.slack = x.values[2], 0
		a.doubtful = a.doubtful && x.start
	}
	a.alive = a.alive && !x.end && !a.overtaken
	a.overtaken = false
	return answered, ""
}

// compare says what is wrong with an answer.
func (a *account) compare(x *exchange) string {
	switch {
	case !a.alive:
		return fmt.Sprintf("answered with %v, but the sequence has no state", x.values)
	case x.empty:
		return "the answer is empty"
	case x.values[0] != a.name || x.values[1] != a.name:
		return fmt.Sprintf("the states are of %#x to %#x, the sequence is %#x", x.values[0], x.values[1], a.name)
	case x.values[2] <= a.steps || x.values[2] > a.steps+a.slack+1:
		return fmt.Sprintf("it is step %d, %d were answered before and %d cancelled", x.values[2], a.steps, a.slack)
	}
	return ""
}

func (a *account) settleError(x *exchange, r *rules, idle time.Duration) (kind, string) {
	k := forbidden
	for _, t := range texts {
		if strings.Contains(x.err, t.text) {
			k = t.kind
			break
		}
	}
	before := *a
	if k != budget || x.start {
		a.alive = false
	}
	a.alive = a.alive && !x.end
	a.doubtful, a.overtaken = false, false
	if k == forbidden || !before.allows(k, x, r, idle) {
		return forbidden, fmt.Sprintf("%s (START %v, END %v, %v after the last request, account %+v)", x.err, x.start, x.end, idle, before)
	}
	return k, ""
}

// allows tells whether an error of that kind can be.
func (a *account) allows(k kind, x *exchange, r *rules, idle time.Duration) bool {
	gone := !a.alive || idle > r.Idle/2 // of two requests under load, the second can be on its way for much longer
	switch k {
	case full:
		return x.start && !r.Evicts
	case budget:
		return r.Budget
	case dropped: // also after a request was cancelled
		return !x.start && (gone || a.slack > 0)
	case expired:
		return !x.start && gone
	case evicted:
		return !x.start && r.Evicts
	case unknown:
		return !x.start && (!a.alive || a.doubtful)
	case refused, failed:
		return !x.start && !a.alive
	}
	return false
}

// abandon is for an exchange that was cancelled on its way.
func (a *account) abandon(x *exchange) {
	a.last = x.sent
	if x.start || x.end {
		a.lost = true
		return
	}
	a.slack++
}
