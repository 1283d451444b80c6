package backend

import (
	"slices"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

func (r *Request) key() statebuffer.Key {
	return statebuffer.Key{Number: r.Sequence.Number, Text: r.Sequence.Text, Token: r.Token}
}

// next takes the requests of the next run out of the queue: at most one of each
// sequence, and all of the same shapes. It is false when none is left.
func (e *execution) next() bool {
	e.dropRows()
	e.settled, e.failed = false, false
	for len(e.rows) == 0 && e.queue.left > 0 {
		e.in.runs++
		e.takeGroup()
	}
	return len(e.rows) > 0
}

// takeGroup takes what can run together out of the first group of the queue.
func (e *execution) takeGroup() {
	q := &e.queue
	g, rows := q.first()
	e.again = g.again
	most := e.in.pace.share(len(rows))
	putOff, at := 0, 0
	for ; at < len(rows) && !e.enough(rows[at], len(rows)-at, most); at++ {
		row := rows[at]
		if (g.sorted || !q.looks() || !q.follows(e.keyOf(row))) && e.admit(row) {
			continue
		}
		if !g.sorted {
			q.putOff(row, e.keyOf(row), e.kind(row))
		}
		rows[putOff] = row
		putOff++
	}
	q.giveBack(putOff, at)
}

// keyOf is whose request a row is, where that matters, with the token by which two
// sequences of one ID are not the same.
func (e *execution) keyOf(row int) (k statebuffer.Key) {
	if r := &e.requests[row]; e.in.sequences && !r.Sequence.IsZero() {
		k = r.key()
	}
	return k
}

// dropRows leaves nothing in the run.
func (e *execution) dropRows() {
	e.rows, e.first, e.laneRow, e.lanes = e.rows[:0], e.first[:0], e.laneRow[:0], e.lanes[:0]
	clear(e.spreads)
}

// enough tells whether the run is to end before a request, with so many left for
// later ones.
func (e *execution) enough(row, left, most int) bool {
	n, least := len(e.lanes), e.in.pace.least
	switch {
	case n >= e.in.wiring.maxLanes:
		return true
	case e.again:
		return false
	case left < 2 || n < most && n < least: // none is left to run alone
		return false
	case n >= most:
		return true
	default:
		return left >= least && !statebuffer.Adjacent(e.lanes[n-1].Sequence, e.known[row])
	}
}

// admit gives a request its lanes, or answers it. It is false when the request
// must wait for a later run.
func (e *execution) admit(row int) bool {
	r, in := &e.requests[row], e.in
	live := in.store.Live(r.key()) // nil without sequences
	if live != nil && live.InRun(in.runs) {
		return false // the run has this sequence: nothing may happen to it meanwhile
	}
	switch {
	case r.Err != nil:
		e.refuse(row, r.Err)
		return true
	case r.Cancelled:
		e.refuse(row, status.Errorf(status.Cancelled, "the request was cancelled before it ran"))
		return true
	case in.direct && r.Sequence.IsZero(): // a lane that the direct scheduler leaves idle
		e.answerEmpty(row)
		return true
	case r.End && !in.model.params.InferEnd && in.sequences && !r.Sequence.IsZero():
		e.setAside(row)
		in.store.End(r.key())
		in.levels.endNotInferred(r.Sequence)
		e.answerEmpty(row)
		return true
	}
	known := live
	if r.Start {
		known = nil // what it had does not matter
	}
	lanes, err := in.check(r, known)
	if err != nil {
		e.refuse(row, err)
		return true
	}
	if !e.joins(r, known, lanes) {
		return false
	}
	lane := statebuffer.Lane{End: r.End}
	if in.sequences && !r.Sequence.IsZero() { // model_warmup brings no sequence
		if lane.Sequence, err = e.sequence(row, live); err != nil {
			e.batch.Fail(row, err)
			return true
		}
	}
	e.first = append(e.first, len(e.lanes))
	e.rows = append(e.rows, row)
	e.spread(known)
	for range lanes {
		e.laneRow = append(e.laneRow, len(e.rows)-1)
		e.lanes = append(e.lanes, lane)
	}
	return true
}

// start notes that a request is a START, if it is one. With a token that is not 0, what
// the store knows of its ID belongs to a sequence before it.
func (e *execution) start(row int) (token uint64) {
	r := &e.requests[row]
	if !r.Start || e.started[row] || r.Token != 0 || e.in.direct {
		return 0
	}
	e.started[row] = true
	return e.in.overlaps.start(e, row)
}

// setAside is start for a request that begins nothing.
func (e *execution) setAside(row int) {
	if token := e.start(row); token != 0 {
		e.in.store.SetAside(e.requests[row].key(), token, e.now)
	}
}

// sequence finds the sequence of a request, or begins it; live is the one of its ID that
// is there, or nil.
func (e *execution) sequence(row int, live *statebuffer.Sequence) (q *statebuffer.Sequence, err error) {
	in, r := e.in, &e.requests[row]
	if e.again && live != nil { // it was found or begun before the run that failed
		live.MarkRun(in.runs)
		return live, nil
	}
	if r.Start {
		q, err = in.store.BeginSettingAside(r.key(), e.start(row), e.now)
	} else {
		q, err = in.store.Continue(r.key(), e.now)
	}
	if err != nil {
		if r.End {
			in.store.Forget(r.key())
		}
		return nil, refusal(r.Sequence, err)
	}
	if r.Start {
		in.levels.reset(r.Sequence)
	} else {
		in.meter.observe(MetricGap, q.IdleTime().Seconds())
	}
	q.MarkRun(in.runs)
	return q, nil
}

// check tells how many lanes a request of a sequence takes, or why it does not fit the
// model.
func (in *Instance) check(r *Request, q *statebuffer.Sequence) (lanes int64, err error) {
	ports := in.wiring.inputs
	lanes = 1
	if !in.sequences && in.model.config.MaxBatchSize > 0 {
		if i := slices.IndexFunc(r.Inputs, func(input Input) bool { return input.Present && len(input.Shape) > 0 }); i >= 0 {
			lanes = max(1, r.Inputs[i].Shape[0])
		}
	}
	for i := range ports {
		if err := checkInput(&ports[i], &r.Inputs[i], lanes); err != nil {
			return 0, err
		}
	}
	if lanes > int64(in.wiring.maxLanes) {
		return 0, status.Errorf(status.InvalidArg, "the request has %d rows: at most %d can run at once", lanes, in.wiring.maxLanes)
	}
	if err := in.checkPositions(r); err != nil {
		return 0, err
	}
	return lanes, in.checkMasks(r, q)
}

// joins tells whether a request can run with those that the run has already.
func (e *execution) joins(r *Request, q *statebuffer.Sequence, lanes int64) bool {
	in := e.in
	if len(e.rows) == 0 {
		return true
	}
	if len(e.lanes)+int(lanes) > in.wiring.maxLanes {
		return false
	}
	if !in.wiring.varies && !in.wiring.shares {
		return true
	}
	first := &e.requests[e.rows[0]]
	for i := range in.wiring.inputs {
		if !sameInput(&in.wiring.inputs[i], &r.Inputs[i], &first.Inputs[i]) {
			return false
		}
	}
	of := e.lanes[0].Sequence
	for i := range in.wiring.fills {
		if !sameGenerated(&in.wiring.fills[i], r, q, first, of) {
			return false
		}
	}
	return in.store.Compatible(q, of) && e.spares(r, q)
}
