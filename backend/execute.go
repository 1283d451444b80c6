package backend

import (
	"slices"
	"time"

	"tritonstateful/backend/checkpoint"
	"tritonstateful/statebuffer"
)

// Execute runs one batch. When it returns, every request of it has been answered
// exactly once and released, whatever happened. It stays on its goroutine, so on
// its thread, starts no other one, and allocates nothing for batches whose sizes
// it has seen before.
//
// A batch is usually one run of the model. It is a loop, because requests may have to
// run in several runs, one after the other:
//
//   - Requests of one sequence do not share a run. Triton forgets a correlation ID when
//     its END is queued, so a new START of the same ID can come with the last request of
//     the old sequence (admit).
//   - Requests do not share a run whose inputs, generated inputs or states differ where
//     the model takes one shape, or one value, for all lanes; nor sequences of unequal
//     length whose padding would cost too much (joins).
//   - A run has at most as many lanes as the largest batch, and a single one for a model
//     without a batch axis (joins, endsBefore).
//   - A batch of large states is split where smaller runs measure faster (splitter).
//   - Sequences that made runs fail run by themselves for a while (quarantine).
//   - The members of a run that failed, maybe because of a value in one of them, run again
//     in halves; so do those of a run in which a state became too long (retryHalves).
//   - Sequences of unequal length that shared a run run again separately, if it showed that
//     the model does not append to its states (retryUneven).
func (in *Instance) Execute(batch Batch) {
	handed := in.server().Clock()
	in.ticker.mu.Lock() // a tick can have it, a batch of requests that were parked, or of another instance
	defer in.ticker.mu.Unlock()
	e := &in.work
	e.take(batch)
	e.handed = handed
	defer e.finish()
	e.begin()
	for e.next() {
		e.attempt()
	}
}

// attempt makes one run. Whatever becomes of it, requests that wait are still to run; so are
// its members if it is to be retried.
func (e *execution) attempt() {
	defer e.rescue()
	times := RunTimes{Gather: e.timings.last}
	if e.gather(); e.phase == gathered {
		times.Run = e.timings.last
	}
	if e.run(); e.phase == ran {
		times.Store = e.timings.last
	}
	e.commit()
	e.noteTimes(times)
	e.respond()
}

// execution is the work on one batch. Its slices are kept for the next one.
type execution struct {
	in       *Instance
	batch    Batch
	requests []Request     // of the batch; req is an index into them everywhere
	handed   time.Duration // when the server handed it over
	now      time.Duration // when it began
	arrivals []arrival     // of each request
	queue    queue         // requests that still have to run
	failures []int         // requests whose runs failed, see noteFailure
	timing   Timing

	// The current run.
	members []member
	lanes   []statebuffer.Lane // of the members, one after another; then comes padding
	spreads []spread           // of each of plan.Masks
	ioSet   *ioSet
	lengths []uint64 // of each of plan.Lengths, see measureLengths
	step    *statebuffer.Step
	retried bool // its members were in a run that was undone
	phase   phase

	waitingLanes int // lanes of runs whose answers wait, see send
	waitingRuns  int // how many of these runs have a slice of answers of their own
	succeeded    int // requests whose run succeeded
	traced       bool
	timings      timings
}

// arrival is what a request of a batch finds when the batch begins.
type arrival struct {
	continuing *statebuffer.Sequence // the sequence that it goes on with, or nil
	begun      bool                  // the overlaps know of its START

	came    time.Duration     // when the server handed it over, before it was parked
	of      *resuming         // what it waited for, if it was parked
	asked   bool              // the store has said what it has
	resumed bool              // its sequence goes on with what was saved
	pauses  bool              // its sequence is saved after it, and forgotten here
	parked  bool              // it waits for the store
	epoch   uint64            // of a START for which the store had nothing
	entry   *checkpoint.Entry // of its sequence, after the run
	steps   uint64            // of its sequence, after the run
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
		arrivals: e.arrivals[:0], queue: e.queue, failures: e.failures[:0],
		members: e.members[:0], lanes: e.lanes[:0], spreads: e.spreads, lengths: e.lengths[:0]}
}

// begin notes which sequences are in the batch, before one can lose its state to another,
// and queues the requests. With the direct scheduler a request's index is the batch slot
// that its sequence has until another one STARTs there. Requests without START come first,
// because one that shares its key with a START belongs to the sequence before. Only those of
// free sequences come in order.
func (e *execution) begin() {
	in := e.in
	if in.saver != nil {
		in.saver.LoseRefused()
	}
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
	for req := range e.requests {
		e.traced = e.traced || e.requests[req].Trace != nil
	}
	in.overlaps.enter(e)
	if in.keeps {
		for req := range e.requests {
			e.arrivals[req].came = e.handed
			if e.arrivals[req].parked = e.waits(req); !e.arrivals[req].parked {
				e.pauses(req)
			}
		}
	}
	if in.free {
		e.enqueue(func(*Request) bool { return true })
	} else {
		e.enqueue(func(r *Request) bool { return !r.Start })
		e.enqueue(func(r *Request) bool { return r.Start })
	}
	if !e.separate() {
		e.queue.close()
	}
	e.split()
}

// enqueue puts those requests into the queue that are of a kind.
func (e *execution) enqueue(ofKind func(*Request) bool) {
	in := e.in
	for req := range e.requests {
		r, a := &e.requests[req], &e.arrivals[req]
		if a.parked || !ofKind(r) {
			continue
		}
		if !r.Start || in.free { // else what it had does not matter
			if a.continuing = in.store.Touch(r.key(), e.now); a.continuing != nil {
				in.overlaps.came(a.continuing, e.now)
			}
		}
		e.queue.add(req)
	}
}

// commit makes the new states the current ones. Until now nothing could see them.
func (e *execution) commit() {
	if e.phase != ran || e.retryUneven() {
		return
	}
	e.noteEnds()
	if err := e.in.store.Commit(e.step, e.now); err != nil {
		e.noteFailure()
		e.failRun(storing(err))
		return
	}
	e.step, e.phase = nil, committed
	e.failRefused()
	e.measureOutputs()
	for i, length := range e.lengths {
		for _, lane := range e.lanes {
			if lane.Sequence != nil && lane.Refused == nil {
				lane.Sequence.Add(i, length)
			}
		}
	}
	e.save()
	e.timings.add(&e.timings.scatter, e.in.server().Clock())
}
