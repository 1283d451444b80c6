package statebuffer

import "slices"

// pool is the areas that the chunks bring, so arranged that finding cells takes no
// longer the more of them there are.
type pool struct {
	areas []*area
	rooms firstFit // of each area, how many consecutive free cells it has at most
	holes bitset   // the areas that have holes
	dirty []*area  // what the pool knows of these is of yesterday
	// closed: the last area is to be released, and counts as full.
	closed bool
}

func (p *pool) grow(a *area) {
	a.pool = p
	p.areas = append(p.areas, a)
	p.rooms.extend(len(p.areas))
	p.holes.extend(len(p.areas))
	p.dirty = slices.Grow(p.dirty, len(p.areas)-len(p.dirty))
	a.changed()
}

// shrink drops the last area.
func (p *pool) shrink() {
	p.close()
	p.refresh()
	p.last().pool = nil
	p.areas = p.areas[:len(p.areas)-1]
	p.closed = false
}

func (p *pool) last() *area { return p.areas[len(p.areas)-1] }

// close gives out no more cells of the last area.
func (p *pool) close() {
	p.closed = true
	p.last().changed()
}

// reopen takes that back.
func (p *pool) reopen() {
	if p.closed {
		p.closed = false
		p.last().changed()
	}
}

// refresh looks at the areas that have changed.
func (p *pool) refresh() {
	for _, a := range p.dirty {
		a.dirty = false
		at := a.number - p.areas[0].number
		longest, vacant := a.longest, a.vacant
		if p.closed && at == len(p.areas)-1 {
			longest, vacant = 0, 0
		}
		p.rooms.set(at, int32(longest))
		if vacant > 0 {
			p.holes.add(at)
		} else {
			p.holes.remove(at)
		}
	}
	p.dirty = p.dirty[:0]
}

// run finds n consecutive free cells. An area that turns out to have none is not asked
// again until a block of it is free.
func (p *pool) run(n int) (a *area, at int) {
	p.refresh()
	for i := p.rooms.first(0, int32(n)); i >= 0; i = p.rooms.first(i+1, int32(n)) {
		if at := p.areas[i].run(n); at >= 0 {
			return p.areas[i], at
		}
	}
	return nil, 0
}

// hole finds a cell without a tenant in a block, which is none of a step's.
func (p *pool) hole(not span) (a *area, cell int) {
	p.refresh()
	for i := p.holes.next(0); i >= 0; i = p.holes.next(i + 1) {
		if cell := p.areas[i].hole(not); cell >= 0 {
			return p.areas[i], cell
		}
	}
	return nil, 0
}
