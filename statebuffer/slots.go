package statebuffer

// slotSet tracks which slots of which chunks are free. The lowest free slot is
// always taken first, so that the last chunk empties by itself.
type slotSet struct {
	chunks    []chunkSlots
	available bitset // the chunks that have a free slot
	free      int
}

// chunkSlots are the free slots of one chunk.
type chunkSlots struct {
	set  bitset
	free int // how many there are
}

// grow adds a chunk of that many free slots.
func (s *slotSet) grow(slots int) {
	chunk := len(s.chunks)
	s.chunks = append(s.chunks, chunkSlots{set: fullBitset(slots), free: slots})
	s.available.extend(chunk + 1)
	if slots > 0 {
		s.available.add(chunk)
	}
	s.free += slots
}

// shrink drops the last chunk, all of whose slots must be free.
func (s *slotSet) shrink() {
	last := len(s.chunks) - 1
	s.free -= s.chunks[last].free
	s.available.remove(last)
	s.chunks = s.chunks[:last]
}

// take removes the lowest free slot.
func (s *slotSet) take() (Slot, bool) {
	chunk := s.available.next(0)
	if chunk < 0 {
		return NoSlot, false
	}
	c := &s.chunks[chunk]
	index := c.set.next(0)
	c.set.remove(index)
	if c.free--; c.free == 0 {
		s.available.remove(chunk)
	}
	s.free--
	return Slot{Chunk: int32(chunk), Index: int32(index)}, true
}

// put returns a slot that take gave. Returning a free slot is a bug in this
// package and panics: silently it would give one slot to two sequences.
func (s *slotSet) put(slot Slot) {
	c, index := &s.chunks[slot.Chunk], int(slot.Index)
	if c.set.has(index) {
		panic("statebuffer: a slot was freed twice")
	}
	c.set.add(index)
	c.free++
	s.available.add(int(slot.Chunk))
	s.free++
}
