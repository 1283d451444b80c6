package statebuffer

import "math/bits"

// slab is memory in cells. A cell is room for one lane's value of every state.
// Consecutive cells can be used as one strip: a batched tensor of that many lanes, as a
// run wrote it or is to read it. Where every state has its batch outermost, lanes do not
// interlace, and strips are of one cell.
//
// A strip lasts while a cell of it has an owner, the sequence whose values are there, or
// a step holds it. A cell of a strip that has no owner is a vacancy, unless it is pinned;
// what is in no strip is free.
type slab struct {
	number    int       // among the slabs of a store
	pool      *slabPool // that the slab is in, or nil
	stale     bool      // the pool has to look at it again
	states    []State
	memory    []Block // of each state
	flat      bool    // strips are of one cell
	free      bitset  // cells
	freeCells int
	longest   int // no more free cells than that are consecutive
	skip      int // a search for consecutive cells has given up before this word
	owners    []*Sequence
	vacancies bitset  // cells
	vacant    int     // how many vacancies there are
	start     []int32 // of each cell in a strip: the first cell of that
	width     []int32 // of each strip, by its first cell
	uses      []int32 // of each strip: its owners and pins, and 1 while a step holds it
	pins      []*pin  // of each cell; nil as long as there has been none
	stripPins []int32 // of each strip, by its first cell: how many pins it has
	pinned    int     // how many pins there are
}

func newSlab(number int, states []State, memory []Block, cells int, flat bool) *slab {
	return &slab{
		number: number, states: states, memory: memory, flat: flat,
		free: fullBitset(cells), freeCells: cells, longest: cells,
		owners: make([]*Sequence, cells), vacancies: newBitset(cells),
		start: make([]int32, cells), width: make([]int32, cells), uses: make([]int32, cells),
	}
}

func (b *slab) cells() int { return len(b.owners) }

// span is consecutive cells; the zero span is none.
type span struct {
	slab     *slab
	first, n int
}

// has reports whether a cell is in the span.
func (s span) has(b *slab, cell int) bool {
	return s.slab == b && cell >= s.first && cell < s.first+s.n
}

// tensor is the cells as a batched tensor of state i.
func (s span) tensor(i int) Block {
	bytes := s.slab.states[i].LaneBytes()
	return s.slab.memory[i].At(int64(s.first)*bytes, int64(s.n)*bytes)
}

// hold keeps the cells of a span from being freed or given out. Free cells become one
// strip, or strips of one cell; used ones must be whole strips.
func (s span) hold() {
	b := s.slab
	for cell := s.first; cell < s.first+s.n; {
		if b.free.has(cell) {
			width := s.n
			if b.flat {
				width = 1
			}
			b.open(cell, width)
		}
		b.uses[cell]++
		cell += int(b.width[cell])
	}
}

// drop ends a hold. Strips without owners are free again.
func (s span) drop() {
	for cell := s.first; cell < s.first+s.n; {
		width := int(s.slab.width[cell])
		s.slab.unuse(cell)
		cell += width
	}
}

// open makes free cells a strip, all of whose cells are vacancies.
func (b *slab) open(first, width int) {
	for cell := first; cell < first+width; cell++ {
		b.free.remove(cell)
		b.vacancies.add(cell)
		b.start[cell] = int32(first)
	}
	b.width[first], b.uses[first] = int32(width), 0
	b.freeCells -= width
	b.longest = min(b.longest, b.freeCells)
	b.vacant += width
	b.changed()
}

// unuse takes away one use of a strip. After the last one its cells are free.
func (b *slab) unuse(first int) {
	b.uses[first]--
	if b.uses[first] > 0 {
		return
	}
	width := int(b.width[first])
	for cell := first; cell < first+width; cell++ {
		b.free.add(cell)
		b.vacancies.remove(cell)
	}
	b.freeCells += width
	b.longest = b.freeCells
	b.vacant -= width
	b.changed()
}

// changed has the pool look at the slab before it is next searched.
func (b *slab) changed() {
	if !b.stale && b.pool != nil {
		b.stale = true
		b.pool.stale = append(b.pool.stale, b)
	}
}

