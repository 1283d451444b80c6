package statebuffer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkPool: what the pool knows of an area lets it find free cells and holes in it, if
// it may.
func (w *world) checkPool(at int, a *area) {
	p := &w.store.roamer.pool
	open := !p.closed || at < len(p.areas)-1
	length, longest, holes := 0, 0, 0
	for cell := range a.cells() {
		if length++; a.isUsed(cell) {
			length = 0
		}
		longest = max(longest, length)
		if a.isUsed(cell) && a.tenant[cell] == nil {
			holes++
		}
	}
	require.Equal(w.t, holes, a.vacant)
	require.Equal(w.t, open && holes > 0, p.holes.next(at) == at)
	if most := int(p.rooms.most[len(p.rooms.most)/2+at]); open {
		require.True(w.t, longest <= most && most <= a.free, "%d of %d free cells are consecutive, and at most %d may be", longest, a.free, most)
	} else {
		require.Zero(w.t, most)
	}
}

// checkAreas: between steps every value has one cell, every used cell is for
// somebody, and nothing is held.
func (w *world) checkAreas() {
	r, homes := w.store.roamer, 0
	r.pool.refresh()
	for i, a := range r.pool.areas {
		w.checkPool(i, a)
	}
	for _, a := range append(r.bays[:], r.pool.areas...) {
		free := 0
		for cell := 0; cell < a.cells(); cell++ {
			if q := a.tenant[cell]; q != nil {
				homes++
				require.Same(w.t, a, q.home)
				require.Equal(w.t, cell, q.cell)
				require.True(w.t, a.isUsed(cell))
			}
			require.Equal(w.t, a.isUsed(cell) && a.tenant[cell] == nil, a.holes.next(cell) == cell)
			if !a.isUsed(cell) {
				free++
				continue
			}
			at := int(a.start[cell])
			require.True(w.t, at <= cell && cell < at+int(a.width[at]))
			tenants := 0
			for _, q := range a.tenant[at : at+int(a.width[at])] {
				if q != nil {
					tenants++
				}
			}
			require.NotZero(w.t, tenants, "a block that is nobody's")
			require.Equal(w.t, tenants, int(a.live[at]))
		}
		require.Equal(w.t, free, a.free)
	}
	for q := w.store.live.first; q != nil; q = q.next {
		if !q.fresh {
			homes--
			require.NotNil(w.t, q.home)
		}
	}
	require.GreaterOrEqual(w.t, homes, 0, "only a sequence that starts anew may have an old value too")
	require.Equal(w.t, span{}, r.in)
	require.Equal(w.t, span{}, r.out)
}

// roamingIf is a store with sequences that have a state, which roams or not.
func roamingIf(t testing.TB, roams bool, layout Layout, slots, sequences, lanes int) (*Store, []*Sequence) {
	from := int64(-1)
	if roams {
		from = 1
	}
	s := newTestStore(t, Options{
		States:   []State{{Name: "state", Layout: layout}},
		Sizing:   Sizing{Initial: slots, MaxChunks: 1},
		MaxLanes: lanes, InPlaceFrom: from,
	})
	all := make([]*Sequence, sequences)
	for n := range all {
		all[n] = begin(t, s, number(uint64(n)), 1)
		stepOnce(t, s, []Lane{{Sequence: all[n]}})
	}
	return s, all
}

func lanesOf(sequences []*Sequence) []Lane {
	lanes := make([]Lane, len(sequences))
	for i, q := range sequences {
		lanes[i].Sequence = q
	}
	return lanes
}

// twins is a store that roams and one that does not, to which the same happens.
type twins struct {
	t      *testing.T
	rng    *rand.Rand
	layout Layout
	stores [2]*Store
	both   map[uint64][2]*Sequence
	lanes  int
}

// nobody is the number of a lane that belongs to no sequence, as padding does.
const nobody = 1 << 40

