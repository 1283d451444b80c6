package backend

import (
	"errors"
	"fmt"
	"runtime/debug"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// A batch that is split is answered at once, when its last run is done: each answer that
// is sent wakes threads of the server, which take the processor from the next run. So the
// runs write their outputs one after the other into the batched tensors, which have room
// for a whole batch.

// respond answers the requests of the run.
func (e *execution) respond() {
	if e.phase == committed {
		succeeded, answers := 0, e.answers()
		for _, m := range e.members {
			if e.lanes[m.firstLane].Refused != nil {
				continue
			}
			succeeded++
			if e.requests[m.req].Parameters != nil {
				e.describe(m.req)
			}
			e.batch.Answer(m.req, answers, m.firstLane, m.lanes)
			if len(e.in.quarantine.held) > 0 {
				e.noteSuccess(m.req)
			}
		}
		e.succeeded += succeeded
		e.in.periodic.ran(succeeded)
	}
	e.send()
	e.timings.add(&e.timings.send, e.in.server().Clock())
}

// answers are the outputs of the run. Those of every run whose answers wait are in a
// slice of their own: they are borrowed until they are sent.
func (e *execution) answers() []Output {
	if e.waitingLanes == 0 {
		return e.ioSet.answers
	}
	if len(e.in.waiting) == e.waitingRuns {
		e.in.waiting = append(e.in.waiting, make([]Output, len(e.ioSet.answers)))
	}
	answers := e.in.waiting[e.waitingRuns]
	copy(answers, e.ioSet.answers)
	for i := range answers {
		answers[i].Tensor = e.ioSet.outputs[e.in.plan.Outputs[i].Index].Data.Bytes
	}
	e.waitingRuns++
	return answers
}

// send sends the answers, unless they can wait for those of the next run.
func (e *execution) send() {
	if e.phase == committed && e.queue.left > 0 && e.in.answersWait && e.in.splitter.splits() {
		waiting, next := e.waitingLanes+e.ioSet.lanes, max(2, e.queue.left) // a single lane may run as two
		if waiting+next <= e.in.plan.MaxLanes {
			e.waitingLanes = waiting
			return
		}
	}
	e.batch.Send()
	e.waitingLanes, e.waitingRuns = 0, 0
}

// answerEmpty answers a request without a run. What is to be in the memory of a GPU is
// copied there now, and waited for.
func (e *execution) answerEmpty(req int) {
	in := e.in
	if in.device != nil {
		for i, to := range e.batch.Reserve(req, in.empty, 0, 1) {
			if to == 0 {
				continue
			}
			if err := in.device.Write(to, in.empty[i].Tensor); err != nil {
				e.batch.Fail(req, status.Errorf(status.Internal, "output %q: %w", in.plan.Outputs[i].Name, err))
				return
			}
		}
	}
	e.batch.Answer(req, in.empty, 0, 1)
}

// refuse answers a request that cannot run with its error. Its flags count all the same:
// after an END the server has forgotten the ID, and after a START that failed no request
// may continue with the states that were there before. The END of a free sequence can come
// again, unless its client has given up.
func (e *execution) refuse(req int, err error) {
	r, in := &e.requests[req], e.in
	switch {
	case !in.keeps || r.Sequence.IsZero():
	case r.End && !in.free:
		e.ended(req)
	case r.End && r.Cancelled:
		e.saveEnd(req, false) // else its next request goes on with what is saved, maybe without the last steps
		e.ended(req)
	case r.Start:
		e.setAside(req)
		in.store.Refuse(r.key(), e.now)
	}
	e.batch.Fail(req, err)
}

// failRun answers every member of the run with an error and gives up its step.
func (e *execution) failRun(err error) {
	step, before := e.step, e.phase
	e.step, e.phase = nil, failed
	if len(e.members) > 0 {
		e.in.meter.failedRuns++
	}
	switch before {
	case admitted:
		for _, lane := range e.lanes {
			e.in.store.Fail(lane, e.now)
		}
	case gathered, ran:
		e.in.store.Abort(step, e.now)
	case committed, failed: // the store knows how it ended
	}
	for _, m := range e.members {
		e.batch.Fail(m.req, err)
	}
}

// failRefused answers the members of a run whose states would have exceeded the limit of
// memory.
func (e *execution) failRefused() {
	refused := uint64(0)
	for _, m := range e.members {
		if err := e.lanes[m.firstLane].Refused; err != nil {
			e.batch.Fail(m.req, status.Errorf(status.Unavailable, "%w", err))
			refused = 1
		}
	}
	e.in.meter.failedRuns += refused
}

// inferring is the answer when the model did not run.
func inferring(err error) error { return fmt.Errorf("error during inference: %w", err) }

// storing is the answer when new states could not be committed.
func storing(err error) error {
	var grew *statebuffer.GrewError
	if errors.As(err, &grew) {
		return status.Errorf(status.InvalidArg, "%w", err)
	}
	return status.Errorf(status.Internal, "storing the states: %w", err)
}

// refusal is the answer to a request whose sequence has no state.
func (in *Instance) refusal(id SequenceID, err error) error {
	code := status.InvalidArg
	if in.free {
		code = status.NotFound
	}
	if full := (*statebuffer.FullError)(nil); errors.As(err, &full) {
		code = status.Internal // as NVIDIA's backend answers
	}
	return status.Errorf(code, "sequence %v: %w", id, err)
}

// String is the ID as a client wrote it.
func (id SequenceID) String() string {
	if id.Text != "" {
		return fmt.Sprintf("%q", id.Text)
	}
	return fmt.Sprint(id.Number)
}

// errPanicked is the answer where the backend or the runner panicked.
var errPanicked = status.Errorf(status.Internal, "internal error of the stateful backend; see the server's log")

// rescue answers the requests of a run that panicked.
func (e *execution) rescue() {
	if p := recover(); p != nil {
		e.reportPanic(p)
		e.failRun(errPanicked)
		e.respond()
	}
}

// finish leaves nothing open. After a panic between two runs, or one in rescue, nothing
// more is run: the instance goes on with the next batch.
func (e *execution) finish() {
	defer e.survive()
	defer e.in.overlaps.leave(e.in, e.now)
	if p := recover(); p != nil {
		e.reportPanic(p)
		e.failRun(errPanicked)
		for _, req := range e.queue.waiting() {
			e.refuse(req, errPanicked)
		}
		for req := range e.requests {
			e.batch.Fail(req, errPanicked)
		}
	}
	e.quarantineFailures()
	e.batch.Finish(e.timing)
	e.batch, e.requests = nil, nil
	e.in.maintain(e)
}

// survive is for what is done when the requests are gone, or cannot be answered.
func (e *execution) survive() {
	if p := recover(); p != nil {
		e.reportPanic(p)
	}
}

func (e *execution) reportPanic(p any) {
	e.in.log.Error("panic while a batch ran", "panic", p, "stack", string(debug.Stack()))
}

// canWait reports whether the answers of a run can wait while another one runs: all
// outputs are tensors of ours, with lanes.
func canWait(pl *plan.Plan) bool {
	for i := range pl.Outputs {
		if output := &pl.Outputs[i]; output.IsState || output.Varies || output.Axis == tensor.NoAxis || output.DType == tensor.Bytes {
			return false
		}
	}
	return true
}
