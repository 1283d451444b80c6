package statebuffer

import "cmp"

// InPlace reports whether states stay where runs wrote them.
func (s *Store) InPlace() bool { return s.roamer != nil }

// CompareLocations orders sequences by where their states are in memory; nil, and
// one that starts, come last. It is for stores that Roam.
func CompareLocations(a, b *Sequence) int {
	switch {
	case !a.placed() && !b.placed():
		return 0
	case !a.placed():
		return 1
	case !b.placed():
		return -1
	case a.home != b.home:
		return cmp.Compare(a.home.number, b.home.number)
	default:
		return cmp.Compare(a.cell, b.cell)
	}
}

// Adjacent reports whether one run can read the states of both where they are: those
// of b lie right behind those of a, or they lie in one block. It is also true of
// two that have none.
func Adjacent(a, b *Sequence) bool {
	if !a.placed() || !b.placed() {
		return a.placed() == b.placed()
	}
	if a.home.flat {
		return a.home == b.home && a.cell+1 == b.cell
	}
	return a.home == b.home && a.home.start[a.cell] == b.home.start[b.cell]
}

// placed reports whether the sequence has states that a step would read.
func (q *Sequence) placed() bool { return q != nil && !q.fresh && q.home != nil }
