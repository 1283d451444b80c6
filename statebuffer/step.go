package statebuffer

import (
	"errors"
	"time"
)

// Lane is one lane of a step.
type Lane struct {
	// Sequence is nil for a lane that belongs to none: it reads the initial
	// values, and what it writes is discarded.
	Sequence *Sequence
	// End: the sequence ends with this step, and its new states are discarded.
	End bool
	// Refused is set by Commit if the lane's new states would have exceeded the
	// limit of memory: for the lane it was as Abort.
	Refused *BudgetError
}

// commits reports whether the lane's new states become those of a sequence.
func (l *Lane) commits() bool { return l.Sequence != nil && !l.End && l.Refused == nil }

// Step is one run's share of a store. It is valid until the next Gather.
type Step struct {
	// In and Out are the batched tensors to bind, in the order of the states.
	In, Out []Block
	// Varying are the states of varying shape, in the order of Options.Varying.
	Varying []VaryingIO

	lanes []Lane
	width int // lanes of the run, with padding lanes
	open  bool
}

// Gather lays out the states of the lanes as the inputs of a run of width lanes, of
// which those from len(lanes) on are padding lanes and get the initial values. No two
// lanes name the same sequence, and all are Compatible. Commit, Abort or Undo must
// follow. lanes is borrowed until then.
func (s *Store) Gather(lanes []Lane, width int) (*Step, error) {
	step := &s.step
	if step.open {
		return nil, errStepOpen
	}
	step.lanes, step.width = lanes, width
	if err := s.varying.gather(lanes, width); err != nil {
		return nil, err
	}
	step.Varying = s.varying.io
	if err := s.placement.gather(step); err != nil {
		return nil, err
	}
	step.open = true
	return step, nil
}

// Arrange returns the order in which the lanes of a step copy least: element i is the
// lane to be the i-th. It is valid until the next call; nil means that all orders are
// equal. Gather must follow with these lanes, in any order, or Fail.
func (s *Store) Arrange(lanes []Lane) (order []int) {
	return s.placement.arrange(lanes)
}

// Commit ends a step whose run succeeded: its outputs become the states of the lanes'
// sequences. Sequences that end are forgotten. A lane whose states grow
// beyond the limit of memory is marked as refused, in the lanes that Gather got. If
// a varying state has grown beyond its own bound or finds no memory, the step is
// aborted; if storing fails otherwise, none of the lanes' sequences has a state any
// more.
func (s *Store) Commit(step *Step, now time.Duration) error {
	if err := s.reserve(step, now); err != nil {
		s.Abort(step, now)
		return err
	}
	step.open = false
	if err := s.scatter(step, now); err != nil {
		return err
	}
	for _, l := range step.lanes {
		switch q := l.Sequence; {
		case q == nil:
		case l.Refused != nil:
			s.Fail(l, now)
		case l.End:
			s.Finish(q)
		default:
			q.fresh = false
			q.steps++
		}
	}
	return nil
}

// reserve checks the outputs of a run and allocates what those within the limit need, so
// that storing them cannot fail. Nothing that the run's sequences have changes.
func (s *Store) reserve(step *Step, now time.Duration) error {
	more, err := s.varying.growth(step.lanes, step.width)
	if err != nil {
		return err
	}
	if !s.fits(more) {
		if err := s.allocateBudget(step, now); err != nil {
			return err
		}
	}
	return s.varying.reserve(step.lanes, step.width)
}

// scatter stores the outputs. Unless it succeeds, also when it panics, the lanes' values
// are undefined, and their sequences lose them.
func (s *Store) scatter(step *Step, now time.Duration) error {
	stored := false
	defer func() {
		if stored {
			return
		}
		for _, l := range step.lanes {
			if l.Sequence != nil {
				s.revoke(l.Sequence, Damaged, 0, now)
			}
		}
	}()
	err := s.placement.commit(step)
	if err == nil {
		err = s.varying.commit(step.lanes, step.width)
	}
	stored = err == nil
	return err
}

// Abort gives up a step whose run failed. Every stored state is as it was
// before; a sequence whose START it was has none, and one that ends is forgotten, unless its
// END can come again.
// After Commit it does nothing.
func (s *Store) Abort(step *Step, now time.Duration) {
	if !step.open {
		return
	}
	step.open = false
	s.placement.abort()
	for _, l := range step.lanes {
		s.Fail(l, now)
	}
}

// TooLong returns the error that Commit would return because what the run wrote makes a
// varying state exceed its bound or does not fit it, or nil. Where sequences of unequal
// length share a run, they can run separately after Undo.
func (s *Store) TooLong(step *Step) error {
	_, err := s.varying.growth(step.lanes, step.width)
	return err
}

// Undo gives up a step as if there had been none: unlike after Abort, a sequence
// that starts or ends with it can be tried again.
func (s *Store) Undo(step *Step) {
	step.open = false
	s.placement.abort()
}

// Fail is Abort for one lane that never came to run.
func (s *Store) Fail(l Lane, now time.Duration) {
	s.placement.disarrange()
	switch q := l.Sequence; {
	case q == nil:
	case q.fresh && l.Refused != nil:
		s.revoke(q, StartFailed, l.Refused.Most, now)
	case q.fresh:
		s.revoke(q, StartFailed, 0, now)
	case l.End && !s.limits.EndsAgain:
		s.Finish(q)
	}
}

// errStepOpen is a mistake of the caller.
var errStepOpen = errors.New("statebuffer: a step was begun before the last one was committed or aborted")