// TestRoamingEqualsCopying: whatever batches come, both stores give every lane the
// same bytes to read.
func TestRoamingEqualsCopying(t *testing.T) {
	for _, layout := range []Layout{{1, 40}, {5, 8}} {
		for _, slots := range []int{8, 24, 64} { // with 8, every cell is somebody's
			t.Run(fmt.Sprintf("pieces=%d/slots=%d", layout.Pieces, slots), func(t *testing.T) {
				w := &twins{t: t, rng: rand.New(rand.NewPCG(uint64(slots), 5)), layout: layout, both: map[uint64][2]*Sequence{}, lanes: 8}
				for i, from := range []int64{-1, 1} {
					w.stores[i] = newTestStore(t, Options{
						States:   []State{{Name: "state", Layout: layout, Initial: bytes.Repeat([]byte{7}, 40)}, {Name: "other", Layout: Layout{layout.Pieces, 3}}},
						Sizing:   Sizing{Initial: slots, MaxChunks: 1},
						MaxLanes: w.lanes, InPlaceFrom: from,
					})
				}
				for range 3000 {
					w.step(w.pick(slots))
				}
			})
		}
	}
}

// pick chooses a batch: the first sequences, which often come together, or any.
func (w *twins) pick(slots int) (ids []uint64) {
	if w.rng.IntN(2) == 0 {
		first := uint64(w.rng.IntN(2) * (slots - w.lanes) / 2)
		for i := range uint64(w.lanes - w.rng.IntN(2)) {
			ids = append(ids, first+i)
		}
		return ids
	}
	for _, id := range w.rng.Perm(slots)[:1+w.rng.IntN(w.lanes)] {
		if w.rng.IntN(8) == 0 {
			id = nobody
		}
		ids = append(ids, uint64(id))
	}
	return ids
}

// step runs a batch on both stores, which want their lanes in different orders.
func (w *twins) step(ids []uint64) {
	fails, padding := w.rng.IntN(12) == 0, w.rng.IntN(4)/3
	ends, starts := map[uint64]bool{}, map[uint64]bool{}
	for _, id := range ids {
		if id == nobody {
			continue
		}
		_, known := w.both[id]
		starts[id], ends[id] = !known || w.rng.IntN(20) == 0, w.rng.IntN(20) == 0
	}
	var read [2]map[uint64][]byte
	salt := byte(w.rng.IntN(256))
	for i, s := range w.stores {
		read[i] = w.run(i, s, ids, starts, ends, fails, min(w.lanes, len(ids)+padding), salt)
	}
	require.Equal(w.t, read[0], read[1])
	for _, id := range ids {
		if fails && starts[id] || ends[id] {
			delete(w.both, id)
		}
	}
}

// run is the step on one store; the model adds to what it reads.
func (w *twins) run(i int, s *Store, ids []uint64, starts, ends map[uint64]bool, fails bool, padded int, salt byte) map[uint64][]byte {
	lanes := make([]Lane, len(ids))
	for lane, id := range ids {
		if id == nobody {
			continue
		}
		if starts[id] {
			pair := w.both[id]
			pair[i] = begin(w.t, s, number(id), 1)
			w.both[id] = pair
		}
		lanes[lane] = Lane{Sequence: w.both[id][i], End: ends[id]}
	}
	order := s.Arrange(lanes)
	if order != nil {
		ordered, names := make([]Lane, len(lanes)), make([]uint64, len(ids))
		for at, lane := range order {
			ordered[at], names[at] = lanes[lane], ids[lane]
		}
		lanes, ids = ordered, names
	}
	step, err := s.Gather(lanes, padded)
	require.NoError(w.t, err)
	read := map[uint64][]byte{}
	for k := range s.states {
		for lane := range padded {
			var name uint64 = nobody
			if lane < len(ids) {
				name = ids[lane]
			}
			l := s.states[k].Layout
			for x := range l.Pieces {
				at := (x*int64(padded) + int64(lane)) * l.PieceBytes
				in, out := step.In[k].Bytes[at:at+l.PieceBytes], step.Out[k].Bytes[at:at+l.PieceBytes]
				read[name] = append(read[name], in...)
				for b := range out {
					out[b] = in[b]*3 + salt + byte(name)
				}
			}
		}
	}
	if fails {
		s.Abort(step, 1)
	} else {
		require.NoError(w.t, s.Commit(step, 1))
	}
	return read
}

