package backend

import (
	"strings"
	"time"

	"tritonstateful/backend/checkpoint"
	"tritonstateful/backend/config"
	"tritonstateful/internal/statestore"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// A START with stateful_resume waits for the store outside of its batch: it is parked, and comes
// again in another batch when the store has answered. What else comes of its sequence meanwhile
// waits, too.

// resuming is a sequence for whose state the store is asked.
type resuming struct {
	key statebuffer.Key
	// waiting are the requests that came after the first, until the store has answered.
	waiting  []func()
	answered bool
	err      error // why the store could not say, or its answer could not be used
	unused   bool  // who was to use the answer gave up, so the next one asks
	left     int   // requests that are still to come again

	resumption checkpoint.Resumption // the answer, until a request has come again
	taken      bool                  // one has
	life       uint64                // of the sequence that was live here, 0 if none was
}

// parked is the note of a request that was parked.
type parked struct {
	in    *Instance
	of    *resuming
	first bool
	came  time.Duration // when the server handed it over
}

// waits parks the request if it is to wait for the store, or comes after one that does, and
// reports whether it did. For one that comes again, it takes in what the store has said.
func (e *execution) waits(req int) bool {
	in, r := e.in, &e.requests[req]
	if note, again := r.Note.(*parked); again {
		return e.comesAgain(req, note)
	}
	if in.saver != nil && !in.free && !r.Sequence.IsZero() {
		if of := in.resuming[in.waitKey(r)]; of != nil {
			e.park(req, of)
			return true
		}
	}
	return e.asks(req)
}

// waitKey is what requests have in common that wait for each other: those of a sequence. With the direct scheduler it is the
// batch slot. The server gives that to another sequence as soon as it has handed over an END, which may be parked.
func (in *Instance) waitKey(r *Request) statebuffer.Key {
	if in.direct {
		return statebuffer.Key{Token: r.Token}
	}
	return r.key()
}

// asks has the store asked for the state of a START that resumes, and reports whether it did.
// Requests of free sequences ask when it is their turn, see admitFree.
func (e *execution) asks(req int) bool {
	r := &e.requests[req]
	if e.in.checkStored(r); r.Err != nil || r.Cancelled || !r.resumes() || e.in.saver == nil || e.in.free {
		return false
	}
	if e.comesAfter(req) {
		e.putOff(req)
	} else {
		e.ask(req)
	}
	return true
}

// comesAfter reports whether a request that it waits for is to run in this batch.
func (e *execution) comesAfter(req int) bool {
	key := e.in.waitKey(&e.requests[req])
	for before := range req {
		if !e.arrivals[before].parked && e.in.waitKey(&e.requests[before]) == key {
			return true
		}
	}
	return false
}

// putOff parks a request until the batch is over.
func (e *execution) putOff(req int) {
	key := e.in.waitKey(&e.requests[req])
	of := e.in.resuming[key]
	if of == nil {
		of = &resuming{key: key, answered: true}
		of.key.Text = strings.Clone(of.key.Text)
		e.in.resuming[of.key] = of
	}
	e.park(req, of)
}

// checkStored refuses what needs a store where there is none.
func (in *Instance) checkStored(r *Request) {
	p := r.Parameters
	if p == nil || r.Err != nil {
		return
	}
	saves := in.saver != nil && in.saver.Writes()
	switch {
	case p.Resume != ResumeNone && in.resumesOn() == config.ResumeOff:
		r.Err = status.Errorf(status.InvalidArg, "stateful_resume: the parameter resume of this model is off")
	case p.Resume != ResumeNone && !r.Start && !in.free:
		r.Err = status.Errorf(status.InvalidArg, "stateful_resume is for the first request of a sequence: want the START flag with it")
	case p.Resume == ResumeRequire && in.saver == nil:
		r.Err = status.Errorf(status.InvalidArg, "stateful_resume is require, but states of this model are not saved: want the parameter state_store")
	case p.Save && !saves:
		r.Err = status.Errorf(status.InvalidArg, "stateful_save: states of this model are not saved: want the parameter state_store, and another checkpoint than off")
	case p.Keep && !saves:
		r.Err = status.Errorf(status.InvalidArg, "stateful_drop is false, but states of this model are not saved: want the parameter state_store, and another checkpoint than off")
	}
}

// ask parks a START and asks the store for the state of its sequence.
func (e *execution) ask(req int) {
	in, r := e.in, &e.requests[req]
	of := &resuming{key: in.waitKey(r), left: 1}
	of.key.Text = strings.Clone(of.key.Text)
	in.resuming[of.key] = of
	note, key := &parked{in: in, of: of, first: true, came: e.arrivals[req].came}, in.storeKey(r)
	var live *checkpoint.Entry
	if q := in.store.Live(r.key()); q != nil {
		if live = entryOf(q); live != nil && live.Key() == key {
			of.life = q.Generation()
		} else {
			live = nil
		}
	}
	rerun := e.batch.Park(req)
	in.saver.Resume(checkpoint.Wanted{Key: key, Live: live, AtMost: stepsAnswered(r), Begins: in.canBegin(r)}, func(r checkpoint.Resumption) {
		in.Locked(func() {
			of.resumption = r
			rerun(note)
			for _, next := range of.waiting {
				next()
			}
			of.waiting, of.answered, of.err = nil, true, r.Err
		})
	})
}

// canBegin reports whether a request for whose sequence the store is asked begins it if nothing is saved.
func (in *Instance) canBegin(r *Request) bool {
	if r.Parameters != nil && (r.Parameters.Resume == ResumeRequire || r.Parameters.Step > 0) {
		return false
	}
	return r.Start || in.implicit
}

// stepsAnswered is how many steps the client of a request can have answers of, for whose sequence the store is asked.
func stepsAnswered(r *Request) uint64 {
	if r.Parameters != nil && r.Parameters.Step >= 0 {
		return uint64(r.Parameters.Step)
	}
	return statestore.AnyStep
}

// park parks a request that comes after one that waits for the store.
func (e *execution) park(req int, of *resuming) {
	of.left++
	rerun, note := e.batch.Park(req), &parked{in: e.in, of: of, came: e.arrivals[req].came}
	if of.answered { // those before it are on their way
		rerun(note)
		return
	}
	of.waiting = append(of.waiting, func() { rerun(note) })
}

// leave notes that a request does not wait any more. The lock of the instance is held.
func (p *parked) leave() {
	of := p.of
	if of.left--; of.left == 0 && p.in.resuming[of.key] == of {
		delete(p.in.resuming, of.key)
	}
}

// Refused implements Refusable. Without it, all later requests of the sequence would wait.
func (p *parked) Refused() { go p.in.Locked(p.leave) }

// comesAgain takes in a request that was parked. It reports whether it is parked once more.
func (e *execution) comesAgain(req int, note *parked) bool {
	in, r, a := e.in, &e.requests[req], &e.arrivals[req]
	a.came, a.of = note.came, note.of
	note.leave()
	if of := in.resuming[note.of.key]; of != nil && of != note.of {
		e.park(req, of)
		return true
	}
	if in.direct && e.comesAfter(req) {
		e.putOff(req)
		return true
	}
	if !note.of.taken {
		note.of.taken = true
		// Each instance of the server runs its own requests again, so the first one can be overtaken.
		if note.first || in.free && !r.Start && !r.resumes() {
			return e.takeUp(req, note.of)
		}
		note.of.unused = true
	}
	if in.free {
		a.asked = !r.resumes() && !note.of.unused
		if a.asked && !r.Start && r.Err == nil && note.of.err != nil {
			r.Err = unasked(r, note.of.err) // the one before it got the same
		}
	}
	return e.asks(req)
}

// takeUp has the sequence of a request go on with its saved state, as the store has said. It
// reports whether the store has to be asked once more.
func (e *execution) takeUp(req int, of *resuming) bool {
	in, r, a, said := e.in, &e.requests[req], &e.arrivals[req], of.resumption
	a.asked, of.resumption = true, checkpoint.Resumption{}
	switch {
	case r.Err != nil || r.Cancelled:
		of.unused = true
	case said.Err != nil:
		r.Err = unasked(r, said.Err)
	case said.Ours:
		q := in.store.Live(r.key())
		if q == nil || q.Generation() != of.life { // it lost its state meanwhile
			e.ask(req)
			return true
		}
		in.saver.Continues(entryOf(q))
		a.resumed = true
	case said.Saved == nil && r.Parameters != nil && r.Parameters.Resume == ResumeRequire:
		r.Err = status.Errorf(status.NotFound, "sequence %v: no state of it is saved: begin it by a START alone", r.Sequence)
	case said.Saved == nil:
		a.epoch = said.Epoch
		return false // a START as any other
	case in.unsaved(r, said.Saved) > 0:
		of.err = e.stepsLost(req, said.Saved)
		r.Err = unasked(r, of.err)
		in.store.Forget(r.key()) // the client is told once
	default:
		q, err := in.store.Restore(r.key(), e.start(req), said.Saved, e.now)
		if err != nil {
			of.err = status.Errorf(status.CodeOf(in.refusal(r.Sequence, err)), "restoring its state: %w", err)
			r.Err = unasked(r, of.err)
			if in.free && !r.Start {
				in.store.Forget(r.key()) // else the next one would not ask
			}
			break
		}
		q.Attached = in.saver.Restored(q, in.storeKey(r), said.Epoch, q.Steps())
		a.resumed = true
		in.verbosity.restored(r.Sequence, q.Steps())
	}
	r.Start = false // an error does not end what is live here
	return false
}

// unasked is the answer to a request whose sequence may be in the store, which cannot say.
func unasked(r *Request, err error) error {
	return status.Errorf(status.CodeOf(err), "sequence %v: %w", r.Sequence, err)
}

// checkStep says why a request is not the next one of its sequence, if it says which one it
// is. q is nil for one that starts.
func checkStep(r *Request, q *statebuffer.Sequence) error {
	if r.Parameters == nil || r.Parameters.Step < 0 {
		return nil
	}
	step, expected := uint64(r.Parameters.Step), uint64(0)
	if q != nil {
		expected = q.Steps()
	}
	switch {
	case step < expected:
		return status.Errorf(status.AlreadyExists, "sequence %v: step %d was done before: expected step %d (stateful_step)", r.Sequence, step, expected)
	case step > expected:
		return status.Errorf(status.InvalidArg, "sequence %v: step %d leaves a gap: expected step %d (stateful_step)", r.Sequence, step, expected)
	}
	return nil
}

// entryOf is what the saver knows of a sequence, or nil.
func entryOf(q *statebuffer.Sequence) *checkpoint.Entry {
	entry, _ := q.Attached.(*checkpoint.Entry)
	return entry
}
