package statebuffer

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkPool: what the pool knows of a slab lets it find free cells and vacancies in it,
// if it may.
func (w *world) checkPool(at int, b *slab) {
	p := &inPlaceOf(w.store).pool
	open := !p.closed || at < len(p.slabs)-1
	length, longest, vacancies := 0, 0, 0
	for cell := range b.cells() {
		if length++; !b.free.has(cell) {
			length = 0
		}
		longest = max(longest, length)
		if !b.free.has(cell) && b.owners[cell] == nil && b.pinOf(cell) == nil {
			vacancies++
		}
	}
	require.Equal(w.t, vacancies, b.vacant)
	require.Equal(w.t, open && vacancies > 0, p.vacancies.next(at) == at)
	if most := int(p.longest.most[len(p.longest.most)/2+at]); open {
		require.True(w.t, longest <= most && most <= b.freeCells, "%d of %d free cells are consecutive, and at most %d may be", longest, b.freeCells, most)
	} else {
		require.Zero(w.t, most)
	}
}

// checkSlabs: between steps every value has one cell, every strip has an
// owner, and nothing is held.
func (w *world) checkSlabs() {
	v, values := inPlaceOf(w.store), 0
	v.pool.refresh()
	for i, b := range v.pool.slabs {
		w.checkPool(i, b)
	}
	for _, b := range append(v.scratch[:], v.pool.slabs...) {
		free := 0
		for cell := 0; cell < b.cells(); cell++ {
			if q := b.owners[cell]; q != nil {
				values++
				require.Same(w.t, b, q.slab)
				require.Equal(w.t, cell, q.cell())
				require.True(w.t, !b.free.has(cell))
			}
			require.Equal(w.t, !b.free.has(cell) && b.owners[cell] == nil && b.pinOf(cell) == nil, b.vacancies.next(cell) == cell)
			if b.free.has(cell) {
				free++
				continue
			}
			at := int(b.start[cell])
			require.True(w.t, at <= cell && cell < at+int(b.width[at]))
			uses, pins := 0, 0
			for cell := at; cell < at+int(b.width[at]); cell++ {
				if b.owners[cell] != nil {
					uses++
				}
				if b.pinOf(cell) != nil {
					pins++
				}
			}
			require.NotZero(w.t, uses+pins, "a strip without owners")
			require.Equal(w.t, uses+pins, int(b.uses[at]))
			if b.pinned > 0 && cell == at {
				require.Equal(w.t, pins, int(b.stripPins[at]))
			}
		}
		require.Equal(w.t, free, b.freeCells)
	}
	for q := w.store.live.first; q != nil; q = q.next {
		if !q.fresh {
			values--
			require.NotNil(w.t, q.slab)
		}
	}
	require.GreaterOrEqual(w.t, values, 0, "only a sequence that starts again may have an old value too")
	w.checkPins()
	require.Equal(w.t, span{}, v.in)
	require.Equal(w.t, span{}, v.out)
}

// checkPins: each is of a cell, and they keep no more cells than they may.
func (w *world) checkPins() {
	v := inPlaceOf(w.store)
	cells, strips := 0, map[*slab]map[int]bool{}
	for i, p := range v.pins.active {
		require.Equal(w.t, i, p.index)
		require.Same(w.t, p, p.slab.pinOf(p.cell))
		if strips[p.slab] == nil {
			strips[p.slab] = map[int]bool{}
		}
		if !strips[p.slab][p.first] {
			strips[p.slab][p.first] = true
			cells += p.lanes
		}
	}
	pinned := 0
	for _, b := range v.pool.slabs {
		pinned += b.pinned
	}
	require.Len(w.t, v.pins.active, pinned)
	require.Equal(w.t, cells, v.pins.cells)
	for _, b := range v.scratch {
		require.Zero(w.t, b.pinned)
	}
}

// TestConsecutiveCells finds free cells as a plain search does.
func TestConsecutiveCells(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 2000 {
		cells := 1 + rng.IntN(300)
		b := newSlab(0, nil, nil, cells, true)
		share := rng.IntN(101)
		for cell := range cells {
			if rng.IntN(100) < share {
				b.open(cell, 1)
			}
		}
		n := 1 + rng.IntN(90)
		want := -1
		for at := 0; want < 0 && at+n <= cells; at++ {
			if freeAt(b, at, n) {
				want = at
			}
		}
		require.Equal(t, want, b.findCells(n), "%d of %d cells", n, cells)
	}
}

// TestCellsFarAway: a search that is bounded goes on where it ended,
// and one free cell is found wherever it is.
func TestCellsFarAway(t *testing.T) {
	const cells = 3 * 64 * searchWords
	b := newSlab(0, nil, nil, cells, true)
	for cell := 0; cell < cells-10; cell += 2 {
		b.open(cell, 1)
	}
	require.Negative(t, b.findCells(3))
	require.Negative(t, b.findCells(3))
	require.Equal(t, cells-11, b.findCells(3))
	require.Equal(t, 1, b.findCells(1))
}

func freeAt(b *slab, at, n int) bool {
	for cell := at; cell < at+n; cell++ {
		if !b.free.has(cell) {
			return false
		}
	}
	return true
}
