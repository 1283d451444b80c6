package backend

import (
	"slices"
	"time"

	"tritonstateful/statebuffer"
)

// Execute runs one batch. When it returns, every request of it has been answered
// exactly once and released, whatever happened. It stays on its goroutine, so on
// its thread, starts no other one, and allocates nothing for batches whose sizes
// it has seen before.
//
// A batch is usually one run of the model. It is more when two requests of one
// sequence meet in it: Triton forgets a correlation ID when its END is queued, so
// a new START of the same ID can come with the old sequence's last request.
func (in *Instance) Execute(batch Batch) {
	e := &in.work
	e.take(batch)
	defer e.finish()
	e.begin()
	for e.next() {
		e.attempt()
	}
}

// attempt is one run. Whatever becomes of it, those that wait are still to run.
func (e *execution) attempt() {
	defer e.rescue()
	e.gather()
	e.run()
	e.keep()
	e.respond()
}

// execution is the work on one batch. Its slices are kept for the next one.
type execution struct {
	in       *Instance
	batch    Batch
	requests []Request
	now      time.Duration
	arrivals []arrival // of each request
	queue    queue     // requests that still have to run
	blamed   []int     // requests whose runs failed, see blame
	timing   Timing

	// The current run.
	members []member
	lanes   []statebuffer.Lane // of the members, one after another; then comes padding
	spreads []spread           // of each of wiring.masks
	ioSet   *ioSet
	lengths []uint64 // of each of wiring.lengths, see measure
	step    *statebuffer.Step
	retried bool // its members were in a run that was undone
	phase   phase

	held      int // lanes of runs whose answers wait, see answer.go
	parts     int // how many of these runs have a slice of answers of their own
	succeeded int // requests whose run succeeded
	timings   timings
}

// arrival is what a request of a batch finds when the batch begins.
type arrival struct {
	continuing *statebuffer.Sequence // the sequence that it goes on with, or nil
	begun      bool                  // the overlaps know of its START
}

// member is a request in a run. It takes one lane, or several if the model has no
// sequences.
type member struct{ req, firstLane, lanes int }

// phase is how far a run has come.
type phase uint8

const (
	admitted  phase = iota // has members, or none yet
	gathered               // its inputs and states are in the tensors, and its step is open
	ran                    // the model has written the outputs
	committed              // the new states are kept, and the step is closed
	failed                 // its members have their errors, and the step, if any, is aborted
)

// take makes e the work on a batch.
func (e *execution) take(batch Batch) {
	*e = execution{in: e.in, batch: batch, now: e.in.server().Clock(),
		arrivals: e.arrivals[:0], queue: e.queue, blamed: e.blamed[:0],
		members: e.members[:0], lanes: e.lanes[:0], spreads: e.spreads, lengths: e.lengths[:0]}
}

// begin notes who is in the batch, before anybody can lose a state for
// somebody else's sake. With the direct scheduler a request's index is the place
// that its sequence has in the batch until another one STARTs there. Requests
// without START come first, because one that shares its key with a START belongs
// to the sequence before.
func (e *execution) begin() {
	in := e.in
	in.store.BeginBatch(e.now)
	e.timings.begin(e.now)
	e.requests = e.batch.Requests()
	e.arrivals = slices.Grow(e.arrivals, len(e.requests))[:len(e.requests)]
	clear(e.arrivals)
	e.queue.reset(len(e.requests))
	if in.direct {
		for req := range e.requests {
			if r := &e.requests[req]; r.Token == 0 {
				r.Token = uint64(req) + 1
			}
		}
	}
	in.overlaps.enter(e)
	for _, starts := range []bool{false, true} {
		for req := range e.requests {
			r := &e.requests[req]
			if r.Start != starts {
				continue
			}
			if !starts { // else what it had does not matter
				q := in.store.Touch(r.key(), e.now)
				if e.arrivals[req].continuing = q; q != nil {
					in.overlaps.came(q, e.now)
				}
			}
			e.queue.add(req)
		}
	}
	if !e.setApart() {
		e.queue.close()
	}
	e.split()
}

// keep stores the new states, which nothing could see until now.
func (e *execution) keep() {
	if e.phase != ran || e.partUneven() {
		return
	}
	if err := e.in.store.Commit(e.step, e.now); err != nil {
		e.blame()
		e.failRun(storing(err))
		return
	}
	e.step, e.phase = nil, committed
	e.failRefused()
	e.measureOutputs()
	for i, length := range e.lengths {
		for _, l := range e.lanes {
			if l.Sequence != nil && l.Refused == nil {
				l.Sequence.Add(i, length)
			}
		}
	}
	e.timings.add(&e.timings.scatter, e.in.server().Clock())
}
