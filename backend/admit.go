package backend

import (
	"slices"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// key is what the store knows the sequence of a request by.
func (r *Request) key() statebuffer.Key {
	return statebuffer.Key{Number: r.Sequence.Number, Text: r.Sequence.Text, Token: r.Token}
}

// next takes the requests of the next run out of the queue: at most one of each
// sequence, and all of the same shapes. It reports whether there are any.
func (e *execution) next() bool {
	e.clearRun()
	for len(e.members) == 0 && e.queue.left > 0 {
		e.in.runs++
		e.takeGroup()
	}
	return len(e.members) > 0
}

// takeGroup takes what can run together out of the first group of the queue.
func (e *execution) takeGroup() {
	waiting := &e.queue
	g, requests := waiting.first()
	e.retried = g.retried
	most := e.in.splitter.nextLanes(len(requests))
	putOff, seen := 0, 0
	for ; seen < len(requests) && !e.endsBefore(requests[seen], len(requests)-seen, most); seen++ {
		req, decision := requests[seen], later
		if g.sorted || !waiting.looks() || !waiting.follows(e.keyOf(req)) {
			decision = e.admit(req)
		}
		switch decision {
		case taken, answered:
		case later:
			if !g.sorted {
				waiting.putOff(req, e.keyOf(req), e.kind(req))
			}
			requests[putOff] = req
			putOff++
		}
	}
	waiting.giveBack(putOff, seen)
}

// admission is what becomes of a request when a run is put together.
type admission uint8

const (
	taken    admission = iota // it is in the run
	answered                  // it has its answer without a run, or is parked
	later                     // it waits for a later run
)

// keyOf is the key of a request's sequence; it is zero for a request that belongs to none.
func (e *execution) keyOf(req int) (k statebuffer.Key) {
	if r := &e.requests[req]; e.in.keeps && !r.Sequence.IsZero() {
		k = r.key()
	}
	return k
}

// clearRun leaves nothing in the run.
func (e *execution) clearRun() {
	e.members, e.lanes = e.members[:0], e.lanes[:0]
	clear(e.spreads)
	e.step, e.phase = nil, admitted
}

// admit gives a request its lanes in the run, or answers it, or leaves it for a later run,
// and returns which.
func (e *execution) admit(req int) admission {
	r, in := &e.requests[req], e.in
	live := in.store.Live(r.key()) // nil where nothing is kept
	if live != nil && live.InRun(in.runs) {
		return later // the sequence is in this run: nothing may happen to it meanwhile
	}
	if e.follows(req) {
		return answered
	}
	switch {
	case r.Err != nil:
		e.refuse(req, r.Err)
		return answered
	case r.Cancelled:
		e.refuse(req, status.Errorf(status.Cancelled, "the request was cancelled before it ran"))
		return answered
	case r.Timeout > 0 && e.timings.last-e.arrivals[req].came > r.Timeout:
		e.refuse(req, status.Errorf(status.Unavailable, "the timeout of the request, %v, passed while it waited to run", r.Timeout))
		return answered
	case in.free && in.keeps && e.admitFree(req, live):
		return answered
	case in.direct && r.Sequence.IsZero(): // a lane that the direct scheduler leaves idle
		e.answerEmpty(req)
		return answered
	case r.End && !in.model.params.InferEnd && in.sequences && !r.Sequence.IsZero():
		e.saveEnd(req, true)
		e.ended(req)
		in.verbosity.endNotInferred(r.Sequence)
		e.answerEmpty(req)
		return answered
	}
	continuing := live
	if r.Start {
		continuing = nil // its old states do not matter
	}
	lanes, err := in.check(r, continuing)
	if err != nil {
		e.refuse(req, err)
		return answered
	}
	if !e.joins(r, continuing, lanes) {
		return later
	}
	if in.keeps && (continuing != nil || r.Start) {
		if err := checkStep(r, continuing); err != nil {
			e.refuse(req, err)
			return answered
		}
	}
	lane := statebuffer.Lane{End: r.End}
	if in.keeps && !r.Sequence.IsZero() { // model_warmup brings no sequence
		if lane.Sequence, err = e.sequence(req, live); err != nil {
			e.batch.Fail(req, err)
			return answered
		}
	}
	e.members = append(e.members, member{req: req, firstLane: len(e.lanes), lanes: int(lanes)})
	for range lanes {
		e.lanes = append(e.lanes, lane)
	}
	e.spread(continuing)
	return taken
}

// start notes that a request is a START, if it is one. If it returns a token that is not 0,
// what the store knows of its ID belongs to an older sequence.
func (e *execution) start(req int) (token uint64) {
	r := &e.requests[req]
	if !r.Start || e.arrivals[req].begun || r.Token != 0 || e.in.direct || e.in.free {
		return 0
	}
	e.arrivals[req].begun = true
	if token = e.in.overlaps.start(e, req); token != 0 {
		e.noteBeganAgain(req)
	}
	return token
}

// setAside is start for a request that begins nothing.
func (e *execution) setAside(req int) {
	if token := e.start(req); token != 0 {
		e.in.store.SetAside(e.requests[req].key(), token, e.now)
	}
}

// ended forgets the sequence of an END that does not run.
func (e *execution) ended(req int) {
	if e.in.keeps {
		e.setAside(req)
		e.in.store.End(e.requests[req].key())
	}
}

// sequence finds the sequence of a request, or begins it; live is the one of its ID that
// is there, or nil.
func (e *execution) sequence(req int, live *statebuffer.Sequence) (q *statebuffer.Sequence, err error) {
	in, r := e.in, &e.requests[req]
	if e.retried && live != nil { // it was found or begun before the run that failed
		live.MarkRun(in.runs)
		return live, nil
	}
	if r.Start {
		q, err = in.store.BeginSettingAside(r.key(), e.start(req), e.now)
	} else {
		q, err = in.store.Continue(r.key(), e.now)
	}
	if err != nil {
		// If the next request has the store asked, it must know of a START that failed: what is saved is older.
		if r.End && !in.onMiss || in.implicit && !r.Start {
			in.store.Forget(r.key())
		}
		return nil, in.refusal(r.Sequence, err)
	}
	if r.Start {
		in.verbosity.reset(r.Sequence)
	} else {
		in.meter.observe(MetricGap, q.IdleTime().Seconds())
	}
	q.MarkRun(in.runs)
	return q, nil
}

// check returns how many lanes a request of a sequence takes, or why it does not fit the
// model.
func (in *Instance) check(r *Request, q *statebuffer.Sequence) (lanes int64, err error) {
	lanes = 1
	if !in.sequences && in.model.config.MaxBatchSize > 0 {
		if i := slices.IndexFunc(r.Inputs, func(input Input) bool { return input.Present && len(input.Shape) > 0 }); i >= 0 {
			lanes = max(1, r.Inputs[i].Shape[0])
		}
	}
	for i := range in.plan.Inputs {
		if err := checkInput(&in.plan.Inputs[i], &r.Inputs[i], lanes); err != nil {
			return 0, err
		}
	}
	if lanes > int64(in.plan.MaxLanes) {
		return 0, status.Errorf(status.InvalidArg, "the request has a batch of %d: at most %d can run at once", lanes, in.plan.MaxLanes)
	}
	if err := in.checkPositions(r); err != nil {
		return 0, err
	}
	return lanes, in.checkMasks(r, q)
}

// joins reports whether a request can run with those that the run has already.
func (e *execution) joins(r *Request, q *statebuffer.Sequence, lanes int64) bool {
	in := e.in
	if len(e.members) == 0 {
		return true
	}
	if len(e.lanes)+int(lanes) > in.plan.MaxLanes {
		return false
	}
	if !in.plan.Varies && !in.plan.Shares {
		return true
	}
	first := e.firstRequest()
	for i := range in.plan.Inputs {
		if !sameInput(&in.plan.Inputs[i], &r.Inputs[i], &first.Inputs[i]) {
			return false
		}
	}
	leader := e.lanes[0].Sequence
	for i := range in.plan.Generated {
		if !sameGenerated(&in.plan.Generated[i], r, q, first, leader) {
			return false
		}
	}
	return in.store.Compatible(q, leader) && e.affordable(r, q)
}

// Sequences of unequal length share a run where a mask tells the model what is padding.

// spread is how long the values under a mask are, in the lanes of a run.
type spread struct{ longest, sum int64 }

// spread notes the lengths of a lane that joins the run; q is nil for a sequence that
// starts.
func (e *execution) spread(q *statebuffer.Sequence) {
	for mask, i := range e.in.plan.Masks {
		held := e.in.store.Length(e.in.plan.Generated[i].Mask.Covers[0], q)
		s := &e.spreads[mask]
		s.longest, s.sum = max(s.longest, held), s.sum+held
	}
}

// affordable reports whether the padding that a run has with one lane more costs little
// enough, and is known to be hidden from the model. The run is at most twice as large as what
// its lanes hold and the step brings them, so that no run takes more than twice the time and
// memory because of one long sequence; and the padding is within the limit of memory,
// together with what all sequences hold.
func (e *execution) affordable(r *Request, q *statebuffer.Sequence) bool {
	in, lanes := e.in, int64(len(e.lanes)+1)
	padded := int64(0)
	for mask, i := range in.plan.Masks {
		f := &in.plan.Generated[i]
		held, step := in.store.Length(f.Mask.Covers[0], q), in.grows[mask]
		if f.Mask.Length >= 0 {
			step = in.extent(r, &in.plan.Lengths[f.Mask.Length])
		}
		longest, sum := max(e.spreads[mask].longest, held), e.spreads[mask].sum+held
		if lanes*longest == sum { // all are equal
			continue
		}
		if longest+step > in.padded[mask] || lanes*(longest+step) > 2*(sum+lanes*step) {
			return false
		}
		padded += (longest + step) * int64(f.DType.Size())
		for _, state := range f.Mask.Covers {
			padded += (longest + longest + step) * in.store.LengthBytes(state, q)
		}
	}
	return padded == 0 || in.store.FitsBudget(int64(in.lanesWithPadding(int(lanes)))*padded)
}
