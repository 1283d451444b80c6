package statebuffer

import "slices"

// slabPool is the slabs of the chunks. Finding cells in it takes no longer the more of
// them there are.
type slabPool struct {
	slabs     []*slab
	longest   firstFit // of each slab: how many consecutive free cells it has at most
	vacancies bitset   // the slabs that have vacancies
	stale     []*slab  // that have changed since the pool looked at them
	// closed: the last slab is to be released, and counts as full.
	closed bool
}

func (p *slabPool) grow(b *slab) {
	b.pool = p
	p.slabs = append(p.slabs, b)
	p.longest.extend(len(p.slabs))
	p.vacancies.extend(len(p.slabs))
	p.stale = slices.Grow(p.stale, len(p.slabs)-len(p.stale))
	b.changed()
}

// shrink drops the last slab.
func (p *slabPool) shrink() {
	p.close()
	p.refresh()
	p.last().pool = nil
	p.slabs = p.slabs[:len(p.slabs)-1]
	p.closed = false
}

func (p *slabPool) last() *slab { return p.slabs[len(p.slabs)-1] }

// close gives out no more cells of the last slab.
func (p *slabPool) close() {
	p.closed = true
	p.last().changed()
}

// closing reports whether a slab is to be released.
func (p *slabPool) closing(b *slab) bool { return p.closed && b == p.last() }

// cells is how many all slabs have.
func (p *slabPool) cells() (n int) {
	for _, b := range p.slabs {
		n += b.cells()
	}
	return n
}

// reopen takes that back.
func (p *slabPool) reopen() {
	if p.closed {
		p.closed = false
		p.last().changed()
	}
}

// refresh looks at the slabs that have changed.
func (p *slabPool) refresh() {
	for _, b := range p.stale {
		b.stale = false
		i := b.number - p.slabs[0].number
		longest, vacant := b.longest, b.vacant
		if p.closed && i == len(p.slabs)-1 {
			longest, vacant = 0, 0
		}
		p.longest.set(i, int32(longest))
		if vacant > 0 {
			p.vacancies.add(i)
		} else {
			p.vacancies.remove(i)
		}
	}
	p.stale = p.stale[:0]
}

// findCells finds n consecutive free cells. A slab that turns out to have none is not
// searched again until a strip of it is free.
func (p *slabPool) findCells(n int) (b *slab, first int) {
	p.refresh()
	for i := p.longest.first(0, int32(n)); i >= 0; i = p.longest.first(i+1, int32(n)) {
		if cell := p.slabs[i].findCells(n); cell >= 0 {
			return p.slabs[i], cell
		}
	}
	return nil, 0
}

// vacancy finds a cell without an owner in a strip, outside of a span.
func (p *slabPool) vacancy(outside span) (b *slab, cell int) {
	p.refresh()
	for i := p.vacancies.next(0); i >= 0; i = p.vacancies.next(i + 1) {
		if cell := p.slabs[i].vacancy(outside); cell >= 0 {
			return p.slabs[i], cell
		}
	}
	return nil, 0
}
