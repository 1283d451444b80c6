package statebuffer

// placement is where sequences have their values of the states of fixed shape, and how
// these get into the batched tensors of a run and back. copiedValues and inPlaceValues
// are the two.
//
// A step is gather, then commit or abort; one is open at a time. The sequences of all
// methods own a slot.
type placement interface {
	// arrange returns the order of the lanes in which a step copies least; element i is
	// the lane to be the i-th. It is valid until the next call. nil means that all
	// orders are equal. gather must follow with these lanes, or disarrange.
	arrange(lanes []Lane) (order []int)
	// disarrange takes back what arrange has prepared.
	disarrange()
	// gather sets In and Out of the step to batched tensors of its width. In has the
	// lanes' values, or the initial ones of lanes without a value.
	gather(step *Step) error
	// commit makes what the run wrote to Out the values of the lanes that commit. After
	// an error the values of all lanes are undefined.
	commit(step *Step) error
	// abort ends a step without changing any value. Without a step it does nothing.
	abort()
	// release overwrites the values of a sequence that is about to lose its slot.
	release(q *Sequence)
	// pin keeps the values of a sequence where they are for a Snapshot, or returns nil if
	// they are better copied. No step is open.
	pin(q *Sequence) *pin
	// collect takes back pins that were released.
	collect()
	// close copies what is still pinned, because the memory is to be freed.
	close()
	// read copies the values of a sequence, one after the other. No step is open.
	read(q *Sequence, to []byte) error
	// write makes these the values of a sequence that has just begun, as they are stored.
	// No step is open.
	write(q *Sequence, values [][]byte) error
	// grow takes over a chunk: a block for each state, with that many slots.
	grow(chunk []Block, slots int)
	// drain moves values out of the last chunk, whose slots are all free, some of them
	// in each call, and reports whether it is empty. No value is put there meanwhile,
	// until undrain.
	drain() (empty bool)
	// undrain takes back drain, because the chunk stays.
	undrain()
	// shrink gives up the last chunk, which is empty.
	shrink()
}

// newPlacement chooses the placement of a store: large values stay where runs wrote
// them, if the host can copy them, and nothing is converted.
func newPlacement(st *storage, inPlaceFrom int64, saturated *uint64) placement {
	if inPlaceFrom > 0 && st.SlotBytes() >= inPlaceFrom && st.canStayInPlace() {
		return newInPlaceValues(st.states, st.initial, [2][]Block{st.in, st.out}, st.maxLanes)
	}
	return newCopiedValues(st, saturated)
}
