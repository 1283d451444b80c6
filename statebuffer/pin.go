package statebuffer

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A large value in place is not copied to a Snapshot while batches wait: its cell is pinned.
// It stays as it is until Release, whatever becomes of the sequence. Where the store cannot
// do without the cell, it copies the value then, and so can always go on: pins make
// snapshots cheaper, but nothing depends on them. Cells of the scratch slabs are not pinned,
// because they would be needed again at once, and neither are those of a chunk that is to be
// freed.
//
// All but copyTo and release is for the goroutine of the Store.

const (
	// pinFrom is the size of a sequence's values from which they are pinned: it takes about
	// as long to copy less.
	pinFrom = 64 << 10
	// pinShare is the part of the cells, one of so many, that pins may keep from being used;
	// one strip in any case.
	pinShare = 10
	// lockedBytes is how much copyTo copies while the store may have to wait for it.
	lockedBytes = 1 << 20
)

// pin is a cell that a Snapshot reads.
type pin struct {
	slab         *slab // nil after the pin has ended
	cell         int
	first, lanes int  // the strip of the cell
	index        int  // among the pins of a store
	wipe         bool // its sequence has lost its state: overwrite the values in the end
	list         *releasedPins

	mu     sync.Mutex
	copied []byte // the values, if moved
	moved  bool   // the pin has ended before Release
	done   bool   // Release has come
}

// copyTo copies a part of the value of state i, from an offset in all values on. It is for
// any goroutine, before release.
func (p *pin) copyTo(i int, to []byte, offset int64) {
	for begin := 0; begin < len(to); begin += lockedBytes {
		part := to[begin:min(len(to), begin+lockedBytes)]
		p.mu.Lock()
		if p.moved {
			copy(part, p.copied[offset+int64(begin):])
		} else {
			p.slab.states[i].takePart(part, int64(begin), p.tensor(i), p.lanes, p.cell-p.first)
		}
		p.mu.Unlock()
	}
}

// tensor is that of state i in the strip of the cell.
func (p *pin) tensor(i int) []byte {
	return p.slab.memory[i].Bytes[int64(p.first)*p.slab.states[i].LaneBytes():]
}

// release gives the pin back to its store. It is for any goroutine.
func (p *pin) release() {
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	p.list.add(p)
}

// move copies the values, if they are still wanted, so that the cell is not needed any more.
func (p *pin) move(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	p.copied = slices.Grow(p.copied[:0], int(bytes))[:bytes]
	to := p.copied
	for i := range p.slab.states {
		st := &p.slab.states[i]
		st.TakeLane(to, p.tensor(i), p.lanes, p.cell-p.first)
		to = to[st.LaneBytes():]
	}
	p.moved = true
}

// releasedPins are pins that the store has yet to take back.
type releasedPins struct {
	any  atomic.Bool
	mu   sync.Mutex
	pins []*pin
}

func (l *releasedPins) add(p *pin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pins = append(l.pins, p)
	l.any.Store(true)
}

// take returns the pins, in exchange for an empty list.
func (l *releasedPins) take(empty []*pin) []*pin {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.pins
	l.pins = empty
	l.any.Store(false)
	return taken
}

// pins are those of the cells of a pool.
type pins struct {
	from     int64 // pinFrom
	share    int   // pinShare
	active   []*pin
	cells    int // in the strips of the active ones
	free     []*pin
	taken    []*pin
	released releasedPins
}

// pin implements placement.
func (v *inPlaceValues) pin(q *Sequence) *pin {
	v.collect()
	b := q.slab
	if v.laneBytes < v.pins.from || b.pool == nil || b.pinOf(q.cell()) != nil || v.pool.closing(b) {
		return nil
	}
	first := int(b.start[q.cell()])
	more := int(b.width[first])
	if len(b.pins) > 0 && b.stripPins[first] > 0 {
		more = 0
	}
	if more > 0 && v.pins.cells > 0 && (v.pins.cells+more)*v.pins.share > v.pool.cells() {
		return nil
	}
	var p *pin
	if n := len(v.pins.free); n > 0 {
		p, v.pins.free = v.pins.free[n-1], v.pins.free[:n-1]
	} else {
		p = &pin{list: &v.pins.released}
	}
	p.slab, p.cell, p.first, p.lanes, p.index = b, q.cell(), first, int(b.width[first]), len(v.pins.active)
	v.pins.active = append(v.pins.active, p)
	v.pins.cells += more
	b.pin(p)
	return p
}

// collect implements placement.
func (v *inPlaceValues) collect() {
	if !v.pins.released.any.Load() {
		return
	}
	v.pins.taken = v.pins.released.take(v.pins.taken[:0])
	for _, p := range v.pins.taken {
		v.unpin(p)
		p.moved, p.done = false, false
		v.pins.free = append(v.pins.free, p)
	}
}

// unpin ends a pin, unless it has ended.
func (v *inPlaceValues) unpin(p *pin) {
	if p.slab == nil {
		return
	}
	last := len(v.pins.active) - 1
	v.pins.active[p.index] = v.pins.active[last]
	v.pins.active[p.index].index = p.index
	v.pins.active = v.pins.active[:last]
	if p.slab.unpin(p) {
		v.pins.cells -= p.lanes
	}
	p.slab, p.wipe = nil, false
}

// freePinned ends a pin whose cell has no owner, because cells are needed, and reports
// whether there was one.
func (v *inPlaceValues) freePinned() bool {
	for _, p := range v.pins.active {
		if p.slab.owners[p.cell] == nil {
			p.move(v.laneBytes)
			v.unpin(p)
			return true
		}
	}
	return false
}

// close implements placement.
func (v *inPlaceValues) close() {
	for len(v.pins.active) > 0 {
		p := v.pins.active[0]
		p.move(v.laneBytes)
		v.unpin(p)
	}
}

// pin keeps a cell, which has an owner, as it is.
func (b *slab) pin(p *pin) {
	if b.pins == nil {
		b.pins, b.stripPins = make([]*pin, b.cells()), make([]int32, b.cells())
	}
	b.pins[p.cell] = p
	b.pinned++
	b.stripPins[p.first]++
	b.uses[p.first]++
}

// unpin ends that. If the cell has no owner any more it is a vacancy now. It reports whether
// no cell of the strip is pinned any more.
func (b *slab) unpin(p *pin) (last bool) {
	b.pins[p.cell] = nil
	b.pinned--
	b.stripPins[p.first]--
	last = b.stripPins[p.first] == 0
	if b.owners[p.cell] == nil {
		if p.wipe {
			b.clear(p.cell)
		}
		b.addVacancy(p.cell)
	}
	b.unuse(p.first)
	return last
}

// pinOf is the pin of a cell, or nil.
func (b *slab) pinOf(cell int) *pin {
	if b.pinned == 0 {
		return nil
	}
	return b.pins[cell]
}
