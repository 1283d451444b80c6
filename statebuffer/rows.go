package statebuffer

import "math/bits"

// rowSet tracks which rows of which chunks are free. The lowest free row is
// always taken first, so that the last chunk empties by itself.
type rowSet struct {
	chunks []chunkRows
	some   bitset // the chunks that have a free row
	free   int
}

// chunkRows is one chunk's free rows as a bit set: 1 is free.
type chunkRows struct {
	words []uint64
	free  int
	first int // no word before this one has a free row
}

// grow adds a chunk of that many free rows.
func (r *rowSet) grow(rows int) {
	c := chunkRows{words: make([]uint64, (rows+63)/64), free: rows}
	for i := range c.words {
		c.words[i] = ^uint64(0)
	}
	if tail := rows % 64; tail != 0 {
		c.words[len(c.words)-1] = 1<<tail - 1
	}
	r.some.extend(len(r.chunks) + 1)
	if rows > 0 {
		r.some.add(len(r.chunks))
	}
	r.chunks = append(r.chunks, c)
	r.free += rows
}

// shrink drops the last chunk, all of whose rows must be free.
func (r *rowSet) shrink() {
	last := len(r.chunks) - 1
	r.free -= r.chunks[last].free
	r.some.remove(last)
	r.chunks = r.chunks[:last]
}

// take removes the lowest free row.
func (r *rowSet) take() (Row, bool) {
	k := r.some.next(0)
	if k < 0 {
		return NoRow, false
	}
	c := &r.chunks[k]
	for c.words[c.first] == 0 {
		c.first++
	}
	bit := bits.TrailingZeros64(c.words[c.first])
	c.words[c.first] &^= 1 << bit
	if c.free--; c.free == 0 {
		r.some.remove(k)
	}
	r.free--
	return Row{Chunk: int32(k), Index: int32(c.first*64 + bit)}, true
}

// put returns a row that take gave. Returning a free row is a bug in this
// package and panics: silently it would give one row to two sequences.
func (r *rowSet) put(row Row) {
	c := &r.chunks[row.Chunk]
	word, bit := int(row.Index)/64, uint64(1)<<(row.Index%64)
	if c.words[word]&bit != 0 {
		panic("statebuffer: a row was freed twice")
	}
	c.words[word] |= bit
	c.first = min(c.first, word)
	c.free++
	r.some.add(int(row.Chunk))
	r.free++
}
