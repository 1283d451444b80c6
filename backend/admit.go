package backend

import (
	"slices"

	"tritonstateful/statebuffer"
)

func (r *Request) key() statebuffer.Key {
	return statebuffer.Key{Number: r.Sequence.Number, Text: r.Sequence.Text, Token: r.Token}
}

// next takes the requests of the next run out of the queue: at most one of each
// sequence, and all of the same shapes. It is false when none is left.
func (x *execution) next() bool {
	x.dropRows()
	x.settled, x.failed = false, false
	for len(x.rows) == 0 && x.queue.left > 0 {
		x.in.runs++
		x.takeGroup()
	}
	return len(x.rows) > 0
}

// takeGroup takes what can run together out of the first group of the queue.
func (x *execution) takeGroup() {
	q := &x.queue
	g, rows := q.first()
	x.again = g.again
	most := x.in.pace.share(len(rows))
	putOff, at := 0, 0
	for ; at < len(rows) && !x.enough(rows[at], len(rows)-at, most); at++ {
		row := rows[at]
		if (g.sorted || !q.looks() || !q.follows(x.keyOf(row))) && x.admit(row) {
			continue
		}
		if !g.sorted {
			q.putOff(row, x.keyOf(row), x.kind(row))
		}
		rows[putOff] = row
		putOff++
	}
	q.giveBack(putOff, at)
}

// keyOf is whose request a row is, where that matters, with the token by which two
// sequences of one ID are not the same.
func (x *execution) keyOf(row int) (k statebuffer.Key) {
	if r := &x.requests[row]; x.in.sequences && !r.Sequence.IsZero() {
		k = r.key()
	}
	return k
}

// dropRows leaves nothing in the run.
func (x *execution) dropRows() {
	x.rows, x.first, x.laneRow, x.lanes = x.rows[:0], x.first[:0], x.laneRow[:0], x.lanes[:0]
	clear(x.spreads)
}

// enough tells whether the run is to end before a request, with so many left for
// later ones.
func (x *execution) enough(row, left, most int) bool {
	n, least := len(x.lanes), x.in.pace.least
	switch {
	case n >= x.in.wiring.maxLanes:
		return true
	case x.again:
		return false
	case left < 2 || n < most && n < least: // none is left to run alone
		return false
	case n >= most:
		return true
	default:
		return left >= least && !statebuffer.Adjacent(x.lanes[n-1].Sequence, x.known[row])
	}
}

// admit gives a request its lanes, or answers it. It is false when the request
// must wait for a later run.
func (x *execution) admit(row int) bool {
	r, in := &x.requests[row], x.in
	live := in.store.Live(r.key()) // nil without sequences
	if live != nil && live.InRun(in.runs) {
		return false // the run has this sequence: nothing may happen to it meanwhile
	}
	switch {
	case r.Err != nil:
		x.refuse(row, r.Err)
		return true
	case r.Cancelled:
		x.refuse(row, Errorf(Cancelled, "the request was cancelled before it ran"))
		return true
	case in.direct && r.Sequence.IsZero(): // a lane that the direct scheduler leaves idle
		x.answerEmpty(row)
		return true
	case r.End && !in.model.params.InferEnd && in.sequences && !r.Sequence.IsZero():
		x.setAside(row)
		in.store.End(r.key())
		in.levels.endNotInferred(r.Sequence)
		x.answerEmpty(row)
		return true
	}
	known := live
	if r.Start {
		known = nil // what it had does not matter
	}
	lanes, err := in.check(r, known)
	if err != nil {
		x.refuse(row, err)
		return true
	}
	if !x.joins(r, known, lanes) {
		return false
	}
	lane := statebuffer.Lane{End: r.End}
	if in.sequences && !r.Sequence.IsZero() { // model_warmup brings no sequence
		if lane.Sequence, err = x.sequence(row, live); err != nil {
			x.batch.Fail(row, err)
			return true
		}
	}
	x.first = append(x.first, len(x.lanes))
	x.rows = append(x.rows, row)
	x.spread(known)
	for range lanes {
		x.laneRow = append(x.laneRow, len(x.rows)-1)
		x.lanes = append(x.lanes, lane)
	}
	return true
}

// start notes that a request is a START, if it is one. With a token that is not 0, what
// the store knows of its ID belongs to a sequence before it.
func (x *execution) start(row int) (token uint64) {
	r := &x.requests[row]
	if !r.Start || x.started[row] || r.Token != 0 || x.in.direct {
		return 0
	}
	x.started[row] = true
	return x.in.overlaps.start(x, row)
}

// setAside is start for a request that begins nothing.
func (x *execution) setAside(row int) {
	if token := x.start(row); token != 0 {
		x.in.store.SetAside(x.requests[row].key(), token, x.now)
	}
}

// sequence finds the sequence of a request, or begins it; live is the one of its ID that
// is there, or nil.
func (x *execution) sequence(row int, live *statebuffer.Sequence) (q *statebuffer.Sequence, err error) {
	in, r := x.in, &x.requests[row]
	if x.again && live != nil { // it was found or begun before the run that failed
		live.MarkRun(in.runs)
		return live, nil
	}
	if r.Start {
		q, err = in.store.BeginSettingAside(r.key(), x.start(row), x.now)
	} else {
		q, err = in.store.Continue(r.key(), x.now)
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
		return 0, Errorf(InvalidArg, "the request has %d rows: at most %d can run at once", lanes, in.wiring.maxLanes)
	}
	if err := in.checkPositions(r); err != nil {
		return 0, err
	}
	return lanes, in.checkMasks(r, q)
}

// joins tells whether a request can run with those that the run has already.
func (x *execution) joins(r *Request, q *statebuffer.Sequence, lanes int64) bool {
	in := x.in
	if len(x.rows) == 0 {
		return true
	}
	if len(x.lanes)+int(lanes) > in.wiring.maxLanes {
		return false
	}
	if !in.wiring.varies && !in.wiring.shares {
		return true
	}
	first := &x.requests[x.rows[0]]
	for i := range in.wiring.inputs {
		if !sameInput(&in.wiring.inputs[i], &r.Inputs[i], &first.Inputs[i]) {
			return false
		}
	}
	of := x.lanes[0].Sequence
	for i := range in.wiring.fills {
		if !sameGenerated(&in.wiring.fills[i], r, q, first, of) {
			return false
		}
	}
	return in.store.Compatible(q, of) && x.spares(r, q)
}
