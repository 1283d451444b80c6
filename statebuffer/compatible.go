package statebuffer

import (
	"hash/maphash"

	"tritonstateful/internal/tensor"
)

// Compatible reports whether two sequences can share a run: their varying states have
// equal shapes. A nil sequence is one that starts.
func (s *Store) Compatible(a, b *Sequence) bool { return s.varying.compatible(a, b) }

// Differs reports whether a state by itself keeps two sequences from being Compatible. state
// counts in Options.Varying.
func (s *Store) Differs(state int, a, b *Sequence) bool {
	return !s.varying.states[state].compatibleShapes(s.varying.shape(state, a), s.varying.shape(state, b))
}

// compatible reports whether two sequences can share a run.
func (s *varyingStore) compatible(a, b *Sequence) bool {
	for i := range s.states {
		if !s.states[i].compatibleShapes(s.shape(i, a), s.shape(i, b)) {
			return false
		}
	}
	return true
}

// compatibleShapes reports whether values of two shapes can share a run.
func (v *Varying) compatibleShapes(a, b tensor.Shape) bool {
	for axis := range a {
		if a[axis] != b[axis] && (!v.LeftPadded || axis != v.PadAxis) {
			return false
		}
	}
	return true
}

// HashShapes adds to a hash what Compatible sequences have in common; others hardly ever
// have the same hash. A nil sequence is one that starts.
func (s *Store) HashShapes(h *maphash.Hash, q *Sequence) {
	for i := range s.varying.states {
		v := &s.varying.states[i]
		for axis, extent := range s.varying.shape(i, q) {
			if !v.LeftPadded || axis != v.PadAxis {
				maphash.WriteComparable(h, extent)
			}
		}
	}
}