// TestRepeatedBatchesAreNotCopied: a step reads what an earlier one wrote, where
// it wrote it.
func TestRepeatedBatchesAreNotCopied(t *testing.T) {
	for _, layout := range []Layout{{1, 512}, {4, 128}} {
		for _, pattern := range []string{"together", "turns"} {
			t.Run(fmt.Sprintf("pieces=%d/%s", layout.Pieces, pattern), func(t *testing.T) {
				s, batches := patternOf(t, layout, 8, pattern, true)
				wrote := map[int]uint64{}
				groups := map[string]int{"together": 1, "turns": 2}[pattern]
				for i, lanes := range batches {
					ordered := slices.Clone(lanes)
					for at, lane := range s.Arrange(lanes) {
						ordered[at] = lanes[lane]
					}
					step, err := s.Gather(ordered, len(ordered))
					require.NoError(t, err)
					if i >= groups {
						require.Equal(t, wrote[i%groups], step.In[0].Addr)
					}
					wrote[i%groups] = step.Out[0].Addr
					require.NoError(t, s.Commit(step, 1))
				}
			})
		}
	}
}

// TestOneLaneIsReadWhereItLies: a batch of one copies nothing in either direction.
func TestOneLaneIsReadWhereItLies(t *testing.T) {
	s, all := roamingIf(t, true, Layout{4, 128}, 6, 6, 3)
	for range 20 {
		for _, q := range all {
			home := span{q.home, q.cell, 1}.tensor(0)
			lanes := lanesOf([]*Sequence{q})
			require.Equal(t, []int{0}, s.Arrange(lanes))
			step, err := s.Gather(lanes, 1)
			require.NoError(t, err)
			require.Equal(t, home.Addr, step.In[0].Addr)
			require.NoError(t, s.Commit(step, 1))
			require.Equal(t, span{q.home, q.cell, 1}.tensor(0).Addr, step.Out[0].Addr)
		}
	}
}

// TestRoamingTakesNoMoreMemory than copying: slots, and two largest batches.
func TestRoamingTakesNoMoreMemory(t *testing.T) {
	used := map[int64]int64{}
	for _, from := range []int64{-1, 1} {
		memory := &Heap{}
		newTestStore(t, Options{
			Memory: memory, States: []State{{Name: "state", Layout: Layout{1, 100}}},
			Sizing: Sizing{Initial: 50, MaxChunks: 1}, MaxLanes: 5, InPlaceFrom: from,
		})
		used[from] = memory.Used()
	}
	require.Equal(t, int64(100*(50+2*5+1)), used[1], "and one initial value")
	require.Equal(t, used[-1], used[1])
}

// TestRoamingAllocatesNothing on Go's heap, whatever batches come.
func TestRoamingAllocatesNothing(t *testing.T) {
	for _, layout := range []Layout{{1, 512}, {4, 128}} {
		s, batches := patternOf(t, layout, 8, "random", true)
		sorted, i := make([]Lane, 8), 0
		require.Zero(t, testing.AllocsPerRun(200, func() {
			inOrder(t, s, batches[i%len(batches)], sorted)
			i++
		}))
	}
}

// TestCellsInARow finds free cells as a plain search does.
func TestCellsInARow(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 2000 {
		cells := 1 + rng.IntN(300)
		a := newArea(0, nil, nil, cells, true)
		share := rng.IntN(101)
		for cell := range cells {
			if rng.IntN(100) < share {
				a.open(cell, 1)
			}
		}
		n := 1 + rng.IntN(90)
		want := -1
		for at := 0; want < 0 && at+n <= cells; at++ {
			if freeAt(a, at, n) {
				want = at
			}
		}
		require.Equal(t, want, a.run(n), "%d of %d cells", n, cells)
	}
}

