package statebuffer

import "hash/maphash"

// HashShapes adds to a hash what sequences that are Compatible have in common; others hardly
// ever have the same hash. A nil sequence is one that starts.
func (s *Store) HashShapes(h *maphash.Hash, q *Sequence) {
	for i := range s.varying.states {
		v := &s.varying.states[i]
		for axis, extent := range s.varying.shape(i, q) {
			if !v.LeftPadded || axis != v.lengthAxis() {
				maphash.WriteComparable(h, extent)
			}
		}
	}
}
