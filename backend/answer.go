package backend

import (
	"errors"
	"fmt"
	"runtime/debug"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// respond answers the requests of the run.
func (e *execution) respond() {
	if !e.failed && len(e.rows) > 0 {
		ran, answers := 0, e.answers()
		for at, row := range e.rows {
			if e.lanes[e.first[at]].Refused != nil {
				continue
			}
			ran++
			lane, lanes := e.lanesOf(at)
			e.batch.Answer(row, answers, lane, lanes)
			if len(e.in.suspects.seen) > 0 {
				e.trust(row)
			}
		}
		e.ran += ran
		e.in.report.ran(ran)
	}
	e.send()
	e.spans.mark(&e.spans.send, e.in.host().Clock())
}

// lanesOf is the first lane of the run's request at a position, and how many it has.
func (e *execution) lanesOf(at int) (first, lanes int) {
	end := len(e.lanes)
	if at+1 < len(e.rows) {
		end = e.first[at+1]
	}
	return e.first[at], end - e.first[at]
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

// finish leaves nothing open. After a panic between two runs, or one that not even
// rescue came through, nothing more is run: the instance goes on with the next batch.
func (e *execution) finish() {
	defer e.survive()
	defer e.in.overlaps.leave(e.in, e.now)
	if p := recover(); p != nil {
		e.reportPanic(p)
		e.failRun(errPanicked)
		for _, row := range e.queue.waiting() {
			e.refuse(row, errPanicked)
		}
		for row := range e.requests {
			e.batch.Fail(row, errPanicked)
		}
	}
	e.accuse()
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

// failRun answers every row of the run and gives up its step.
func (e *execution) failRun(err error) {
	step, settled := e.step, e.settled
	e.failed, e.step, e.settled = true, nil, true
	if len(e.rows) > 0 {
		e.in.meter.failedRuns++
	}
	switch {
	case step != nil:
		e.in.store.Abort(step, e.now)
	case !settled:
		for _, l := range e.lanes {
			e.in.store.Fail(l, e.now)
		}
	}
	for _, row := range e.rows {
		e.batch.Fail(row, err)
	}
}

// refuse answers a request that cannot run with its error. What it says of its
// sequence counts all the same: after an END the server has forgotten the ID, and
// after a START that failed nobody may go on with what was there before.
func (e *execution) refuse(row int, err error) {
	r, in := &e.requests[row], e.in
	switch {
	case !in.sequences || r.Sequence.IsZero():
	case r.End:
		e.setAside(row)
		in.store.End(r.key())
	case r.Start:
		e.setAside(row)
		in.store.Refuse(r.key(), e.now)
	}
	e.batch.Fail(row, err)
}

// failRefused answers the rows of a run whose states would have exceeded the limit of
// memory.
func (e *execution) failRefused() {
	refused := uint64(0)
	for at, row := range e.rows {
		if err := e.lanes[e.first[at]].Refused; err != nil {
			e.batch.Fail(row, status.Errorf(status.Unavailable, "%w", err))
			refused = 1
		}
	}
	e.in.meter.failedRuns += refused
}

// inferring is the answer when the model did not run.
func inferring(err error) error { return fmt.Errorf("error during inference: %w", err) }

// storing is the answer when new states could not be kept.
func storing(err error) error {
	var grew *statebuffer.GrewError
	if errors.As(err, &grew) {
		return status.Errorf(status.InvalidArg, "%w", err)
	}
	return status.Errorf(status.Internal, "storing the states: %w", err)
}

// refusal is the answer to a request whose sequence has no state.
func refusal(id SequenceID, err error) error {
	code := status.InvalidArg
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

// answerEmpty answers a row without a run. What is to be in the memory of a GPU is
// brought there now, and waited for.
func (e *execution) answerEmpty(row int) {
	in := e.in
	if in.device != nil {
		for i, to := range e.batch.Reserve(row, in.empty, 0, 1) {
			if to == 0 {
				continue
			}
			if err := in.device.Write(to, in.empty[i].Tensor); err != nil {
				e.batch.Fail(row, status.Errorf(status.Internal, "output %q: %w", in.wiring.outputs[i].Name, err))
				return
			}
		}
	}
	e.batch.Answer(row, in.empty, 0, 1)
}
