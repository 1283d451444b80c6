package statebuffer

import "slices"

// drainBytes is how much a store moves after a batch to empty a chunk that it is to
// release: half a millisecond of copying.
const drainBytes = 4 << 20

// inPlaceValues is the placement in which values stay where runs wrote them. A step reads a strip of cells as it
// is where its lanes have their values together in one, or nearly; else it gathers them
// into a strip. Its outputs are bound to other free cells, and when the run succeeded
// these belong to the lanes' sequences. So a batch of the same sequences as an earlier
// one copies nothing, and any other batch copies each value once.
//
// The slabs of the chunks have a cell for each slot, and there are two scratch slabs,
// each of one largest batch. A sequence that owns a slot has a cell in the pool, wherever
// that is, if need be a vacancy between the lanes of a strip, or one that a Snapshot has
// pinned. So a scratch slab can always be emptied.
type inPlaceValues struct {
	states     []State
	laneBytes  int64 // of all states
	initial    []Block
	pool       slabPool
	pins       pins
	scratch    [2]*slab
	drainBytes int64 // in each call of drain

	arranger
	in, out span // of the open step
}

func newInPlaceValues(states []State, initial []Block, scratch [2][]Block, maxLanes int) *inPlaceValues {
	flat := !slices.ContainsFunc(states, func(st State) bool { return st.Pieces != 1 })
	v := &inPlaceValues{states: states, initial: initial, drainBytes: drainBytes, arranger: newArranger(maxLanes, flat)}
	v.pins.from, v.pins.share = pinFrom, pinShare
	for i := range states {
		v.laneBytes += states[i].LaneBytes()
	}
	for i := range scratch {
		v.scratch[i] = newSlab(i, states, scratch[i], maxLanes, flat)
	}
	return v
}

func (v *inPlaceValues) grow(chunk []Block, slots int) {
	v.undrain()
	v.pool.grow(newSlab(len(v.scratch)+len(v.pool.slabs), v.states, chunk, slots, v.flat))
}

// drain finds other cells for the values, because no sequence has a slot of the last
// chunk, and so there are enough. It leaves cells that are pinned for a later call.
func (v *inPlaceValues) drain() (empty bool) {
	v.pool.close()
	v.disarrange()
	q, word := v.pool.last().owner(0)
	for moved := int64(0); q != nil && moved < v.drainBytes; moved += v.laneBytes {
		v.move(q)
		q, word = v.pool.last().owner(word)
	}
	return q == nil && v.pool.last().pinned == 0
}

func (v *inPlaceValues) undrain() { v.pool.reopen() }

func (v *inPlaceValues) shrink() {
	v.disarrange()
	v.pool.shrink()
}

func (v *inPlaceValues) release(q *Sequence) { q.vacate(true) }

func (v *inPlaceValues) read(q *Sequence, to []byte) error {
	for i := range v.states {
		tensor, lanes, lane := q.slab.lane(i, q.cell())
		v.states[i].TakeLane(to, tensor, lanes, lane)
		to = to[v.states[i].LaneBytes():]
	}
	return nil
}

func (v *inPlaceValues) write(q *Sequence, values [][]byte) error {
	v.disarrange()
	q.vacate(true) // of what it was before its START
	b, cell := v.findCell()
	for i := range v.states {
		tensor, lanes, lane := b.lane(i, cell)
		v.states[i].PutLane(tensor, lanes, lane, values[i])
	}
	b.assign(q, cell)
	return nil
}

// gather makes the input of a step and finds cells for its output.
func (v *inPlaceValues) gather(step *Step) error {
	v.abort() // what a panic may have left open
	v.collect()
	lanes, width := step.lanes, step.width
	v.note(lanes)
	if v.window.n == len(lanes) && width == len(lanes) && v.patchable(lanes) {
		v.in = v.window
		v.in.hold()
		v.patch(lanes)
	} else {
		v.in = span{v.emptyScratch(), 0, width}
		v.in.hold()
		v.fill(lanes)
	}
	v.disarrange()
	v.out = v.findCells(width)
	v.out.hold()
	for i := range v.states {
		step.In[i], step.Out[i] = v.in.tensor(i), v.out.tensor(i)
	}
	return nil
}

