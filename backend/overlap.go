package backend

import (
	"math"
	"strings"
	"sync/atomic"
	"time"

	"tritonstateful/statebuffer"
)

// overlaps distinguishes sequences of one ID where the server does not say which of them a
// request belongs to: with the oldest scheduler and no state listed.
//
// The server forgets an ID when its END is queued. So a START of an ID that is known here
// may mean two things: the client starts again, and the old sequence is over; or requests of
// the old sequence are still queued, up to its END. Both look the same. But the server hands
// over a request only after the one before it in its sequence was released. So the START
// runs and is held, neither answered nor released: until it is, all other requests of its ID
// belong to the old sequence. It is released when the old sequence has ended, or when none
// of its requests can be queued any more:
//
//   - a request that was queued later has come, because the server has one queue,
//   - or the server has had nothing to run for a while.
//
// Neither says anything while an answer to the old sequence waits until its state is saved: the
// request after it is queued only then.
type overlaps struct {
	ids  map[statebuffer.Key]*overlap
	last uint64 // token that was given
	// drained is a time: requests that were queued when the batches up to then ended have
	// come, in this batch at the latest. drainedBefore is the time before this batch.
	drained, drainedBefore time.Duration
	quiet                  quiet
	any                    atomic.Bool // there are ids
}

// overlap is an ID that has a new sequence before the old one is known to be over.
type overlap struct {
	// older are the sequences before the latest one, in the order of their STARTs. Only
	// the first can have a request in the server's queue.
	older []olderSequence
	// since is the last batch in which there was a request of the ID.
	since        time.Duration
	seen, ending bool // in this batch: a request of the ID, the END of the first
}

type olderSequence struct {
	token uint64
	next  Held // the START that comes after it, or nil
	// young: only its START had come when the next one came. The server lets a START wait
	// while its batch slot is still in use, so a later START of the same ID can overtake
	// it: then this is no older sequence at all, and its client may still be sending.
	young bool
}

// youth is how long a young sequence must have no request before it is over.
const youth = time.Second

// enter begins a batch: requests of older sequences get their tokens.
func (o *overlaps) enter(e *execution) {
	if o.drainedBefore = o.drained; len(o.ids) == 0 {
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

// came notes a request without START. It was queued after the one before it in its
// sequence had been released.
func (o *overlaps) came(q *statebuffer.Sequence, now time.Duration) {
	o.drained = max(o.drained, now-q.IdleTime())
}

// start is called once for each START, before anything else is done for it. If it returns a
// token that is not 0, the sequence of its ID that the store knows becomes an older one.
func (o *overlaps) start(e *execution, req int) (token uint64) {
	r := &e.requests[req]
	id := r.key()
	of, known := o.ids[id], e.in.store.Knows(id)
	if of == nil && !known {
		return 0
	}
	q := e.in.store.Live(id)
	if of == nil && q != nil && q.LastRequest() < o.drainedBefore {
		return 0 // none of its requests is queued: the client starts again
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
	if known || of.older[len(of.older)-1].next != nil {
		o.last++
		token = o.last
		of.older = append(of.older, olderSequence{token: token, young: q == nil || q.Steps() < 2})
	}
	if !r.End { // else nothing comes after it
		of.older[len(of.older)-1].next = e.batch.Hold(req)
	}
	return token
}

// leave ends a batch, when its requests have been released.
func (o *overlaps) leave(in *Instance, now time.Duration) {
	if len(o.ids) == 0 {
		o.any.Store(false)
		return
	}
	o.any.Store(true) // before answers are looked at
	for id, of := range o.ids {
		switch {
		case of.ending, !of.seen && o.drained > max(of.over(), of.heldUntil(in, id)):
			next := of.older[0].next
			if o.pop(in, id, of, now); next != nil {
				next.Release()
			}
		case of.seen:
			of.since = now
		}
		of.seen, of.ending = false, false
	}
	o.quiet.begin(o.held(in))
}

// lookAgain is leave between two batches: an answer that waited has been sent.
func (o *overlaps) lookAgain(in *Instance) {
	if in.store == nil { // closed
		return
	}
	o.settle(in, in.server().Clock())
	o.leave(in, in.server().Clock())
}

// heldUntil is when the last answer to the first was sent that waited until a state was saved.
func (of *overlap) heldUntil(in *Instance, id statebuffer.Key) time.Duration {
	id.Token = of.older[0].token
	if q := in.store.Live(id); q != nil {
		if entry := entryOf(q); entry != nil {
			return entry.HeldUntil()
		}
	}
	return 0
}

// over is the time after which the first is over once requests have drained up to then.
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

// held are the STARTs that are held, in the order in which to release them: all of one
// element, and when none of the requests of their sequences can be queued any more, all of the
// next. There are none while an answer to one of the first waits until its state is saved.
func (o *overlaps) held(in *Instance) (all [][]Held) {
	for id, of := range o.ids {
		if of.heldUntil(in, id) == math.MaxInt64 {
			return nil
		}
		for i, older := range of.older {
			if i == len(all) {
				all = append(all, nil)
			}
			if older.next != nil {
				all[i] = append(all[i], older.next)
			}
		}
	}
	return all
}

// close releases the STARTs that are held.
func (o *overlaps) close(in *Instance) {
	o.settle(in, 0)
	for _, starts := range o.held(in) {
		for _, start := range starts {
			start.Release()
		}
	}
	o.ids = nil
}
