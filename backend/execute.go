package backend

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
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
	queue    queue                   // rows that still have to run
	known    []*statebuffer.Sequence // of each row, the sequence that goes on, or nil
	blamed   []int                   // rows whose runs failed, see blame
	started  []bool                  // of each row: the overlaps know of its START
	timing   Timing

	// The current run. A row takes one lane, or several consecutive ones if the
	// model has no sequences; then comes padding.
	rows    []int
	first   []int // of each of rows, its first lane
	laneRow []int // of each lane, its position in rows
	lanes   []statebuffer.Lane
	spreads []spread // of each of wiring.masks
	stage   *stage
	lengths []uint64          // of each of wiring.lengths, see measure
	step    *statebuffer.Step // open, that is neither committed nor aborted, or nil
	again   bool              // its rows are of a run that was undone
	settled bool              // the store knows how the run of the lanes ended
	failed  bool

	held  int // lanes of runs whose answers wait, see parts.go
	parts int // how many of these runs have a slice of answers of their own
	ran   int // requests that ran
	spans spans
}

// take makes e the work on a batch.
func (e *execution) take(batch Batch) {
	*e = execution{in: e.in, batch: batch, now: e.in.host().Clock(),
		queue: e.queue, blamed: e.blamed[:0], known: e.known[:0], started: e.started[:0], rows: e.rows[:0], first: e.first[:0], laneRow: e.laneRow[:0], lanes: e.lanes[:0], spreads: e.spreads, lengths: e.lengths[:0]}
}

// begin notes who is in the batch, before anybody can lose a state for
// somebody else's sake. With the direct scheduler a request's row is the place
// that its sequence has in the batch until another one STARTs there. Requests
// without START come first, because one that shares its key with a START belongs
// to the sequence before.
func (e *execution) begin() {
	in := e.in
	in.store.BeginBatch(e.now)
	e.spans.enter(e.now)
	e.requests = e.batch.Requests()
	e.known = slices.Grow(e.known, len(e.requests))[:len(e.requests)]
	e.queue.reset(len(e.requests))
	e.started = slices.Grow(e.started, len(e.requests))[:len(e.requests)]
	clear(e.started)
	if in.direct {
		for row := range e.requests {
			if r := &e.requests[row]; r.Token == 0 {
				r.Token = uint64(row) + 1
			}
		}
	}
	in.overlaps.enter(e)
	for _, starts := range []bool{false, true} {
		for row := range e.requests {
			if r := &e.requests[row]; r.Start == starts {
				if e.known[row] = nil; !starts { // what it had does not matter
					e.known[row] = in.store.Touch(r.key(), e.now)
					if q := e.known[row]; q != nil {
						in.overlaps.came(q, e.now)
					}
				}
				e.queue.add(row)
			}
		}
	}
	if !e.setApart() {
		e.queue.close()
	}
	if e.queue.left == 0 {
		return
	}
	g, rows := e.queue.first()
	if in.pace.begin(g.rows); in.pace.cuts() {
		slices.SortStableFunc(rows, e.compare)
	}
}

// compare orders requests: those without START first, and these by where their
// states are. Requests of one sequence stay in the order in which they came.
func (e *execution) compare(a, b int) int {
	return cmp.Or(
		cmp.Compare(index(e.requests[a].Start), index(e.requests[b].Start)),
		statebuffer.CompareLocations(e.known[a], e.known[b]),
	)
}

// gather fills the tensors of the run: the requests' inputs, the controls and
// the states.
func (e *execution) gather() {
	in := e.in
	in.levels.batch(len(e.rows))
	in.arranger.arrange(e)
	if in.device != nil {
		in.device.Begin()
	}
	var err error
	e.stage, err = in.stageFor(in.padded(in.pace.lanes(len(e.lanes), in.wiring.maxLanes)), &e.requests[e.rows[0]])
	if err == nil {
		e.measure(&e.requests[e.rows[0]])
		e.placeOutputs()
		err = e.putInputs()
	}
	if err == nil {
		err = e.writeGenerated()
	}
	if err != nil {
		e.failRun(err)
		return
	}
	e.spans.mark(&e.spans.input, in.host().Clock())
	e.step, err = in.store.Gather(e.lanes, e.stage.lanes)
	if err != nil {
		e.step = nil
		e.failRun(fmt.Errorf("gathering the states: %w", err))
		return
	}
	e.stage.bindStates(in.wiring, e.step)
	if in.device != nil && !in.wiring.varies {
		if err := e.reserve(); err != nil {
			e.failRun(err)
			return
		}
	}
	e.spans.mark(&e.spans.gather, in.host().Clock())
}

