package backend

import (
	"tritonstateful/backend/checkpoint"
	"tritonstateful/statebuffer"
)

// pauses makes an END that keeps the saved state a step as any other, after which the sequence
// is saved and forgotten here. The model does not see the END: its sequence goes on elsewhere.
func (e *execution) pauses(req int) {
	if r := &e.requests[req]; r.End && r.Parameters != nil && r.Parameters.Keep && r.Err == nil {
		r.End, e.arrivals[req].pauses = false, true
	}
}

// noteEnds remembers what the commit forgets: how many steps the sequences of the run have made
// with it, and the entries of those that end.
func (e *execution) noteEnds() {
	if !e.in.keeps {
		return
	}
	for _, m := range e.members {
		if q := e.lanes[m.firstLane].Sequence; q != nil {
			a := &e.arrivals[m.req]
			a.entry, a.steps = entryOf(q), q.Steps()+1
		}
	}
}

// noteBeganAgain tells the saver of the sequence whose ID a START begins again.
func (e *execution) noteBeganAgain(req int) {
	r := &e.requests[req]
	if q := e.in.store.Live(r.key()); q != nil && e.in.saver != nil && !r.resumes() {
		if entry := entryOf(q); entry != nil && entry.Key() == e.in.storeKey(r) {
			e.in.saver.BeganAgain(entry)
		}
	}
}

// save tells the saver of the steps that the run has made.
func (e *execution) save() {
	in := e.in
	if in.saver == nil {
		return
	}
	for _, m := range e.members {
		lane, a := &e.lanes[m.firstLane], &e.arrivals[m.req]
		q := lane.Sequence
		if q == nil || lane.Refused != nil {
			continue
		}
		if a.entry == nil {
			a.entry = in.newEntry(e, m.req, q)
		}
		if a.entry == nil {
			continue
		}
		var done func(uint64, error)
		if r := &e.requests[m.req]; in.saver.EveryStep() || a.pauses || r.Parameters != nil && r.Parameters.Save {
			done = e.answerWhenSaved(m.req)
		}
		switch {
		case lane.End:
			in.saver.Ended(a.entry, e.now, done)
		case a.pauses:
			in.saver.Paused(a.entry, a.steps, e.now, done)
		default:
			in.saver.Stepped(a.entry, a.steps, e.now, done)
		}
	}
}

// saveEnd tells the saver of an END that does not run. If waits, its answer may have to wait until
// that is saved.
func (e *execution) saveEnd(req int, waits bool) {
	in, a := e.in, &e.arrivals[req]
	if in.saver == nil {
		return
	}
	q := in.store.Live(e.requests[req].key())
	if q != nil {
		a.entry = entryOf(q)
	}
	if a.entry == nil && e.requests[req].Start {
		a.entry = in.newEntry(e, req, nil)
	}
	if a.entry == nil { // of a sequence that is not known here, another server can be the owner
		return
	}
	var done func(uint64, error)
	if waits && in.saver.EveryStep() {
		done = e.answerWhenSaved(req)
	}
	in.saver.Ended(a.entry, e.now, done)
}

// newEntry is the entry of a sequence that began with this request, or ends with it at once and
// is nil; there is none if nothing is saved.
func (in *Instance) newEntry(e *execution, req int, q *statebuffer.Sequence) (entry *checkpoint.Entry) {
	r, epoch := &e.requests[req], e.arrivals[req].epoch
	switch {
	case epoch != 0:
		entry = in.saver.Restored(q, in.storeKey(r), epoch, 0)
	case in.saver.Writes():
		entry = in.saver.NewEntry(q, in.storeKey(r))
	}
	if entry != nil && q != nil {
		q.Attached = entry
	}
	return entry
}

// answerWhenSaved holds the answer to a request until its step is saved, or cannot be.
func (e *execution) answerWhenSaved(req int) func(saved uint64, err error) {
	in, entry := e.in, e.arrivals[req].entry
	held, told := e.batch.Hold(req), e.described(req)
	entry.Hold()
	return func(saved uint64, err error) {
		if told != nil {
			told.SavedStep = int64(saved)
		}
		held.ReleaseWith(told, err)
		entry.Released(in.server().Clock())
		if in.overlaps.any.Load() {
			go in.Locked(func() { in.overlaps.lookAgain(in) }) // the lock may be held here
		}
	}
}

// described is what the answer to a request tells of its sequence, if the request had a
// parameter of ours; else nil.
func (e *execution) described(req int) *AnswerParameters {
	r, a := &e.requests[req], &e.arrivals[req]
	if r.Parameters == nil || !e.in.keeps || r.Sequence.IsZero() {
		return nil
	}
	return &AnswerParameters{Step: int64(a.steps), Resumed: a.resumed}
}

// describe adds to the answer of a request what it tells of its sequence.
func (e *execution) describe(req int) {
	told := e.described(req)
	if told == nil {
		return
	}
	if entry := e.arrivals[req].entry; entry != nil {
		told.SavedStep = int64(e.in.saver.Saved(entry))
	}
	e.batch.Describe(req, *told)
}