// patchable reports whether patch would leave pinned cells as they are.
func (v *inPlaceValues) patchable(lanes []Lane) bool {
	b := v.window.slab
	for i := 0; i < len(lanes) && b.pinned > 0; i++ {
		if cell := v.window.first + i; b.pins[cell] != nil && (lanes[i].Sequence == nil || b.owners[cell] != lanes[i].Sequence) {
			return false
		}
	}
	return true
}

// patch makes the window hold the lanes in their order.
func (v *inPlaceValues) patch(lanes []Lane) {
	b := v.in.slab
	for i, l := range lanes {
		cell, q := v.in.first+i, l.Sequence
		if q != nil && b.owners[cell] == q {
			continue
		}
		if other := b.owners[cell]; other != nil {
			v.move(other)
		}
		if q == nil || q.fresh {
			b.put(cell, v.initial)
			continue
		}
		b.copy(cell, q.slab, q.cell())
		b.assign(q, cell)
	}
}

// fill copies the lanes' values to the input. They stay where they are as well.
func (v *inPlaceValues) fill(lanes []Lane) {
	for i := range v.in.n {
		if i < len(lanes) && lanes[i].Sequence != nil && !lanes[i].Sequence.fresh {
			q := lanes[i].Sequence
			v.in.slab.copy(i, q.slab, q.cell())
			continue
		}
		v.in.slab.put(i, v.initial)
	}
}

// commit makes the lanes' sequences the owners of the output.
func (v *inPlaceValues) commit(step *Step) error {
	for i, l := range step.lanes {
		if l.commits() {
			v.out.slab.assign(l.Sequence, v.out.first+i)
		}
	}
	v.abort()
	return nil
}

// abort gives back what the step holds.
func (v *inPlaceValues) abort() {
	v.in.drop()
	v.out.drop()
	v.in, v.out = span{}, span{}
}

// move gives a sequence another cell, which is not one of the step's.
func (v *inPlaceValues) move(q *Sequence) {
	b, cell := v.findCell()
	b.copy(cell, q.slab, q.cell())
	b.assign(q, cell)
}

// findCell finds a cell for one sequence: a free one, or a vacancy. There is one as
// long as no more sequences own slots than there are.
func (v *inPlaceValues) findCell() (*slab, int) {
	if b, cell := v.pool.findCells(1); b != nil {
		b.open(cell, 1)
		return b, cell
	}
	if b, cell := v.pool.vacancy(v.in); b != nil {
		return b, cell
	}
	if v.freePinned() {
		return v.findCell()
	}
	if v.pool.closed { // a sequence has got a slot of the last chunk meanwhile
		v.undrain()
		return v.findCell()
	}
	for _, b := range v.scratch { // only while a window of the pool is in use
		if cell := b.findCells(1); cell >= 0 && !v.in.has(b, cell) {
			b.open(cell, 1)
			return b, cell
		}
	}
	panic("statebuffer: there are more sequences than slots")
}

// findCells finds n consecutive free cells.
func (v *inPlaceValues) findCells(n int) span {
	if b, cell := v.pool.findCells(n); b != nil {
		return span{b, cell, n}
	}
	return span{v.emptyScratch(), 0, n}
}

// emptyScratch is a scratch slab that the open step does not use, emptied if need be.
func (v *inPlaceValues) emptyScratch() *slab {
	for _, b := range v.scratch {
		if b.freeCells == b.cells() {
			return b
		}
	}
	b := v.scratch[0]
	if v.in.slab == b {
		b = v.scratch[1]
	}
	for _, q := range b.owners {
		if q != nil {
			v.move(q)
		}
	}
	return b
}