// searchWords bounds a search for consecutive cells, so that its cost does not grow with
// the number of sequences: 64 cells each. The next search goes on from there.
const searchWords = 256

// findCells finds n consecutive free cells, the first ones if it need not look far. It
// returns a negative number if it has found none.
func (b *slab) findCells(n int) (first int) {
	if b.freeCells < n {
		return -1
	}
	lowest := b.free.next(0)
	if n == 1 {
		return lowest
	}
	begin := max(lowest/64, b.skip)
	end := min(begin+searchWords, len(b.free.words))
	if cell := b.free.consecutive(n, begin, end); cell >= 0 {
		return cell
	}
	if end < len(b.free.words) {
		b.skip = end
		return -1
	}
	if b.skip = 0; begin == lowest/64 { // it has looked everywhere
		b.longest = n - 1
		b.changed()
	}
	return -1
}

// vacancy finds a cell without an owner in a strip, outside of a span, or returns a
// negative number.
func (b *slab) vacancy(outside span) int {
	cell := b.vacancies.next(0)
	if cell >= 0 && outside.has(b, cell) {
		cell = b.vacancies.next(outside.first + outside.n)
	}
	return cell
}

// owner is the first sequence that has a cell, from a word of cells on, and its word; or
// nil.
func (b *slab) owner(fromWord int) (q *Sequence, word int) {
	for w := fromWord; w < len(b.free.words); w++ {
		for owned := ^(b.free.words[w] | b.vacancies.words[w]); owned != 0; owned &= owned - 1 {
			cell := w*64 + bits.TrailingZeros64(owned)
			if cell < b.cells() && b.owners[cell] != nil { // not only pinned
				return b.owners[cell], w
			}
		}
	}
	return nil, 0
}

// assign makes a sequence the owner of a cell, instead of the one it had.
func (b *slab) assign(q *Sequence, cell int) {
	b.owners[cell] = q
	b.vacancies.remove(cell)
	if b.vacant--; b.vacant == 0 {
		b.changed()
	}
	b.uses[b.start[cell]]++
	q.vacate(false)
	q.slab, q.cellIndex = b, int32(cell)
}

// vacate gives up the cell of a sequence, if it has one, after overwriting it with
// zeros if wanted.
func (q *Sequence) vacate(overwrite bool) {
	b := q.slab
	if b == nil {
		return
	}
	b.owners[q.cell()] = nil
	if p := b.pinOf(q.cell()); p != nil {
		p.wipe = overwrite
	} else {
		if overwrite {
			b.clear(q.cell())
		}
		b.addVacancy(q.cell())
	}
	b.unuse(int(b.start[q.cell()]))
	q.slab = nil
}

// addVacancy makes a cell that has no owner a vacancy.
func (b *slab) addVacancy(cell int) {
	b.vacancies.add(cell)
	if b.vacant++; b.vacant == 1 {
		b.changed()
	}
}

// lane is where a cell has state i: the batched tensor of the cell's strip, how many
// lanes that has, and which one is the cell's.
func (b *slab) lane(i, cell int) (tensor []byte, lanes, lane int) {
	first := int(b.start[cell])
	return b.memory[i].Bytes[int64(first)*b.states[i].LaneBytes():], int(b.width[first]), cell - first
}

// copy copies one lane of every state from a cell to another.
func (b *slab) copy(cell int, from *slab, fromCell int) {
	for i := range b.states {
		to, toLanes, toLane := b.lane(i, cell)
		data, lanes, lane := from.lane(i, fromCell)
		b.states[i].copyLane(to, toLanes, toLane, data, lanes, lane)
	}
}

// put copies a value of every state to a cell.
func (b *slab) put(cell int, values []Block) {
	for i := range b.states {
		tensor, lanes, lane := b.lane(i, cell)
		b.states[i].PutLane(tensor, lanes, lane, values[i].Bytes)
	}
}

// clear overwrites one lane of every state with zeros.
func (b *slab) clear(cell int) {
	for i := range b.states {
		tensor, lanes, lane := b.lane(i, cell)
		b.states[i].clearLane(tensor, lanes, lane)
	}
}
