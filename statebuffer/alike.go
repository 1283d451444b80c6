package statebuffer

import "hash/maphash"

// HashShapes adds to a hash what sequences have in common that are Alike; others hardly
// ever have the same hash. A nil sequence is one that starts.
func (s *Store) HashShapes(h *maphash.Hash, q *Sequence) {
	for i := range s.varying.states {
		v := &s.varying.states[i]
		for axis, extent := range s.varying.shape(i, q) {
			if !v.Padded || axis != v.lengthAxis() {
				maphash.WriteComparable(h, extent)
			}
		}
	}
}
