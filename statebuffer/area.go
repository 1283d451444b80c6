package statebuffer

import "math/bits"

// area is a piece of memory in cells, each as large as one sequence's value of
// every state. Consecutive cells can be used as one block: a batched tensor of
// that many lanes, as a run wrote it or is to read it. Where every state has its
// batch outermost, lanes do not interlace, and blocks are of one cell.
type area struct {
	number  int   // among the areas of a store
	pool    *pool // that the area is in, or nil
	dirty   bool  // the pool is to look at it again
	states  []State
	memory  []Block // of each state
	flat    bool    // blocks are of one cell
	free    int
	first   int      // no word of used before this one has a free cell
	skip    int      // a search for consecutive cells has given up before this word
	longest int      // no more free cells than that are consecutive
	vacant  int      // how many holes there are
	used    []uint64 // a bit for each cell: it belongs to a block
	tenant  []*Sequence
	holes   bitset  // the used cells without a tenant
	start   []int32 // of each used cell: the first cell of its block
	width   []int32 // of each block, by its first cell
	live    []int32 // tenants of each block, and 1 while a step uses it
}

func newArea(number int, states []State, memory []Block, cells int, flat bool) *area {
	a := &area{
		number: number, states: states, memory: memory, flat: flat, free: cells, longest: cells,
		used: make([]uint64, (cells+63)/64), tenant: make([]*Sequence, cells), holes: newBitset(cells),
		start: make([]int32, cells), width: make([]int32, cells), live: make([]int32, cells),
	}
	if tail := cells % 64; tail != 0 {
		a.used[len(a.used)-1] = ^uint64(0) << tail // cells that do not exist are not free
	}
	return a
}

func (a *area) cells() int { return len(a.tenant) }

// span is some consecutive cells; the zero span is none.
type span struct {
	area  *area
	at, n int
}

// has reports whether a cell is in the span.
func (s span) has(a *area, cell int) bool { return s.area == a && cell >= s.at && cell < s.at+s.n }

// tensor is the cells as a batched tensor of state i.
func (s span) tensor(i int) Block {
	bytes := s.area.states[i].LaneBytes()
	return s.area.memory[i].At(int64(s.at)*bytes, int64(s.n)*bytes)
}

// hold keeps the cells of a span from being freed or given out. Free cells
// become one block, or blocks of one cell; used ones must be whole blocks.
func (s span) hold() {
	a := s.area
	for at := s.at; at < s.at+s.n; {
		if !a.isUsed(at) {
			width := s.n
			if a.flat {
				width = 1
			}
			a.open(at, width)
		}
		a.live[at]++
		at += int(a.width[at])
	}
}

// drop ends a hold. Blocks without tenants are free again.
func (s span) drop() {
	for at := s.at; at < s.at+s.n; {
		width := int(s.area.width[at])
		s.area.leave(at)
		at += width
	}
}

func (a *area) isUsed(cell int) bool { return a.used[cell/64]&(1<<(cell%64)) != 0 }

// open makes free cells a block.
func (a *area) open(at, width int) {
	for cell := at; cell < at+width; cell++ {
		a.used[cell/64] |= 1 << (cell % 64)
		a.start[cell] = int32(at)
		a.holes.add(cell)
	}
	a.width[at], a.live[at] = int32(width), 0
	a.free -= width
	a.longest = min(a.longest, a.free)
	a.vacant += width
	a.changed()
}

// changed lets the pool look at the area before it is next searched.
func (a *area) changed() {
	if !a.dirty && a.pool != nil {
		a.dirty = true
		a.pool.dirty = append(a.pool.dirty, a)
	}
}

// leave takes one from what keeps a block.
func (a *area) leave(at int) {
	a.live[at]--
	if a.live[at] > 0 {
		return
	}
	width := int(a.width[at])
	for cell := at; cell < at+width; cell++ {
		a.used[cell/64] &^= 1 << (cell % 64)
		a.holes.remove(cell)
	}
	a.first = min(a.first, at/64)
	a.free += width
	a.longest = a.free
	a.vacant -= width
	a.changed()
}

