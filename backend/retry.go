package backend

import (
	"errors"
	"fmt"
	"slices"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// Why requests run again, or separately:
//
//   - a run failed, maybe because of a value that one of its requests brings (retryable):
//     its members run again in halves, until the one that fails is by itself;
//   - sequences of unequal length shared a run and should not have (retryUneven);
//   - a sequence made runs fail that it shared, and is in quarantine (separate).

// retryable reports whether a run may have failed because of a value in one request: where
// ONNX Runtime says INVALID_ARGUMENT, or INTERNAL, which is for all that a kernel throws. The
// value may be one that the model cannot use, such as a token beyond its vocabulary or a
// length beyond its input, and the request that has it must not fail the others. On a GPU
// answers have their places by now, and get them only once.
func (e *execution) retryable(err error) bool {
	var coded *status.Error // an error without a code is not from ONNX Runtime
	if e.in.device != nil || !errors.As(err, &coded) {
		return false
	}
	return coded.Code == status.InvalidArg || coded.Code == status.Internal
}

// retryHalves has the members of a run run again, in two halves. One that makes every run
// fail is by itself soon: all its runs together have three times as many lanes as the first.
func (e *execution) retryHalves() { e.retry(2) }

// retry undoes a run and gives its members back to the queue, in a number of groups.
func (e *execution) retry(groups int) {
	e.in.store.Undo(e.step)
	e.queue.back(e.members, groups)
	e.clearRun()
}

// retryUneven has the members of a run run again if sequences of unequal length should not
// have shared it: separately by their lengths if the model does not append, and in halves if
// a state of one has become too long. It reports whether they run again.
func (e *execution) retryUneven() bool {
	if !e.uneven() {
		return false
	}
	if why := e.notAppended(); why != "" {
		e.in.separateLengths(why)
		e.retry(1)
		return true
	}
	if len(e.members) > 1 && e.in.store.TooLong(e.step) != nil {
		e.retryHalves()
		return true
	}
	return false
}

// uneven reports whether values of unequal length share the run.
func (e *execution) uneven() bool {
	return slices.ContainsFunc(e.step.Varying, func(io statebuffer.VaryingIO) bool { return io.Uneven })
}

// notAppended says which state has become longer by another length than a step appends:
// that of the input that its mask names, or what every step has appended.
func (e *execution) notAppended() string {
	pl := e.in.plan
	for mask, i := range pl.Masks {
		m := pl.Generated[i].Mask
		step := e.in.grows[mask]
		if m.Length >= 0 {
			step = int64(e.lengths[m.Length])
		}
		for _, state := range m.Covers {
			s, io := &pl.Varying[state], &e.step.Varying[state]
			if !io.Uneven || len(io.OutShape) != len(io.InShape) { // what has another rank is an error of Commit
				continue
			}
			if before, after := io.InShape[s.TimeAxis], io.OutShape[s.TimeAxis]; after-before != step {
				return fmt.Sprintf("the mask %q needs a model that appends to its states, but a step of length %d took the state %q from length %d to %d: the model drops old entries, and padding would push out entries that are still needed", pl.Generated[i].Name, step, s.Input, before, after)
			}
		}
	}
	return ""
}

const runSeparately = "sequences of unequal length run separately: "

// separateLengths ends that sequences of unequal length share runs.
func (in *Instance) separateLengths(why string) {
	in.store.DisableLeftPadding()
	in.separate = why
	in.log.Warn(runSeparately + why)
}

// separate orders the requests of the batch into groups that run separately: first those of
// sequences that are not in quarantine, then STARTs if these are, then one by one those of
// sequences in quarantine. It reports whether any is.
func (e *execution) separate() bool {
	held, q := &e.in.quarantine, &e.queue
	if !held.any(e.now) {
		return false
	}
	starts, found := held.has(allStarts), uint32(0)
	for _, req := range q.requests {
		switch r := &e.requests[req]; {
		case !r.Sequence.IsZero() && held.has(r.Sequence):
			found++
			q.turns[req] = turn{round: 2, kind: found}
		case starts && (r.Start || q.follows(e.keyOf(req))):
			q.turns[req] = turn{round: 1}
			if e.in.free { // what follows in its sequence comes later, too
				q.ids[e.keyOf(req)]++
			}
		default:
			q.turns[req] = turn{}
		}
	}
	clear(q.ids)
	q.sort(q.requests, false)
	return true
}

// noteFailure notes that the request of a run that failed, which was the only one, may be at
// fault: if it has just made runs fail that it shared, or is in quarantine already.
func (e *execution) noteFailure() {
	held, req := &e.in.quarantine, e.members[0].req
	id := e.requests[req].Sequence
	switch {
	case len(e.members) > 1 || !e.in.sequences || id.IsZero():
	case e.retried || held.has(id):
		e.failures = append(e.failures, req)
	case e.requests[req].Start && held.has(allStarts):
		held.failed(allStarts, e.now)
	}
}

// quarantineFailures puts the sequences of the failures into quarantine. Where no request of
// the batch succeeded, values are not what is wrong.
func (e *execution) quarantineFailures() {
	held := &e.in.quarantine
	for _, req := range e.failures {
		r := &e.requests[req]
		known := held.has(r.Sequence)
		if !known && e.succeeded == 0 {
			continue
		}
		if held.failed(r.Sequence, e.now); r.Start && !known {
			held.failed(allStarts, e.now)
		}
	}
}

// noteSuccess notes that a request has succeeded, while some sequence is in quarantine.
func (e *execution) noteSuccess(req int) {
	held, r := &e.in.quarantine, &e.requests[req]
	if r.Sequence.IsZero() {
		return
	}
	if held.succeeded(r.Sequence); r.Start {
		held.succeeded(allStarts)
	}
}
