package backend

import (
	"strings"
	"time"

	"tritonstateful/statebuffer"
)

// overlaps keeps sequences of one ID apart where the server gives nothing that tells
// whose a request is: with the oldest scheduler and no state listed.
//
// The server forgets an ID when its END is queued. So a START of an ID that is known here
// may mean two things: the client begins anew, and what it had is over; or requests of
// the sequence before are still queued, up to its END. Both look alike. But the server
// hands over a request only after the one before it in its sequence was released. So the
// START runs and is held, neither answered nor released: until it is, whatever else comes of
// its ID belongs to the sequence before. It is released when that one has ended, or
// when nothing of it can be queued any more:
//
//   - a request that was queued later has come: the server's queue is one,
//   - or the server has had nothing to run for a while.
type overlaps struct {
	ids  map[statebuffer.Key]*overlap
	last uint64 // token given
	// proof is a time: what was queued when the batches up to then ended has come, in
	// this batch at the latest. before is what it was before this batch.
	proof, before time.Duration
	quiet         quiet
}

// overlap is an ID of which a sequence began before the one before was over.
type overlap struct {
	// older are the sequences before the latest one, in the order of their STARTs. Only
	// the first can have a request in the server's queue.
	older []olderSequence
	// since is the last batch in which there was a request of the ID.
	since        time.Duration
	seen, ending bool // in this batch: a request of the ID, the END of the first
}

type olderSequence struct {
	token   uint64
	release func() // of the START that comes after it, or nil
	// young: nothing but its START had come when the next one came. The server lets a
	// START wait while the place that it was given is still in use, so that a later one
	// of the same ID can overtake it: then this is no older sequence at all, and its
	// client may still be sending.
	young bool
}

// youth is how long nothing must come of a young one before it is over.
const youth = time.Second

// enter begins a batch: requests of older sequences get their tokens.
func (o *overlaps) enter(e *execution) {
	if o.before = o.proof; len(o.ids) == 0 {
		return
	}
	o.settle(e.in, e.now)
	for req := range e.requests {
		r := &e.requests[req]
		if r.Start || r.Token != 0 {
			continue
		}
		if of := o.ids[r.key()]; of != nil {
			of.seen, of.ending = true, of.ending || r.End
			r.Token = of.older[0].token
		}
	}
}

// came is called for each request without START, which was queued after the one before it
// in its sequence had been released.
func (o *overlaps) came(q *statebuffer.Sequence, now time.Duration) {
	o.proof = max(o.proof, now-q.IdleTime())
}

// start is to be called once for each START, before anything is done for it. With a token
// that is not 0, the sequence of its ID that the store knows becomes an older one.
func (o *overlaps) start(e *execution, req int) (token uint64) {
	r := &e.requests[req]
	id := r.key()
	of, known := o.ids[id], e.in.store.Knows(id)
	if of == nil && !known {
		return 0
	}
	q := e.in.store.Live(id)
	if of == nil && q != nil && q.LastRequest() < o.before {
		return 0 // nothing of it is queued: it begins anew
	}
	if of == nil {
		of = &overlap{}
		if o.ids == nil {
			o.ids = map[statebuffer.Key]*overlap{}
		}
		id.Text = strings.Clone(id.Text)
		o.ids[id] = of
	}
	of.seen = true
	if known || of.older[len(of.older)-1].release != nil {
		o.last++
		token = o.last
		of.older = append(of.older, olderSequence{token: token, young: q == nil || q.Steps() < 2})
	}
	if !r.End { // else nothing comes after it
		of.older[len(of.older)-1].release = e.batch.Hold(req)
	}
	return token
}

// leave ends a batch, when its requests have been released.
func (o *overlaps) leave(in *Instance, now time.Duration) {
	if len(o.ids) == 0 {
		return
	}
	for id, of := range o.ids {
		switch {
		case of.ending, !of.seen && o.proof > of.over():
			release := of.older[0].release
			if o.pop(in, id, of, now); release != nil {
				release()
			}
		case of.seen:
			of.since = now
		}
		of.seen, of.ending = false, false
	}
	o.quiet.begin(o.releases())
}

// over is the time from which on a proof says that the first is over.
func (of *overlap) over() time.Duration {
	if of.older[0].young {
		return of.since + youth
	}
	return of.since
}

// pop forgets the first of the older sequences of an ID. The START of the next one is
// released with it, and only then can the server queue what comes after.
func (o *overlaps) pop(in *Instance, id statebuffer.Key, of *overlap, now time.Duration) {
	next := id
	id.Token = of.older[0].token
	in.store.Forget(id)
	of.older, of.since = of.older[1:], now
	if len(of.older) == 0 {
		delete(o.ids, next)
	} else {
		next.Token = of.older[0].token
	}
	in.store.Answered(next, now)
}

// settle pops the older sequences whose STARTs were released while nothing ran.
func (o *overlaps) settle(in *Instance, now time.Duration) {
	for range o.quiet.end() {
		for id, of := range o.ids {
			o.pop(in, id, of, now)
		}
	}
}

// releases are those of the STARTs that are held, in the order in which to call them: all
// of an element, then, when nothing of their sequences can be queued any more, all of the
// next.
func (o *overlaps) releases() (all [][]func()) {
	for _, of := range o.ids {
		for i, older := range of.older {
			if i == len(all) {
				all = append(all, nil)
			}
			if older.release != nil {
				all[i] = append(all[i], older.release)
			}
		}
	}
	return all
}

// close releases what is held.
func (o *overlaps) close(in *Instance) {
	o.settle(in, 0)
	for _, releases := range o.releases() {
		for _, release := range releases {
			release()
		}
	}
	o.ids = nil
}