// run finds n consecutive free cells, the first if it need not look far; at
// is negative if it has found none.
func (a *area) run(n int) (at int) {
	if a.free < n {
		return -1
	}
	for a.first < len(a.used) && a.used[a.first] == ^uint64(0) {
		a.first++
	}
	begin := a.first
	if n > 1 { // one free cell is there at once
		begin = max(begin, a.skip)
	}
	end := min(begin+runWords, len(a.used))
	length := 0 // of the free cells before a word
	for w := begin; w < end; w++ {
		free := ^a.used[w]
		low := bits.TrailingZeros64(^free)
		if length+low >= n {
			return w*64 - length
		}
		if low == 64 {
			length += 64
			continue
		}
		if bit := ones(free, n); bit >= 0 {
			return w*64 + bit
		}
		length = bits.LeadingZeros64(^free)
	}
	if end < len(a.used) {
		a.skip = end
		return -1
	}
	if a.skip = 0; begin == a.first { // it has looked everywhere
		a.longest = n - 1
		a.changed()
	}
	return -1
}

// runWords bounds a search for consecutive cells, so that its cost does not grow with
// the number of sequences: 64 cells each. The next search goes on from there.
const runWords = 256

// ones is where the first n consecutive ones begin in a word, or negative.
func ones(word uint64, n int) int {
	if n > 64 {
		return -1
	}
	for have := 1; have < n && word != 0; { // a one now stands for so many
		more := min(have, n-have)
		word &= word >> more
		have += more
	}
	if word == 0 {
		return -1
	}
	return bits.TrailingZeros64(word)
}

// hole finds a cell without a tenant in a block that nobody holds, or returns a
// negative number.
func (a *area) hole(not span) int {
	cell := a.holes.next(0)
	if cell >= 0 && not.has(a, cell) {
		cell = a.holes.next(not.at + not.n)
	}
	return cell
}

// resident is the first tenant from a word of cells on, and its word, or nil.
func (a *area) resident(from int) (q *Sequence, word int) {
	for w := from; w < len(a.used); w++ {
		if lived := a.used[w] &^ a.holes.words[w]; lived != 0 {
			if cell := w*64 + bits.TrailingZeros64(lived); cell < a.cells() {
				return a.tenant[cell], w
			}
		}
	}
	return nil, 0
}

// put makes a sequence the tenant of a cell, and leaves the one it had.
func (a *area) put(q *Sequence, cell int) {
	a.tenant[cell] = q
	a.holes.remove(cell)
	if a.vacant--; a.vacant == 0 {
		a.changed()
	}
	a.live[a.start[cell]]++
	q.leave(false)
	q.home, q.cell = a, cell
}

// leave gives up the cell of a sequence, if it has one, after overwriting it with
// zeros if wanted.
func (q *Sequence) leave(clean bool) {
	a := q.home
	if a == nil {
		return
	}
	if clean {
		a.clear(q.cell)
	}
	a.tenant[q.cell] = nil
	a.holes.add(q.cell)
	if a.vacant++; a.vacant == 1 {
		a.changed()
	}
	a.leave(int(a.start[q.cell]))
	q.home = nil
}

// lane is where a cell has state i: the batched tensor of the cell's block, how many
// lanes that has, and which one is the cell's.
func (a *area) lane(i, cell int) (tensor []byte, lanes, lane int) {
	first := int(a.start[cell])
	return a.memory[i].Bytes[int64(first)*a.states[i].LaneBytes():], int(a.width[first]), cell - first
}

// copy copies one lane of every state from a cell to another.
func (a *area) copy(cell int, from *area, fromCell int) {
	for i := range a.states {
		to, toLanes, toLane := a.lane(i, cell)
		data, lanes, lane := from.lane(i, fromCell)
		a.states[i].copyLane(to, toLanes, toLane, data, lanes, lane)
	}
}

// fill copies a value of every state to a cell.
func (a *area) fill(cell int, values []Block) {
	for i := range a.states {
		tensor, lanes, lane := a.lane(i, cell)
		a.states[i].PutLane(tensor, lanes, lane, values[i].Bytes)
	}
}

// clear overwrites one lane of every state with zeros.
func (a *area) clear(cell int) {
	for i := range a.states {
		tensor, lanes, lane := a.lane(i, cell)
		a.states[i].ClearLane(tensor, lanes, lane)
	}
}
