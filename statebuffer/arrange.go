package statebuffer

import (
	"cmp"
	"slices"
)

// arranger finds the order of the lanes in which a step can read most values where they
// are.
type arranger struct {
	flat    bool // the batch is outermost in every state, so strips are of one cell
	window  span // the cells that the next step is to read, or none
	order   []int
	members []member
}

// member is a lane whose sequence has a value.
type member struct {
	slab       *slab
	cell, lane int
}

func newArranger(maxLanes int, flat bool) arranger {
	return arranger{flat: flat, order: make([]int, maxLanes), members: make([]member, 0, maxLanes)}
}

// disarrange implements placement.
func (r *arranger) disarrange() { r.window = span{} }

// arrange implements placement. It finds the cells that have most of the lanes' values,
// and the order of the lanes in which these cells can be read as they are.
func (r *arranger) arrange(lanes []Lane) []int {
	r.disarrange()
	owned := r.note(lanes)
	switch {
	case !owned:
		// A lane without a sequence owns no slot. If it took cells of the pool here, a
		// sequence that does own a slot could find none free.
	case r.flat:
		r.findWindow(len(lanes))
	default:
		r.findStrip(len(lanes))
	}
	if !r.worthwhile() {
		r.disarrange()
		return nil
	}
	order := r.order[:len(lanes)]
	for i := range order {
		order[i] = -1
	}
	for _, m := range r.members {
		if r.window.has(m.slab, m.cell) {
			order[m.cell-r.window.first] = m.lane
		}
	}
	i := 0
	for lane := range lanes {
		if q := lanes[lane].Sequence; q != nil && r.window.has(q.slab, q.cell()) {
			continue
		}
		for order[i] >= 0 {
			i++
		}
		order[i] = lane
	}
	return order
}

// note lists the lanes that have a value, and reports whether all belong to a sequence.
// A sequence that starts again has no value.
func (r *arranger) note(lanes []Lane) (owned bool) {
	r.members, owned = r.members[:0], true
	for lane := range lanes {
		q := lanes[lane].Sequence
		switch {
		case q == nil:
			owned = false
		case q.fresh:
			q.vacate(true)
		default:
			r.members = append(r.members, member{q.slab, q.cell(), lane})
		}
	}
	return owned
}

// findWindow makes the window the n consecutive cells that have most members.
func (r *arranger) findWindow(n int) {
	slices.SortFunc(r.members, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.slab.number, b.slab.number), cmp.Compare(a.cell, b.cell))
	})
	best, from := 0, 0
	for to, m := range r.members {
		for r.members[from].slab != m.slab || r.members[from].cell <= m.cell-n {
			from++
		}
		if to-from+1 > best && m.slab.cells() >= n {
			best = to - from + 1
			r.window = span{m.slab, min(r.members[from].cell, m.slab.cells()-n), n}
		}
	}
}

// findStrip makes the window the strip of n lanes that has most members.
func (r *arranger) findStrip(n int) {
	best := 0
	for _, m := range r.members {
		first := int(m.slab.start[m.cell])
		strip := span{m.slab, first, n}
		if int(m.slab.width[first]) != n || r.window == strip {
			continue
		}
		if count := r.count(strip); count > best {
			best, r.window = count, strip
		}
	}
}

// count is how many members are in a span.
func (r *arranger) count(s span) (n int) {
	for _, m := range r.members {
		if s.has(m.slab, m.cell) {
			n++
		}
	}
	return n
}

// worthwhile reports whether reading the window copies less than gathering does: the
// members elsewhere have to be copied into it, and other owners moved out.
func (r *arranger) worthwhile() bool {
	if r.window.slab == nil {
		return false
	}
	inside, owners := r.count(r.window), 0
	for _, q := range r.window.slab.owners[r.window.first : r.window.first+r.window.n] {
		if q != nil {
			owners++
		}
	}
	return len(r.members)-inside+owners-inside < len(r.members)
}
