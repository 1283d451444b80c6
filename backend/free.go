package backend

import (
	"errors"
	"fmt"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// Free sequences: the scheduler is Triton's dynamic batcher, which hands over all requests of a
// model in the order in which they came, and knows nothing of sequences. So the instance alone
// decides when a sequence begins, goes on and ends:
//
//   - Requests are taken in the order of the batch. Those of one sequence run one after the
//     other.
//   - A START of a live sequence begins it again; what it was is over.
//   - A request of a sequence that has no state here has the store asked, begins the sequence,
//     or is refused, as the parameters resume and begin say.

// checkPlan says why a model cannot be served as its configuration asks, if the plan says that
// requests belong to sequences. A nil plan is one that could not be made.
func (m *Model) checkPlan(pl *plan.Plan) error {
	var faults []error
	free := pl != nil && pl.Free
	if free {
		_, err := m.params.FreeSizing(m.config)
		faults = append(faults, err, m.config.CheckFree())
	}
	if free || m.config.Sequence != nil {
		faults = append(faults, m.config.CheckCache())
	}
	return errors.Join(faults...)
}

// idleLimit is how long a sequence may go without a request; 0 is for ever.
func (in *Instance) idleLimit() time.Duration {
	if in.free {
		return in.model.params.Free.Idle
	}
	return in.model.config.Idle()
}

// slotsField is what the configuration calls the number of sequences.
func (in *Instance) slotsField() string {
	if in.free {
		return "max_sequences"
	}
	return in.model.config.CandidatesField()
}

// limits bound the life of sequences in a store with that many slots.
func (in *Instance) limits(slots int) statebuffer.Limits {
	p := in.model.params
	l := statebuffer.Limits{Idle: in.idleLimit(), Full: p.Full, Tombstones: max(1024, slots), Bytes: p.MaxStateMemory, Field: in.slotsField(), IdleField: "max_sequence_idle_microseconds"}
	if in.free {
		l.IdleField, l.Rest, l.EndsAgain = "sequence_idle_ms", in.model.config.QueueDelay()+freeMargin, true
	}
	if in.implicit {
		l.Remedy = "its next request begins it again"
	}
	return l
}

// freeMargin is how long after the limit of idling a free sequence ends at the earliest, in time
// without a batch. A request that is in the server's queue then is handed over at once, unless
// it waits for others.
const freeMargin = time.Second

// checkSequence says why a request has no correlation ID that can be used. Requests of
// model_warmup have none, and come before all others.
func (in *Instance) checkSequence(r *Request) error {
	switch {
	case !r.Sequence.IsZero():
		return in.checkID(r)
	case in.implicit:
		return nil
	case in.warmUps > 0:
		in.warmUps--
		return nil
	default:
		return status.Errorf(status.InvalidArg, "the request has no correlation ID, so its sequence is not known: want a number that is not 0, or a text; for sequences of one step set the parameter begin to implicit")
	}
}

// checkID says why the model cannot get the correlation ID of a request.
func (in *Instance) checkID(r *Request) error {
	if r.Sequence.Text == "" {
		return nil
	}
	for i := range in.plan.Generated {
		if g := &in.plan.Generated[i]; g.Kind == plan.KindID && g.DType.Size() > 0 {
			return status.Errorf(status.InvalidArg, "sequence %v: input %q of the model takes the correlation ID as a number: want a number", r.Sequence, g.Name)
		}
	}
	return nil
}

// follows parks a request of a free sequence that comes after one that is parked, and reports
// whether it did.
func (e *execution) follows(req int) bool {
	in, r := e.in, &e.requests[req]
	if !in.free || len(in.resuming) == 0 || r.Sequence.IsZero() {
		return false
	}
	of := in.resuming[r.key()]
	if of == nil || of == e.arrivals[req].of {
		return false
	}
	e.park(req, of)
	return true
}

// admitFree finds out what a request does to its free sequence, of which live is what is here,
// or nil. It reports whether the request needs no run now: it is refused, or parked until the
// store has answered.
func (e *execution) admitFree(req int, live *statebuffer.Sequence) (done bool) {
	in, r, a := e.in, &e.requests[req], &e.arrivals[req]
	if err := in.checkSequence(r); err != nil {
		e.refuse(req, err)
		return true
	}
	if r.Sequence.IsZero() {
		return false
	}
	if in.saver != nil && !a.asked && (r.resumes() || live == nil && in.onMiss && in.mayBeSaved(r)) {
		e.ask(req)
		return true
	}
	r.Start = r.Start || in.beginsUnasked(r, live)
	return false
}

// mayBeSaved reports whether a request can go on with what is saved of its sequence, which has
// no state here: it does not begin anything, and is not that of one that failed to begin.
func (in *Instance) mayBeSaved(r *Request) bool {
	reason := in.store.Lost(r.key())
	return !r.Start && reason != statebuffer.Refused && reason != statebuffer.StartFailed
}

// unsaved is how many steps a sequence had made when it lost its state here that are not in what
// is saved of it. Requests that name their step, or that resume, find out by themselves.
func (in *Instance) unsaved(r *Request, saved *statebuffer.Saved) uint64 {
	if !in.free || r.Start || r.resumes() || r.Parameters != nil && r.Parameters.Step >= 0 {
		return 0
	}
	switch reason, steps := in.store.LostAfter(r.key()); reason {
	case statebuffer.Expired, statebuffer.Evicted, statebuffer.Damaged:
		return steps - min(steps, saved.Steps)
	default:
		return 0
	}
}

// stepsLost is the answer to a request whose sequence can only go on without some of its steps.
func (e *execution) stepsLost(req int, saved *statebuffer.Saved) error {
	in, r := e.in, &e.requests[req]
	steps := in.unsaved(r, saved)
	_, err := in.store.Continue(r.key(), e.now)
	if lost := (*statebuffer.LostError)(nil); errors.As(err, &lost) {
		lost.Remedy = fmt.Sprintf("the last %d of its steps were not saved: its next request goes on after step %d", steps, saved.Steps)
	}
	return status.Errorf(status.NotFound, "%w", err)
}

// resumes reports whether a request is to go on with what is saved by the parameter stateful_resume. Before its first step
// there is nothing: a START that may begin the sequence then does.
func (r *Request) resumes() bool {
	p := r.Parameters
	return p != nil && p.Resume != ResumeNone && !(r.Start && p.Resume == ResumeTry && p.Step == 0)
}

// beginsUnasked reports whether a request begins its sequence without START. A sequence whose
// state was lost in the middle is not begun again in silence: its next request gets the reason.
func (in *Instance) beginsUnasked(r *Request, live *statebuffer.Sequence) bool {
	if !in.implicit || live != nil {
		return false
	}
	switch in.store.Lost(r.key()) {
	case statebuffer.NotLost, statebuffer.Expired, statebuffer.Refused, statebuffer.StartFailed:
		return true
	default:
		return false
	}
}

// resumesOn is which requests have the store asked.
func (in *Instance) resumesOn() config.Resume {
	from := in.model.params.Checkpoint.Resume
	switch {
	case from != config.ResumeAuto:
		return from
	case in.free:
		return config.ResumeOnMiss
	default:
		return config.ResumeOnRequest
	}
}
