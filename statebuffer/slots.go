package statebuffer

import "math/bits"

// slotSet tracks which slots of which chunks are free. The lowest free slot is
// always taken first, so that the last chunk empties by itself.
type slotSet struct {
	chunks []chunkSlots
	some   bitset // the chunks that have a free slot
	free   int
}

// chunkSlots is one chunk's free slots as a bit set: 1 is free.
type chunkSlots struct {
	words []uint64
	free  int
	first int // no word before this one has a free slot
}

// grow adds a chunk of that many free slots.
func (r *slotSet) grow(slots int) {
	c := chunkSlots{words: make([]uint64, (slots+63)/64), free: slots}
	for i := range c.words {
		c.words[i] = ^uint64(0)
	}
	if tail := slots % 64; tail != 0 {
		c.words[len(c.words)-1] = 1<<tail - 1
	}
	r.some.extend(len(r.chunks) + 1)
	if slots > 0 {
		r.some.add(len(r.chunks))
	}
	r.chunks = append(r.chunks, c)
	r.free += slots
}

// shrink drops the last chunk, all of whose slots must be free.
func (r *slotSet) shrink() {
	last := len(r.chunks) - 1
	r.free -= r.chunks[last].free
	r.some.remove(last)
	r.chunks = r.chunks[:last]
}

// take removes the lowest free slot.
func (r *slotSet) take() (Slot, bool) {
	k := r.some.next(0)
	if k < 0 {
		return NoSlot, false
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
	return Slot{Chunk: int32(k), Index: int32(c.first*64 + bit)}, true
}

// put returns a slot that take gave. Returning a free slot is a bug in this
// package and panics: silently it would give one slot to two sequences.
func (r *slotSet) put(slot Slot) {
	c := &r.chunks[slot.Chunk]
	word, bit := int(slot.Index)/64, uint64(1)<<(slot.Index%64)
	if c.words[word]&bit != 0 {
		panic("statebuffer: a slot was freed twice")
	}
	c.words[word] |= bit
	c.first = min(c.first, word)
	c.free++
	r.some.add(int(slot.Chunk))
	r.free++
}