// TestCellsFarAway: a search that looks at so much only goes on where it ended,
// and one free cell is found wherever it is.
func TestCellsFarAway(t *testing.T) {
	const cells = 3 * 64 * runWords
	a := newArea(0, nil, nil, cells, true)
	for cell := 0; cell < cells-10; cell += 2 {
		a.open(cell, 1)
	}
	require.Negative(t, a.run(3))
	require.Negative(t, a.run(3))
	require.Equal(t, cells-11, a.run(3))
	require.Equal(t, 1, a.run(1))
}

func freeAt(a *area, at, n int) bool {
	for cell := at; cell < at+n; cell++ {
		if a.isUsed(cell) {
			return false
		}
	}
	return true
}

// draining is a store of two chunks, of which the last one is to be freed: nobody has a
// slot of it, but values of a mebibyte live there.
func draining(t *testing.T) *Store {
	s := newTestStore(t, Options{
		States: []State{{Name: "state", Layout: Layout{1, 1 << 20}}},
		Sizing: Sizing{Initial: 12, Subsequent: 12, MaxChunks: 2, AllocBelow: 2, DeallocAbove: 12}, MaxLanes: 4,
	})
	for n := range uint64(24) {
		doStep(t, s, Lane{Sequence: begin(t, s, number(n), 1)}, fmt.Sprintf("state %02d", n))
		_, err := s.Maintain(at(1))
		require.NoError(t, err)
	}
	for n := range uint64(24) { // whoever has the slots of the last chunk
		if q := s.Touch(number(n), 1); q.slot.Chunk == 1 || n == 0 {
			s.End(number(n))
		}
	}
	last := s.roamer.pool.last()
	for n := uint64(1); n < 12; n++ { // all others move there
		q := s.Touch(number(n), 1)
		if cell := last.run(1); q.home != last {
			last.open(cell, 1)
			last.copy(cell, q.home, q.cell)
			last.put(q, cell)
		}
	}
	require.Equal(t, 13, s.Usage().Free)
	return s
}

// living is how many values live in the last chunk.
func living(s *Store) (n int) {
	for _, q := range s.roamer.pool.last().tenant {
		if q != nil {
			n++
		}
	}
	return n
}

// TestChunkIsFreedInSteps: after a batch no more than 4 MiB are moved out of a chunk
// that is to be freed, and nobody moves in; all values are as they were.
func TestChunkIsFreedInSteps(t *testing.T) {
	s := draining(t)
	for _, left := range []int{7, 3} {
		clock := time.Duration(0)
		change, err := s.Maintain(func() time.Duration { clock += 3; return clock })
		require.NoError(t, err)
		require.Equal(t, Change{Took: 3}, change)
		for n := uint64(1); n < 12; n++ {
			if q := s.Touch(number(n), 1); q.home != s.roamer.pool.last() {
				doStep(t, s, Lane{Sequence: q}, fmt.Sprintf("state %02d", n))
			}
		}
		require.Equal(t, left, living(s))
	}
	change, err := s.Maintain(at(1))
	require.NoError(t, err)
	require.Equal(t, Change{Shrunk: true}, change)
	require.Equal(t, 1, s.Usage().Chunks)
	for n := uint64(1); n < 12; n++ {
		require.Equal(t, fmt.Sprintf("state %02d", n), doStep(t, s, Lane{Sequence: s.Touch(number(n), 1)}, "state --"))
	}
}

// TestChunkIsKeptAfterAll: a START takes one of its slots while it is emptied.
func TestChunkIsKeptAfterAll(t *testing.T) {
	s := draining(t)
	for range 2 {
		change, err := s.Maintain(at(1))
		require.NoError(t, err)
		require.Equal(t, Change{}, change)
		for n := uint64(50); s.Usage().Free > 0; n++ {
			doStep(t, s, Lane{Sequence: begin(t, s, number(n), 1)}, "state ++")
		}
	}
	for n := uint64(1); n < 12; n++ {
		require.Equal(t, fmt.Sprintf("state %02d", n), doStep(t, s, Lane{Sequence: s.Touch(number(n), 1)}, "state --"))
	}
}
