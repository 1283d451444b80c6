package statebuffer

import (
	"cmp"
	"slices"
)

// drainBytes is how much a store moves after a batch to empty a chunk that it is to
// release: half a millisecond of copying.
const drainBytes = 4 << 20

// roamer keeps states where runs wrote them. A step reads a block of cells as it
// is where its lanes live together in one, or nearly; else it gathers them into
// a block. Its outputs are bound to other free cells, and when the run succeeded
// these are where the lanes' sequences live. So a batch of the same sequences as
// an earlier one copies nothing, and any other batch copies each state once.
//
// There are as many cells as slots, plus two bays of one largest batch each. A
// sequence's slot still counts it: who has a slot has a place in the pool of cells,
// if need be between the lanes of a block, so that a bay can always be emptied.
type roamer struct {
	states  []State
	initial []Block
	flat    bool // the batch is outermost in every state
	pool    pool
	bays    [2]*area
	most    int64 // see drainBytes

	window  span // where Arrange wants the next step to read
	order   []int
	members []member
	in, out span // of the open step
}

// member is a lane whose sequence has a value.
type member struct {
	area       *area
	cell, lane int
}

func newRoamer(states []State, initial []Block, bays [2][]Block, maxLanes int) *roamer {
	r := &roamer{states: states, initial: initial, flat: true, most: drainBytes}
	for i := range states {
		r.flat = r.flat && states[i].Pieces == 1
	}
	for i := range bays {
		r.bays[i] = newArea(i, states, bays[i], maxLanes, r.flat)
	}
	r.order = make([]int, maxLanes)
	r.members = make([]member, 0, maxLanes)
	return r
}

func (r *roamer) grow(memory []Block, cells int) {
	r.reopen()
	r.pool.grow(newArea(len(r.bays)+len(r.pool.areas), r.states, memory, cells, r.flat))
}

// drain moves some of those who live in the last area of the pool elsewhere, and
// reports whether nobody is left. Nobody moves in meanwhile, if there is room anywhere
// else. There is if no sequence has a slot of the last chunk.
func (r *roamer) drain() (empty bool) {
	r.pool.close()
	r.window = span{}
	each := int64(0)
	for i := range r.states {
		each += r.states[i].LaneBytes()
	}
	q, word := r.pool.last().resident(0)
	for moved := int64(0); q != nil && moved < r.most; moved += each {
		r.move(q)
		q, word = r.pool.last().resident(word)
	}
	return q == nil
}

// reopen lets sequences move into the last area again.
func (r *roamer) reopen() { r.pool.reopen() }

// shrink drops the last area of the pool, which must be empty.
func (r *roamer) shrink() {
	r.window = span{}
	r.pool.shrink()
}

// arrange finds the cells in which most of the lanes live, and the order of the
// lanes in which these cells can be read as they are.
func (r *roamer) arrange(lanes []Lane) []int {
	r.window = span{}
	owned := r.note(lanes)
	switch {
	case !owned: // a lane of nobody's would take cells that have no slot, so that tenants find none
	case r.flat:
		r.findWindow(len(lanes))
	default:
		r.findBlock(len(lanes))
	}
	if !r.worthwhile() {
		r.window = span{}
		return nil
	}
	order := r.order[:len(lanes)]
	for i := range order {
		order[i] = -1
	}
	for _, m := range r.members {
		if r.window.has(m.area, m.cell) {
			order[m.cell-r.window.at] = m.lane
		}
	}
	at := 0
	for lane := range lanes {
		if q := lanes[lane].Sequence; q != nil && r.window.has(q.home, q.cell) {
			continue
		}
		for order[at] >= 0 {
			at++
		}
		order[at] = lane
	}
	return order
}

// note lists the lanes that have a value, and reports whether all belong to a sequence.
// A sequence that starts anew has no value.
func (r *roamer) note(lanes []Lane) (owned bool) {
	r.members, owned = r.members[:0], true
	for lane := range lanes {
		q := lanes[lane].Sequence
		switch {
		case q == nil:
			owned = false
		case q.fresh:
			q.leave(true)
		default:
			r.members = append(r.members, member{q.home, q.cell, lane})
		}
	}
	return owned
}

// findWindow makes the window the n consecutive cells that hold most members.
func (r *roamer) findWindow(n int) {
	slices.SortFunc(r.members, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.area.number, b.area.number), cmp.Compare(a.cell, b.cell))
	})
	best, from := 0, 0
	for to, m := range r.members {
		for r.members[from].area != m.area || r.members[from].cell <= m.cell-n {
			from++
		}
		if to-from+1 > best && m.area.cells() >= n {
			best = to - from + 1
			r.window = span{m.area, min(r.members[from].cell, m.area.cells()-n), n}
		}
	}
}

