package statebuffer

import "cmp"

// InPlace reports whether states stay where runs wrote them.
func (s *Store) InPlace() bool {
	_, inPlace := s.placement.(*inPlaceValues)
	return inPlace
}

// CompareLocations orders sequences by where their states are in memory; nil, and
// one that starts, come last. It is for stores with states InPlace.
func CompareLocations(a, b *Sequence) int {
	switch {
	case !a.hasLocation() && !b.hasLocation():
		return 0
	case !a.hasLocation():
		return 1
	case !b.hasLocation():
		return -1
	case a.slab != b.slab:
		return cmp.Compare(a.slab.number, b.slab.number)
	default:
		return cmp.Compare(a.cellIndex, b.cellIndex)
	}
}

// Adjacent reports whether one run can read the states of both where they are: those of
// b come right after those of a, or both are in one strip. It is also true of two that
// have none.
func Adjacent(a, b *Sequence) bool {
	if !a.hasLocation() || !b.hasLocation() {
		return a.hasLocation() == b.hasLocation()
	}
	if a.slab.flat {
		return a.slab == b.slab && a.cellIndex+1 == b.cellIndex
	}
	return a.slab == b.slab && a.slab.start[a.cellIndex] == b.slab.start[b.cellIndex]
}

// hasLocation reports whether the sequence has states that a step would read.
func (q *Sequence) hasLocation() bool { return q != nil && !q.fresh && q.slab != nil }
