package statebuffer

import "cmp"

// Roams tells whether states stay where runs wrote them.
func (s *Store) Roams() bool { return s.roamer != nil }

// ComparePlaces orders sequences by where their states are in memory; nil, and
// one that starts, come last. It is for stores that Roam.
func ComparePlaces(a, b *Sequence) int {
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

// Beside tells whether one run can read the states of both where they are: those
// of b lie right behind those of a, or they lie in one block. It is also true of
// two that have none.
func Beside(a, b *Sequence) bool {
	if !a.placed() || !b.placed() {
		return a.placed() == b.placed()
	}
	if a.home.flat {
		return a.home == b.home && a.cell+1 == b.cell
	}
	return a.home == b.home && a.home.start[a.cell] == b.home.start[b.cell]
}

// placed tells whether the sequence has states that a step would read.
func (q *Sequence) placed() bool { return q != nil && !q.fresh && q.home != nil }
