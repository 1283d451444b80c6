package statebuffer

import "time"

// Lane is one lane of a step.
type Lane struct {
	// Sequence is nil for a lane that belongs to none: it reads the initial
	// values and keeps nothing.
	Sequence *Sequence
	// End: the sequence ends with this step, and its new states are discarded.
	End bool
	// Refused is set by Commit if the lane's new states would have exceeded the
	// limit of memory: for the lane it was as Abort.
	Refused *BudgetError
}

// keeps reports whether the lane's new states are kept.
func (l *Lane) keeps() bool { return l.Sequence != nil && !l.End && l.Refused == nil }

// Step is one run's share of a store. It is valid until the next Gather.
type Step struct {
	// In and Out are the batched tensors to bind, in the order of the states.
	In, Out []Block
	// Varying are the states of varying shape, in the order of Options.Varying.
	Varying []VaryingIO

	lanes  []Lane
	padded int
	slots  []Slot
	open   bool
}

// Gather lays out the states of the lanes as the inputs of a run of padded
// lanes, of which those from len(lanes) on get the initial values. No two lanes
// name the same sequence, and all are Compatible. Commit or Abort must follow.
func (s *Store) Gather(lanes []Lane, padded int) (*Step, error) {
	step := &s.step
	if step.open {
		return nil, errStepOpen
	}
	step.lanes, step.padded = lanes, padded
	if err := s.varying.gather(lanes, padded); err != nil {
		return nil, err
	}
	step.Varying = s.varying.io
	if err := s.gather(step); err != nil {
		return nil, err
	}
	step.open = true
	return step, nil
}

// gather lays out the states of fixed shape.
func (s *Store) gather(step *Step) error {
	if s.roamer != nil {
		s.roamer.gather(step.lanes, step.padded)
		for i := range s.states {
			step.In[i], step.Out[i] = s.roamer.in.tensor(i), s.roamer.out.tensor(i)
		}
		return nil
	}
	copy(step.In, s.in)
	copy(step.Out, s.out)
	step.slots = step.slots[:0]
	for _, l := range step.lanes {
		slot := InitialSlot
		if q := l.Sequence; q != nil && !q.fresh {
			slot = q.slot
		}
		step.slots = append(step.slots, slot)
	}
	return s.memory.Gather(s.plan(s.in))
}

// Arrange tells in which order the lanes of a step copy least: element i is the
// lane to be the i-th. The order is valid until the next call; nil means that all
// are equal. Gather must follow with these lanes, in whatever order, or Fail.
func (s *Store) Arrange(lanes []Lane) (order []int) {
	if s.roamer == nil {
		return nil
	}
	return s.roamer.arrange(lanes)
}

// Commit keeps the outputs of a run that succeeded: they become the states of
// the lanes' sequences. Sequences that end are forgotten. A lane whose states grow
// beyond the limit of memory is marked as refused, in the lanes that Gather got. If
// a varying state has grown beyond its own bound or finds no memory, the step is
// aborted; if storing fails otherwise, none of the lanes' sequences has a state any
// more.
func (s *Store) Commit(step *Step, now time.Duration) error {
	if err := s.prepare(step, now); err != nil {
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
			s.finish(q)
		default:
			q.fresh = false
			q.steps++
		}
	}
	return nil
}

// scatter stores the outputs. Unless it succeeds, also when it panics, nobody
// knows what the slots hold, and their sequences are lost.
func (s *Store) scatter(step *Step, now time.Duration) error {
	stored := false
	defer func() {
		if stored {
			return
		}
		for _, l := range step.lanes {
			if l.Sequence != nil {
				s.lose(l.Sequence, Damaged, 0, now)
			}
		}
	}()
	err := s.keep(step)
	if err == nil {
		err = s.varying.keep(step.lanes, step.padded)
	}
	stored = err == nil
	return err
}

// keep makes the outputs of a run the states of fixed shape.
func (s *Store) keep(step *Step) error {
	if s.roamer != nil {
		s.roamer.commit(step.lanes)
		return nil
	}
	for i := range step.lanes {
		step.slots[i] = NoSlot
		if l := &step.lanes[i]; l.keeps() {
			step.slots[i] = l.Sequence.slot
		}
	}
	return s.memory.Scatter(s.plan(s.out))
}

// Abort gives up a step whose run failed. Every stored state is as it was
// before; a sequence whose START it was has none, and one that ends is forgotten.
// After Commit it does nothing.
func (s *Store) Abort(step *Step, now time.Duration) {
	if !step.open {
		return
	}
	step.open = false
	if s.roamer != nil {
		s.roamer.abort()
	}
	for _, l := range step.lanes {
		s.Fail(l, now)
	}
}

// TooLong reports whether a varying state would exceed its bound by what the run
// wrote, and is the error of Commit then. Where sequences of unequal length share
// a run, Undo can part them.
func (s *Store) TooLong(step *Step) error {
	_, err := s.varying.growth(step.lanes, step.padded)
	return err
}

// Undo gives up a step as if there had been none: unlike after Abort, a sequence
// that starts or ends with it can be tried again.
func (s *Store) Undo(step *Step) {
	step.open = false
	if s.roamer != nil {
		s.roamer.abort()
	}
}

// Fail is Abort for one lane that never came to run.
func (s *Store) Fail(l Lane, now time.Duration) {
	if s.roamer != nil {
		s.roamer.window = span{}
	}
	switch q := l.Sequence; {
	case q == nil:
	case q.fresh && l.Refused != nil:
		s.lose(q, StartFailed, l.Refused.Most, now)
	case q.fresh:
		s.lose(q, StartFailed, 0, now)
	case l.End:
		s.finish(q)
	}
}

// plan makes the transfers of the step between its slots and the tensors.
func (s *Store) plan(tensors []Block) []Transfer {
	for i := range s.states {
		st := &s.states[i]
		s.transfers[i] = Transfer{
			Layout:    st.Layout,
			Convert:   st.Convert,
			Chunks:    s.chunks[i],
			Initial:   s.initial[i],
			Slots:     s.step.slots,
			Tensor:    tensors[i],
			Lanes:     s.step.padded,
			Saturated: &s.counters.Saturated,
		}
	}
	return s.transfers
}