// putInputs copies the requests' inputs to their lanes; padding lanes are zero.
func (e *execution) putInputs() error {
	s, w := e.stage, e.in.wiring
	for i := range w.inputs {
		p := &w.inputs[i]
		first := &e.requests[e.rows[0]].Inputs[i]
		if !first.Present {
			s.inputs[p.at].DType = tensor.Invalid
			continue
		}
		s.inputs[p.at].DType = p.DType
		switch {
		case p.DType == tensor.Bytes:
			if err := e.putStrings(i); err != nil {
				return err
			}
			continue
		case p.axis == noAxis:
			copy(s.in[i].Bytes, sharedContent(p, first))
			continue
		}
		l := s.layouts[i]
		for at, row := range e.rows {
			e.putRow(i, e.first[at], &e.requests[row].Inputs[i])
		}
		for lane := len(e.lanes); lane < s.lanes; lane++ {
			clearLane(s.in[i].Bytes, l, s.lanes, lane)
		}
	}
	return nil
}

// putRow copies one request's input to its lanes.
func (e *execution) putRow(i, lane int, input *Input) {
	s, l := e.stage, e.stage.layouts[i]
	if input.Device != 0 {
		for done := int64(0); done < input.Size; done += l.LaneBytes() {
			e.in.place(s.in[i], l, s.lanes, lane, input.Device+uint64(done))
			lane++
		}
		return
	}
	for data := input.Data; len(data) > 0; lane++ {
		putLane(s.in[i].Bytes, l, s.lanes, lane, data)
		data = data[l.LaneBytes():]
	}
}

// putStrings joins the requests' strings; a padding lane gets the first one's.
func (e *execution) putStrings(i int) error {
	s, p := e.stage, &e.in.wiring.inputs[i]
	rows := e.rows
	if p.axis == noAxis {
		rows = rows[:1]
	}
	first := e.firstStrings(i)
	size, padding := int64(0), 0
	for _, row := range rows {
		size += int64(len(e.requests[row].Inputs[i].Data))
	}
	if p.axis != noAxis {
		padding = s.lanes - len(e.lanes)
	}
	size += int64(padding * len(first))
	block, err := e.in.io.forInput(i, size)
	if err != nil {
		return err
	}
	to := block.Bytes
	for _, row := range rows {
		to = to[copy(to, e.requests[row].Inputs[i].Data):]
	}
	for range padding {
		to = to[copy(to, first):]
	}
	s.inputs[p.at].Data = block
	return nil
}

// firstStrings are those of the run's first lane, which may be one of several that the
// first request has.
func (e *execution) firstStrings(i int) []byte {
	input := &e.requests[e.rows[0]].Inputs[i]
	if _, lanes := e.lanesOf(0); lanes > 1 {
		elements, _ := input.Shape.Elements() // check has counted them
		return input.Data[:stringsEnd(input.Data, elements/int64(lanes))]
	}
	return input.Data
}

// run runs the model.
func (e *execution) run() {
	if e.failed {
		return
	}
	start := e.spans.at
	e.in.meter.ran(len(e.lanes), e.stage.lanes)
	err := e.infer()
	e.spans.mark(&e.spans.run, e.in.host().Clock())
	switch {
	case err == nil:
		e.in.pace.ran(e.stage.lanes, e.spans.at-start)
	case !e.ofAValue(err):
		e.failRun(inferring(err))
	case len(e.rows) > 1:
		e.in.meter.failedRuns++
		e.halve()
	default:
		e.blame()
		e.failRun(inferring(err))
	}
	if e.timing.ComputeStart == 0 {
		e.timing.ComputeStart = start
	}
	e.timing.ComputeEnd = e.spans.at
}

// ofAValue tells whether a run may have failed because of what one request brings: where
// ONNX Runtime says INVALID_ARGUMENT, or INTERNAL, which is for whatever a kernel throws. It
// may be a value that the model has no use for, such as a token beyond its vocabulary or
// a length beyond its input, and whoever sent it must not fail the others. On a GPU
// answers have their places by now, and get them only once.
func (e *execution) ofAValue(err error) bool {
	var coded *status.Error // what has no code is not from ONNX Runtime
	if e.in.device != nil || !errors.As(err, &coded) {
		return false
	}
	return coded.Code == status.InvalidArg || coded.Code == status.Internal
}

// halve has the rows of a run run again, in two halves. One that makes every run fail is
// alone soon: all its runs together have three times as many lanes as the first one.
func (e *execution) halve() { e.undo(2) }

// undo gives the rows of a run back to the queue, as if there had been none, as so many
// groups.
func (e *execution) undo(groups int) {
	e.in.store.Undo(e.step)
	e.step = nil
	e.queue.back(e.rows, groups)
	e.dropRows()
}

// keep stores the new states, which nothing could see until now.
func (e *execution) keep() {
	if e.failed || len(e.rows) == 0 {
		return
	}
	if e.partUneven() {
		return
	}
	if err := e.in.store.Commit(e.step, e.now); err != nil {
		e.blame()
		e.failRun(storing(err))
		return
	}
	e.step, e.settled = nil, true
	e.failRefused()
	e.measureOutputs()
	for i, length := range e.lengths {
		for _, l := range e.lanes {
			if l.Sequence != nil && l.Refused == nil {
				l.Sequence.Add(i, length)
			}
		}
	}
	e.spans.mark(&e.spans.scatter, e.in.host().Clock())
}
