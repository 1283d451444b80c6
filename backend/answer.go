package backend

import (
	"errors"
	"fmt"
	"runtime/debug"

	"tritonstateful/statebuffer"
)

// respond answers the requests of the run.
func (x *execution) respond() {
	if !x.failed && len(x.rows) > 0 {
		ran, answers := 0, x.answers()
		for at, row := range x.rows {
			if x.lanes[x.first[at]].Refused != nil {
				continue
			}
			ran++
			lane, lanes := x.lanesOf(at)
			x.batch.Answer(row, answers, lane, lanes)
			if len(x.in.suspects.seen) > 0 {
				x.trust(row)
			}
		}
		x.ran += ran
		x.in.report.ran(ran)
	}
	x.send()
	x.spans.mark(&x.spans.send, x.in.host().Clock())
}

// lanesOf is the first lane of the run's request at a position, and how many it has.
func (x *execution) lanesOf(at int) (first, lanes int) {
	end := len(x.lanes)
	if at+1 < len(x.rows) {
		end = x.first[at+1]
	}
	return x.first[at], end - x.first[at]
}

// errPanicked is the answer where the backend or the runner panicked.
var errPanicked = Errorf(Internal, "internal error of the stateful backend; see the server's log")

// rescue answers the requests of a run that panicked.
func (x *execution) rescue() {
	if p := recover(); p != nil {
		x.reportPanic(p)
		x.failRun(errPanicked)
		x.respond()
	}
}

// finish leaves nothing open. After a panic between two runs, or one that not even
// rescue came through, nothing more is run: the instance goes on with the next batch.
func (x *execution) finish() {
	defer x.survive()
	defer x.in.overlaps.leave(x.in, x.now)
	if p := recover(); p != nil {
		x.reportPanic(p)
		x.failRun(errPanicked)
		for _, row := range x.queue.waiting() {
			x.refuse(row, errPanicked)
		}
		for row := range x.requests {
			x.batch.Fail(row, errPanicked)
		}
	}
	x.accuse()
	x.batch.Finish(x.timing)
	x.batch, x.requests = nil, nil
	x.in.maintain(x)
}

// survive is for what is done when the requests are gone, or cannot be answered.
func (x *execution) survive() {
	if p := recover(); p != nil {
		x.reportPanic(p)
	}
}

func (x *execution) reportPanic(p any) {
	x.in.log.Error("panic while a batch ran", "panic", p, "stack", string(debug.Stack()))
}

// failRun answers every row of the run and gives up its step.
func (x *execution) failRun(err error) {
	step, settled := x.step, x.settled
	x.failed, x.step, x.settled = true, nil, true
	if len(x.rows) > 0 {
		x.in.meter.failedRuns++
	}
	switch {
	case step != nil:
		x.in.store.Abort(step, x.now)
	case !settled:
		for _, l := range x.lanes {
			x.in.store.Fail(l, x.now)
		}
	}
	for _, row := range x.rows {
		x.batch.Fail(row, err)
	}
}

// refuse answers a request that cannot run with its error. What it says of its
// sequence counts all the same: after an END the server has forgotten the ID, and
// after a START that failed nobody may go on with what was there before.
func (x *execution) refuse(row int, err error) {
	r, in := &x.requests[row], x.in
	switch {
	case !in.sequences || r.Sequence.IsZero():
	case r.End:
		x.setAside(row)
		in.store.End(r.key())
	case r.Start:
		x.setAside(row)
		in.store.Refuse(r.key(), x.now)
	}
	x.batch.Fail(row, err)
}

// failRefused answers the rows of a run whose states would have exceeded the limit of
// memory.
func (x *execution) failRefused() {
	refused := uint64(0)
	for at, row := range x.rows {
		if err := x.lanes[x.first[at]].Refused; err != nil {
			x.batch.Fail(row, Errorf(Unavailable, "%w", err))
			refused = 1
		}
	}
	x.in.meter.failedRuns += refused
}

// inferring is the answer when the model did not run.
func inferring(err error) error { return fmt.Errorf("error during inference: %w", err) }

// storing is the answer when new states could not be kept.
func storing(err error) error {
	var grew *statebuffer.GrewError
	if errors.As(err, &grew) {
		return Errorf(InvalidArg, "%w", err)
	}
	return Errorf(Internal, "storing the states: %w", err)
}

// refusal is the answer to a request whose sequence has no state.
func refusal(id SequenceID, err error) error {
	code := InvalidArg
	if full := (*statebuffer.FullError)(nil); errors.As(err, &full) {
		code = Internal // as NVIDIA's backend answers
	}
	return Errorf(code, "sequence %v: %w", id, err)
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
func (x *execution) answerEmpty(row int) {
	in := x.in
	if in.device != nil {
		for i, to := range x.batch.Reserve(row, in.empty, 0, 1) {
			if to == 0 {
				continue
			}
			if err := in.device.Write(to, in.empty[i].Tensor); err != nil {
				x.batch.Fail(row, Errorf(Internal, "output %q: %w", in.wiring.outputs[i].Name, err))
				return
			}
		}
	}
	x.batch.Answer(row, in.empty, 0, 1)
}
