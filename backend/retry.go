package backend

import (
	"errors"
	"fmt"
	"slices"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

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

// partUneven has the members of a run run again if sequences of unequal length should not
// have shared it: apart by their lengths if the model does not append, and in halves if
// a state of one has got too long. It is false when the run is good.
func (e *execution) partUneven() bool {
	if !e.uneven() {
		return false
	}
	if why := e.notAppended(); why != "" {
		e.in.runApart(why)
		e.undo(1)
		return true
	}
	if len(e.members) > 1 && e.in.store.TooLong(e.step) != nil {
		e.halve()
		return true
	}
	return false
}

// uneven tells whether values of unequal length share the run.
func (e *execution) uneven() bool {
	return slices.ContainsFunc(e.step.Varying, func(io statebuffer.VaryingIO) bool { return io.Uneven })
}

// notAppended tells which state has become longer by something else than a step
// appends: what the input has that its mask names, or what every step has appended.
func (e *execution) notAppended() string {
	w := e.in.wiring
	for at, i := range w.Masks {
		m := w.Generated[i].Mask
		step := e.in.grows[at]
		if m.Length >= 0 {
			step = int64(e.lengths[m.Length])
		}
		for _, at := range m.Covers {
			s, io := &w.Varying[at], &e.step.Varying[at]
			if !io.Uneven || len(io.OutShape) != len(io.InShape) { // what has another rank is an error of Commit
				continue
			}
			if before, after := io.InShape[s.TimeAxis], io.OutShape[s.TimeAxis]; after-before != step {
				return fmt.Sprintf("the mask %q is for models that append, and a step that brings %d has made the state %q of length %d one of %d: the model drops what is old, and what is not would have to make way for padding", w.Generated[i].Name, step, s.Input, before, after)
			}
		}
	}
	return ""
}

const runsApart = "sequences of unequal length run apart: "

// runApart ends that sequences of unequal length share runs.
func (in *Instance) runApart(why string) {
	in.store.DisableLeftPadding()
	in.apart = why
	in.log.Warn(runsApart + why)
}

// setApart parts the requests of the batch: first those that can be trusted, then STARTs if
// these cannot, then one by one those of suspects. It is false if all can be trusted.
func (e *execution) setApart() bool {
	s, q := &e.in.suspects, &e.queue
	if !s.any(e.now) {
		return false
	}
	starts, found := s.has(newcomers), uint32(0)
	for _, req := range q.requests {
		switch r := &e.requests[req]; {
		case !r.Sequence.IsZero() && s.has(r.Sequence):
			found++
			q.turns[req] = turn{round: 2, kind: found}
		default:
			q.turns[req] = turn{round: uint32(index(starts && r.Start))}
		}
	}
	q.sort(q.requests, false)
	return true
}

// blame notes that the request of a run that failed, which was the only one, may be at
// fault: if it made runs of others fail just now, or runs apart already.
func (e *execution) blame() {
	s, req := &e.in.suspects, e.members[0].req
	id := e.requests[req].Sequence
	switch {
	case len(e.members) > 1 || !e.in.sequences || id.IsZero():
	case e.retried || s.has(id):
		e.blamed = append(e.blamed, req)
	case e.requests[req].Start && s.has(newcomers):
		s.blame(newcomers, e.now)
	}
}

// accuse makes suspects of the sequences that were blamed. Where not a single request of
// the batch succeeded, values are not what is wrong.
func (e *execution) accuse() {
	s := &e.in.suspects
	for _, req := range e.blamed {
		r := &e.requests[req]
		known := s.has(r.Sequence)
		if !known && e.succeeded == 0 {
			continue
		}
		if s.blame(r.Sequence, e.now); r.Start && !known {
			s.blame(newcomers, e.now)
		}
	}
}

// trust notes that a request has succeeded.
func (e *execution) trust(req int) {
	s, r := &e.in.suspects, &e.requests[req]
	if r.Sequence.IsZero() {
		return
	}
	if s.trust(r.Sequence); r.Start {
		s.trust(newcomers)
	}
}
