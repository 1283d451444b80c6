package backend

import (
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

	held      int // lanes of runs whose answers wait, see parts.go
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

// gather fills the tensors of the run: the requests' inputs, the controls and
// the states.
func (e *execution) gather() {
	in := e.in
	in.verbosity.batch(len(e.members))
	in.arranger.arrange(e)
	if in.device != nil {
		in.device.Begin()
	}
	var err error
	first := e.firstRequest()
	e.ioSet, err = in.ioSetFor(in.lanesWithPadding(in.splitter.lanesFor(len(e.lanes), in.wiring.maxLanes)), first)
	if err == nil {
		e.measure(first)
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
	e.timings.add(&e.timings.input, in.server().Clock())
	step, err := in.store.Gather(e.lanes, e.ioSet.lanes)
	if err != nil {
		e.failRun(fmt.Errorf("gathering the states: %w", err))
		return
	}
	e.step, e.phase = step, gathered
	e.ioSet.bindStates(in.wiring, e.step)
	if in.device != nil && !in.wiring.varies {
		if err := e.reserve(); err != nil {
			e.failRun(err)
			return
		}
	}
	e.timings.add(&e.timings.gather, in.server().Clock())
}

// putInputs copies the requests' inputs to their lanes; padding lanes are zero.
func (e *execution) putInputs() error {
	s, w := e.ioSet, e.in.wiring
	for i := range w.inputs {
		p := &w.inputs[i]
		first := &e.firstRequest().Inputs[i]
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
		case p.axis == tensor.NoAxis:
			copy(s.in[i].Bytes, sharedContent(p, first))
			continue
		}
		l := s.layouts[i]
		for _, m := range e.members {
			e.putInput(i, m.firstLane, &e.requests[m.req].Inputs[i])
		}
		for lane := len(e.lanes); lane < s.lanes; lane++ {
			l.ClearLane(s.in[i].Bytes, s.lanes, lane)
		}
	}
	return nil
}

// firstRequest is the request of the first lane.
func (e *execution) firstRequest() *Request { return &e.requests[e.members[0].req] }

// putInput copies one request's input to its lanes.
func (e *execution) putInput(i, lane int, input *Input) {
	s, l := e.ioSet, e.ioSet.layouts[i]
	if input.Device != 0 {
		for done := int64(0); done < input.Size; done += l.LaneBytes() {
			e.in.place(s.in[i], l, s.lanes, lane, input.Device+uint64(done))
			lane++
		}
		return
	}
	for data := input.Data; len(data) > 0; lane++ {
		l.PutLane(s.in[i].Bytes, s.lanes, lane, data)
		data = data[l.LaneBytes():]
	}
}

// putStrings joins the requests' strings; a padding lane gets the first one's.
func (e *execution) putStrings(i int) error {
	s, p := e.ioSet, &e.in.wiring.inputs[i]
	members := e.members
	if p.axis == tensor.NoAxis {
		members = members[:1]
	}
	first := e.firstStrings(i)
	size, padding := int64(0), 0
	for _, m := range members {
		size += int64(len(e.requests[m.req].Inputs[i].Data))
	}
	if p.axis != tensor.NoAxis {
		padding = s.lanes - len(e.lanes)
	}
	size += int64(padding * len(first))
	block, err := e.in.io.forInput(i, size)
	if err != nil {
		return err
	}
	to := block.Bytes
	for _, m := range members {
		to = to[copy(to, e.requests[m.req].Inputs[i].Data):]
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
	input := &e.firstRequest().Inputs[i]
	if lanes := e.members[0].lanes; lanes > 1 {
		elements, _ := input.Shape.Elements() // check has counted them
		return input.Data[:stringsEnd(input.Data, elements/int64(lanes))]
	}
	return input.Data
}

// run runs the model.
func (e *execution) run() {
	if e.phase != gathered {
		return
	}
	start := e.timings.at
	e.in.meter.ran(len(e.lanes), e.ioSet.lanes)
	err := e.infer()
	e.timings.add(&e.timings.run, e.in.server().Clock())
	switch {
	case err == nil:
		e.phase = ran
		e.in.splitter.ran(e.ioSet.lanes, e.timings.at-start)
	case !e.ofAValue(err):
		e.failRun(inferring(err))
	case len(e.members) > 1:
		e.in.meter.failedRuns++
		e.halve()
	default:
		e.blame()
		e.failRun(inferring(err))
	}
	if e.timing.ComputeStart == 0 {
		e.timing.ComputeStart = start
	}
	e.timing.ComputeEnd = e.timings.at
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

// halve has the members of a run run again, in two halves. One that makes every run fail is
// alone soon: all its runs together have three times as many lanes as the first one.
func (e *execution) halve() { e.undo(2) }

// undo gives the members of a run back to the queue, as if there had been none, as so many
// groups.
func (e *execution) undo(groups int) {
	e.in.store.Undo(e.step)
	e.queue.back(e.members, groups)
	e.clearRun()
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
