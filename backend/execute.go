package backend

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

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
	x := &in.work
	x.take(batch)
	defer x.finish()
	x.begin()
	for x.next() {
		x.attempt()
	}
}

// attempt is one run. Whatever becomes of it, those that wait are still to run.
func (x *execution) attempt() {
	defer x.rescue()
	x.gather()
	x.run()
	x.keep()
	x.respond()
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

// take makes x the work on a batch.
func (x *execution) take(batch Batch) {
	*x = execution{in: x.in, batch: batch, now: x.in.host().Clock(),
		queue: x.queue, blamed: x.blamed[:0], known: x.known[:0], started: x.started[:0], rows: x.rows[:0], first: x.first[:0], laneRow: x.laneRow[:0], lanes: x.lanes[:0], spreads: x.spreads, lengths: x.lengths[:0]}
}

// begin notes who is in the batch, before anybody can lose a state for
// somebody else's sake. With the direct scheduler a request's row is the place
// that its sequence has in the batch until another one STARTs there. Requests
// without START come first, because one that shares its key with a START belongs
// to the sequence before.
func (x *execution) begin() {
	in := x.in
	in.store.BeginBatch(x.now)
	x.spans.enter(x.now)
	x.requests = x.batch.Requests()
	x.known = slices.Grow(x.known, len(x.requests))[:len(x.requests)]
	x.queue.reset(len(x.requests))
	x.started = slices.Grow(x.started, len(x.requests))[:len(x.requests)]
	clear(x.started)
	if in.direct {
		for row := range x.requests {
			if r := &x.requests[row]; r.Token == 0 {
				r.Token = uint64(row) + 1
			}
		}
	}
	in.overlaps.enter(x)
	for _, starts := range []bool{false, true} {
		for row := range x.requests {
			if r := &x.requests[row]; r.Start == starts {
				if x.known[row] = nil; !starts { // what it had does not matter
					x.known[row] = in.store.Touch(r.key(), x.now)
					if q := x.known[row]; q != nil {
						in.overlaps.came(q, x.now)
					}
				}
				x.queue.add(row)
			}
		}
	}
	if !x.setApart() {
		x.queue.close()
	}
	if x.queue.left == 0 {
		return
	}
	g, rows := x.queue.first()
	if in.pace.begin(g.rows); in.pace.cuts() {
		slices.SortStableFunc(rows, x.compare)
	}
}

// compare orders requests: those without START first, and these by where their
// states are. Requests of one sequence stay in the order in which they came.
func (x *execution) compare(a, b int) int {
	return cmp.Or(
		cmp.Compare(index(x.requests[a].Start), index(x.requests[b].Start)),
		statebuffer.CompareLocations(x.known[a], x.known[b]),
	)
}

// gather fills the tensors of the run: the requests' inputs, the controls and
// the states.
func (x *execution) gather() {
	in := x.in
	in.levels.batch(len(x.rows))
	in.arranger.arrange(x)
	if in.device != nil {
		in.device.Begin()
	}
	var err error
	x.stage, err = in.stageFor(in.padded(in.pace.lanes(len(x.lanes), in.wiring.maxLanes)), &x.requests[x.rows[0]])
	if err == nil {
		x.measure(&x.requests[x.rows[0]])
		x.placeOutputs()
		err = x.putInputs()
	}
	if err == nil {
		err = x.writeGenerated()
	}
	if err != nil {
		x.failRun(err)
		return
	}
	x.spans.mark(&x.spans.input, in.host().Clock())
	x.step, err = in.store.Gather(x.lanes, x.stage.lanes)
	if err != nil {
		x.step = nil
		x.failRun(fmt.Errorf("gathering the states: %w", err))
		return
	}
	x.stage.bindStates(in.wiring, x.step)
	if in.device != nil && !in.wiring.varies {
		if err := x.reserve(); err != nil {
			x.failRun(err)
			return
		}
	}
	x.spans.mark(&x.spans.gather, in.host().Clock())
}

// putInputs copies the requests' inputs to their lanes; padding lanes are zero.
func (x *execution) putInputs() error {
	s, w := x.stage, x.in.wiring
	for i := range w.inputs {
		p := &w.inputs[i]
		first := &x.requests[x.rows[0]].Inputs[i]
		if !first.Present {
			s.inputs[p.at].DType = tensor.Invalid
			continue
		}
		s.inputs[p.at].DType = p.DType
		switch {
		case p.DType == tensor.Bytes:
			if err := x.putStrings(i); err != nil {
				return err
			}
			continue
		case p.axis == noAxis:
			copy(s.in[i].Bytes, sharedContent(p, first))
			continue
		}
		l := s.layouts[i]
		for at, row := range x.rows {
			x.putRow(i, x.first[at], &x.requests[row].Inputs[i])
		}
		for lane := len(x.lanes); lane < s.lanes; lane++ {
			clearLane(s.in[i].Bytes, l, s.lanes, lane)
		}
	}
	return nil
}

// putRow copies one request's input to its lanes.
func (x *execution) putRow(i, lane int, input *Input) {
	s, l := x.stage, x.stage.layouts[i]
	if input.Device != 0 {
		for done := int64(0); done < input.Size; done += l.LaneBytes() {
			x.in.place(s.in[i], l, s.lanes, lane, input.Device+uint64(done))
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
func (x *execution) putStrings(i int) error {
	s, p := x.stage, &x.in.wiring.inputs[i]
	rows := x.rows
	if p.axis == noAxis {
		rows = rows[:1]
	}
	first := x.firstStrings(i)
	size, padding := int64(0), 0
	for _, row := range rows {
		size += int64(len(x.requests[row].Inputs[i].Data))
	}
	if p.axis != noAxis {
		padding = s.lanes - len(x.lanes)
	}
	size += int64(padding * len(first))
	block, err := x.in.io.forInput(i, size)
	if err != nil {
		return err
	}
	to := block.Bytes
	for _, row := range rows {
		to = to[copy(to, x.requests[row].Inputs[i].Data):]
	}
	for range padding {
		to = to[copy(to, first):]
	}
	s.inputs[p.at].Data = block
	return nil
}

// firstStrings are those of the run's first lane, which may be one of several that the
// first request has.
func (x *execution) firstStrings(i int) []byte {
	input := &x.requests[x.rows[0]].Inputs[i]
	if _, lanes := x.lanesOf(0); lanes > 1 {
		elements, _ := input.Shape.Elements() // check has counted them
		return input.Data[:stringsEnd(input.Data, elements/int64(lanes))]
	}
	return input.Data
}

// run runs the model.
func (x *execution) run() {
	if x.failed {
		return
	}
	start := x.spans.at
	x.in.meter.ran(len(x.lanes), x.stage.lanes)
	err := x.infer()
	x.spans.mark(&x.spans.run, x.in.host().Clock())
	switch {
	case err == nil:
		x.in.pace.ran(x.stage.lanes, x.spans.at-start)
	case !x.ofAValue(err):
		x.failRun(inferring(err))
	case len(x.rows) > 1:
		x.in.meter.failedRuns++
		x.halve()
	default:
		x.blame()
		x.failRun(inferring(err))
	}
	if x.timing.ComputeStart == 0 {
		x.timing.ComputeStart = start
	}
	x.timing.ComputeEnd = x.spans.at
}

// ofAValue tells whether a run may have failed because of what one request brings: where
// ONNX Runtime says INVALID_ARGUMENT, or INTERNAL, which is for whatever a kernel throws. It
// may be a value that the model has no use for, such as a token beyond its vocabulary or
// a length beyond its input, and whoever sent it must not fail the others. On a GPU
// answers have their places by now, and get them only once.
func (x *execution) ofAValue(err error) bool {
	var e *Error // what has no code is not from ONNX Runtime
	if x.in.device != nil || !errors.As(err, &e) {
		return false
	}
	return e.Code == InvalidArg || e.Code == Internal
}

// halve has the rows of a run run again, in two halves. One that makes every run fail is
// alone soon: all its runs together have three times as many lanes as the first one.
func (x *execution) halve() { x.undo(2) }

// undo gives the rows of a run back to the queue, as if there had been none, as so many
// groups.
func (x *execution) undo(groups int) {
	x.in.store.Undo(x.step)
	x.step = nil
	x.queue.back(x.rows, groups)
	x.dropRows()
}

// keep stores the new states, which nothing could see until now.
func (x *execution) keep() {
	if x.failed || len(x.rows) == 0 {
		return
	}
	if x.partUneven() {
		return
	}
	if err := x.in.store.Commit(x.step, x.now); err != nil {
		x.blame()
		x.failRun(storing(err))
		return
	}
	x.step, x.settled = nil, true
	x.failRefused()
	x.measureOutputs()
	for i, length := range x.lengths {
		for _, l := range x.lanes {
			if l.Sequence != nil && l.Refused == nil {
				l.Sequence.Add(i, length)
			}
		}
	}
	x.spans.mark(&x.spans.scatter, x.in.host().Clock())
}