// findBlock makes the window the block of n lanes that holds most members.
func (r *roamer) findBlock(n int) {
	best := 0
	for i := range r.members {
		a := r.members[i].area
		at := int(a.start[r.members[i].cell])
		if int(a.width[at]) != n || r.window == (span{a, at, n}) {
			continue
		}
		block := span{a, at, n}
		if count := r.count(block); count > best {
			best, r.window = count, block
		}
	}
}

func (r *roamer) count(s span) (n int) {
	for _, m := range r.members {
		if s.has(m.area, m.cell) {
			n++
		}
	}
	return n
}

// worthwhile reports whether reading the window copies less than gathering does:
// members elsewhere are to be brought in, and others who live there moved out.
func (r *roamer) worthwhile() bool {
	if r.window.area == nil {
		return false
	}
	inside, tenants := r.count(r.window), 0
	for _, q := range r.window.area.tenant[r.window.at : r.window.at+r.window.n] {
		if q != nil {
			tenants++
		}
	}
	return len(r.members)-inside+tenants-inside < len(r.members)
}

// gather makes the input of a step and finds cells for its output.
func (r *roamer) gather(lanes []Lane, padded int) {
	r.abort() // what a panic may have left open
	r.note(lanes)
	if r.window.n == len(lanes) && padded == len(lanes) {
		r.in = r.window
		r.in.hold()
		r.patch(lanes)
	} else {
		r.in = span{r.emptyBay(), 0, padded}
		r.in.hold()
		r.fill(lanes)
	}
	r.window = span{}
	r.out = r.space(padded)
	r.out.hold()
}

// patch makes the window hold the lanes in their order.
func (r *roamer) patch(lanes []Lane) {
	a := r.in.area
	for i, l := range lanes {
		cell, q := r.in.at+i, l.Sequence
		if q != nil && a.tenant[cell] == q {
			continue
		}
		if other := a.tenant[cell]; other != nil {
			r.move(other)
		}
		if q == nil || q.fresh {
			a.fill(cell, r.initial)
			continue
		}
		a.copy(cell, q.home, q.cell)
		a.put(q, cell)
	}
}

// fill copies the lanes to the input. Their values stay where they are as well.
func (r *roamer) fill(lanes []Lane) {
	for i := range r.in.n {
		if i < len(lanes) && lanes[i].Sequence != nil && !lanes[i].Sequence.fresh {
			q := lanes[i].Sequence
			r.in.area.copy(i, q.home, q.cell)
			continue
		}
		r.in.area.fill(i, r.initial)
	}
}

// move gives a sequence another cell, which is not one of the step's.
func (r *roamer) move(q *Sequence) {
	a, cell := r.spot()
	a.copy(cell, q.home, q.cell)
	a.put(q, cell)
}

// spot finds a cell for one sequence: a free one, or one between the lanes of a
// block. There is one as long as no more sequences have slots than there are.
func (r *roamer) spot() (*area, int) {
	if a, at := r.pool.run(1); a != nil {
		a.open(at, 1)
		return a, at
	}
	if a, cell := r.pool.hole(r.in); a != nil {
		return a, cell
	}
	if r.pool.closed { // somebody has got a slot of the last chunk meanwhile
		r.reopen()
		return r.spot()
	}
	for _, a := range r.bays { // only while a window of the pool is in use
		if at := a.run(1); at >= 0 && !r.in.has(a, at) {
			a.open(at, 1)
			return a, at
		}
	}
	panic("statebuffer: there are more sequences than slots")
}

// space finds n consecutive free cells.
func (r *roamer) space(n int) span {
	if a, at := r.pool.run(n); a != nil {
		return span{a, at, n}
	}
	return span{r.emptyBay(), 0, n}
}

// emptyBay is a bay that the open step does not use, emptied if need be.
func (r *roamer) emptyBay() *area {
	for _, a := range r.bays {
		if a.free == a.cells() {
			return a
		}
	}
	a := r.bays[0]
	if r.in.area == a {
		a = r.bays[1]
	}
	r.evacuate(a)
	return a
}

// evacuate moves everybody out of an area.
func (r *roamer) evacuate(a *area) {
	for _, q := range a.tenant {
		if q != nil {
			r.move(q)
		}
	}
}

// commit makes the output the home of the lanes' sequences.
func (r *roamer) commit(lanes []Lane) {
	for i, l := range lanes {
		if l.keeps() {
			r.out.area.put(l.Sequence, r.out.at+i)
		}
	}
	r.abort()
}

// abort gives back what the step held.
func (r *roamer) abort() {
	r.in.drop()
	r.out.drop()
	r.in, r.out = span{}, span{}
}
