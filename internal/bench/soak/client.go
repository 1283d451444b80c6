package main

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"time"

	"tritonstateful/clients/go/kserve"
)

// exchange is a request and its answer.
type exchange struct {
	start, end bool
	name       int64 // what the request carries; with START it becomes the sequence's name
	// successor is the name of the sequence whose START was sent right after this END; 0: none was.
	successor int64
	sent      time.Time

	done    bool // it was answered; all below is of the answer
	err     string
	values  [3]int64 // least and greatest name found in the states, and the count of steps
	empty   bool     // the answer has no such values
	latency time.Duration
}

// client is a correlation ID and a client that uses it as it pleases: one sequence after the other, with breaks, with
// requests that come too late, and at times with two requests on the way at once. It knows of its sequence what it needs
// for that; what is right is for the checker to say.
type client struct {
	model    int // its number
	id       kserve.SequenceID
	requests [2]*kserve.ModelInferRequest
	pending  []exchange // in the order in which they were sent; at most two
	names    int64      // the last name that was used

	alive bool // the last request was answered, and did not end the sequence
	lost  bool // a START or END was cancelled: only a START makes sense
}

// newClient makes client number id of a model, the local-th of its stream.
func newClient(model int, name string, id uint64, local int) *client {
	c := &client{model: model, id: kserve.SequenceID{Number: id}, names: int64(id) << 32}
	for i := range c.requests {
		x := kserve.Tensor{Name: "X", Datatype: "INT64", Shape: []int64{1, 1}, Data: make([]byte, 8)}
		c.requests[i] = kserve.NewRequest(name, strconv.Itoa(2*local+i), []kserve.Tensor{x}, "Y")
	}
	return c
}

// decide fills pending with what the client sends next.
func (c *client) decide(rng *rand.Rand) {
	c.pending = c.pending[:0]
	add := func(start, end bool) {
		c.names++ // a request without START carries a name too, which must not show
		c.pending = append(c.pending, exchange{start: start, end: end, name: c.names})
	}
	dice := rng.IntN(100)
	switch {
	case c.lost:
		add(true, false)
	case !c.alive && dice < 70:
		add(true, dice < 5)
	case !c.alive && dice < 75:
		add(true, false)
		add(false, false)
	case !c.alive:
		add(false, dice < 80)
	case dice < 80:
		add(false, false)
	case dice < 85:
		add(false, true)
	case dice < 88:
		add(true, false)
	case dice < 91:
		add(false, false)
		add(false, false)
	case dice < 98: // the new sequence can meet the old one's last request in one batch
		add(false, true)
		add(true, false)
		c.pending[0].successor = c.pending[1].name
	default:
		add(false, true)
		add(false, false)
	}
	c.lost = false
}

// prepare is the request of pending exchange i.
func (c *client) prepare(i int, now time.Time) *kserve.ModelInferRequest {
	x, r := &c.pending[i], c.requests[i]
	x.sent = now
	binary.LittleEndian.PutUint64(r.GetRawInputContents()[0], uint64(x.name))
	r.SetStep(c.id, x.start, x.end)
	return r
}

// note keeps an answer; it reports whether all that were sent have come.
func (c *client) note(i int, a *answer) (all bool) {
	x := &c.pending[i]
	x.done, x.err, x.values, x.empty, x.latency = true, a.err, a.values, a.empty, a.at.Sub(x.sent)
	for i := range c.pending {
		if !c.pending[i].done {
			return false
		}
	}
	return true
}

// learn is what the client makes of an exchange that is over.
func (c *client) learn(x *exchange) {
	switch {
	case x.done:
		c.alive = x.err == "" && !x.end
	case x.start || x.end:
		c.lost = true
	}
}

// pause is how long the client waits before it decides again: mostly not at all, at times about as long as a sequence
// may idle, so that some come back in time and some too late.
func pause(rng *rand.Rand, idle time.Duration) time.Duration {
	if rng.IntN(100) > 0 {
		return 0
	}
	return time.Duration(rng.Int64N(int64(2 * idle)))
}
