package statebuffer

import (
	"fmt"
	"time"

	"tritonstateful/internal/tensor"
)

// Saved is a sequence after a step, as it was read from a Snapshot.
type Saved struct {
	Steps  uint64       // see Sequence.Steps
	Totals []uint64     // see Sequence.Totals
	Values []SavedValue // in the order of Snapshot.Values
}

// SavedValue is the value of one state.
type SavedValue struct {
	DType tensor.DType
	Shape tensor.Shape // of one lane
	Data  []byte
}

// MismatchError says that saved values are not those of the states of a store.
type MismatchError struct {
	// State is the name of the state that differs, or empty if their number does.
	State string
	// Found is what was saved, and Want what would be right.
	Found, Want string
}

func (e *MismatchError) Error() string {
	if e.State == "" {
		return fmt.Sprintf("there are %s saved states: the model has %s", e.Found, e.Want)
	}
	return fmt.Sprintf("state %q: the saved value is %s: want %s", e.State, e.Found, e.Want)
}

// Restore is BeginSettingAside of a sequence that goes on where a saved one was: its next
// step reads the saved values. A state that is stored as FP16 takes FP16 as it is, and FP32
// as it would from a run. saved is borrowed. No step may be open.
//
// The error is a *FullError, a *BudgetError, a *MismatchError, a *GrewError, or of the
// memory; the sequence has no state then, and neither has one that had the key before.
func (s *Store) Restore(k Key, token uint64, saved *Saved, now time.Duration) (*Sequence, error) {
	if s.step.open {
		return nil, errStepOpen
	}
	if err := s.checkSaved(saved); err != nil {
		if token != 0 {
			s.SetAside(k, token, now)
		}
		s.Refuse(k, now)
		return nil, err
	}
	q, err := s.BeginSettingAside(k, token, now)
	if err != nil {
		return nil, err
	}
	limit := int64(0)
	err = s.allocateSaved(q, saved, &limit, now)
	if err == nil {
		err = s.writeSaved(q, saved)
	}
	if err != nil {
		s.revoke(q, StartFailed, limit, now)
		return nil, err
	}
	q.fresh, q.steps = false, saved.Steps
	if len(saved.Totals) > 0 { // a START has left none
		own := q.own()
		own.totals = append(own.totals[:0], saved.Totals...)
	}
	return q, nil
}

// checkSaved compares saved values with the states.
func (s *Store) checkSaved(saved *Saved) error {
	if want := len(s.states) + len(s.varying.states); len(saved.Values) != want {
		return &MismatchError{Found: fmt.Sprint(len(saved.Values)), Want: fmt.Sprint(want)}
	}
	for i := range saved.Values {
		value := &saved.Values[i]
		if i < len(s.states) {
			if st := &s.states[i]; !st.takes(value) {
				return &MismatchError{st.Name, value.String(), fmt.Sprintf("%v %v, %d bytes", st.storedDType(), st.Shape, st.StoredBytes())}
			}
			continue
		}
		v := &s.varying.states[i-len(s.states)]
		if !v.takes(value) {
			return &MismatchError{v.Name, value.String(), v.wanted()}
		}
		if bytes := int64(len(value.Data)); v.MaxBytes > 0 && bytes > v.MaxBytes {
			return &GrewError{State: v.Name, Shape: value.Shape.Clone(), Bytes: bytes, Most: v.MaxBytes}
		}
	}
	return nil
}

// takes reports whether a saved value is one of the state.
func (s *State) takes(value *SavedValue) bool {
	bytes := int64(len(value.Data))
	switch {
	case !value.Shape.Equal(s.Shape):
		return false
	case s.narrows(value):
		return bytes == s.LaneBytes()
	default:
		return value.DType == s.storedDType() && bytes == s.StoredBytes()
	}
}

// narrows reports whether the elements of a saved value are converted as those of a run.
func (s *State) narrows(value *SavedValue) bool { return s.Convert == Half && value.DType == s.DType }

// takes reports whether a saved value is one of the state.
func (v *Varying) takes(value *SavedValue) bool {
	bytes, err := value.Shape.Bytes(v.DType)
	return err == nil && value.DType == v.DType && bytes == int64(len(value.Data)) &&
		len(value.Shape) == len(v.InitialShape) && (v.Axis < 0 || value.Shape[v.Axis] == 1)
}

// wanted describes the values that a state takes.
func (v *Varying) wanted() string {
	batch := ""
	if v.Axis >= 0 {
		batch = fmt.Sprintf(" with 1 at axis %d", v.Axis)
	}
	return fmt.Sprintf("%v of rank %d%s", v.DType, len(v.InitialShape), batch)
}

func (v *SavedValue) String() string {
	return fmt.Sprintf("%v %v, %d bytes", v.DType, v.Shape, len(v.Data))
}

// allocateSaved makes room for the varying values of a sequence that has just begun; limit
// is set if there is too little memory.
func (s *Store) allocateSaved(q *Sequence, saved *Saved, limit *int64, now time.Duration) error {
	varying, more := saved.Values[len(s.states):], int64(0)
	for i := range varying {
		if bytes := int64(len(varying[i].Data)); bytes > 0 {
			more += Capacity(bytes)
		}
	}
	if !s.fits(more) && !s.fitsAfterEviction(nil, more, now) {
		*limit = s.limits.Bytes
		return &BudgetError{Held: s.held(), More: more, Most: *limit}
	}
	for i := range varying {
		if err := s.varying.reserveValue(Lane{Sequence: q}, i, int64(len(varying[i].Data))); err != nil {
			return fmt.Errorf("state %q: %w", s.varying.states[i].Name, err)
		}
	}
	return nil
}

// writeSaved makes saved values those of a sequence that has room for them.
func (s *Store) writeSaved(q *Sequence, saved *Saved) error {
	fixed := make([][]byte, len(s.states))
	for i := range fixed {
		value := &saved.Values[i]
		if fixed[i] = value.Data; s.states[i].narrows(value) {
			fixed[i] = make([]byte, s.states[i].StoredBytes())
			s.counters.Saturated += tensor.Halves(fixed[i], value.Data)
		}
	}
	if err := s.placement.write(q, fixed); err != nil {
		return err
	}
	for i := range q.values {
		value := &saved.Values[len(s.states)+i]
		if err := write(s.memory, q.values[i].block, value.Data); err != nil {
			return fmt.Errorf("state %q: %w", s.varying.states[i].Name, err)
		}
		q.values[i].shape = value.Shape.Clone()
	}
	return nil
}
