package statebuffer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// inPlaceOf is the placement of a store that keeps values in place.
func inPlaceOf(s *Store) *inPlaceValues { return s.placement.(*inPlaceValues) }

// storeOf is a store with sequences that have a state, kept in place or copied.
func storeOf(t testing.TB, inPlace bool, layout Layout, slots, sequences, lanes int) (*Store, []*Sequence) {
	from := int64(-1)
	if inPlace {
		from = 1
	}
	s := newTestStore(t, Options{
		States:   []State{{Name: "state", Layout: layout}},
		Sizing:   Sizing{Initial: slots, MaxChunks: 1},
		MaxLanes: lanes, inPlaceFrom: from,
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

// storePair is a store that keeps values in place and one that copies them, to which the
// same happens.
type storePair struct {
	t      *testing.T
	rng    *rand.Rand
	layout Layout
	stores [2]*Store
	both   map[uint64][2]*Sequence
	lanes  int
}

// noSequence is the ID of a lane without a sequence, as padding lanes do.
const noSequence = 1 << 40

// TestInPlaceEqualsCopying: whatever batches come, both stores give every lane the
// same bytes to read.
func TestInPlaceEqualsCopying(t *testing.T) {
	for _, layout := range []Layout{{1, 40}, {5, 8}} {
		for _, slots := range []int{8, 24, 64} { // with 8, every cell is owned
			t.Run(fmt.Sprintf("pieces=%d/slots=%d", layout.Pieces, slots), func(t *testing.T) {
				t.Parallel()
				w := &storePair{t: t, rng: rand.New(rand.NewPCG(uint64(slots), 5)), layout: layout, both: map[uint64][2]*Sequence{}, lanes: 8}
				for i, from := range []int64{-1, 1} {
					w.stores[i] = newTestStore(t, Options{
						States:   []State{{Name: "state", Layout: layout, Initial: bytes.Repeat([]byte{7}, 40)}, {Name: "other", Layout: Layout{layout.Pieces, 3}}},
						Sizing:   Sizing{Initial: slots, MaxChunks: 1},
						MaxLanes: w.lanes, inPlaceFrom: from,
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
func (w *storePair) pick(slots int) (ids []uint64) {
	if w.rng.IntN(2) == 0 {
		first := uint64(w.rng.IntN(2) * (slots - w.lanes) / 2)
		for i := range uint64(w.lanes - w.rng.IntN(2)) {
			ids = append(ids, first+i)
		}
		return ids
	}
	for _, id := range w.rng.Perm(slots)[:1+w.rng.IntN(w.lanes)] {
		if w.rng.IntN(8) == 0 {
			id = noSequence
		}
		ids = append(ids, uint64(id))
	}
	return ids
}

// step runs a batch on both stores, which want their lanes in different orders.
func (w *storePair) step(ids []uint64) {
	fails, padding := w.rng.IntN(12) == 0, w.rng.IntN(4)/3
	ends, starts := map[uint64]bool{}, map[uint64]bool{}
	for _, id := range ids {
		if id == noSequence {
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
func (w *storePair) run(i int, s *Store, ids []uint64, starts, ends map[uint64]bool, fails bool, width int, salt byte) map[uint64][]byte {
	lanes := make([]Lane, len(ids))
	for lane, id := range ids {
		if id == noSequence {
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
	step, err := s.Gather(lanes, width)
	require.NoError(w.t, err)
	read := map[uint64][]byte{}
	for k := range s.states {
		for lane := range width {
			var name uint64 = noSequence
			if lane < len(ids) {
				name = ids[lane]
			}
			l := s.states[k].Layout
			for x := range l.Pieces {
				at := (x*int64(width) + int64(lane)) * l.PieceBytes
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
	s, all := storeOf(t, true, Layout{4, 128}, 6, 6, 3)
	for range 20 {
		for _, q := range all {
			cell := span{q.slab, q.cell(), 1}.tensor(0)
			lanes := lanesOf([]*Sequence{q})
			require.Equal(t, []int{0}, s.Arrange(lanes))
			step, err := s.Gather(lanes, 1)
			require.NoError(t, err)
			require.Equal(t, cell.Addr, step.In[0].Addr)
			require.NoError(t, s.Commit(step, 1))
			require.Equal(t, span{q.slab, q.cell(), 1}.tensor(0).Addr, step.Out[0].Addr)
		}
	}
}

// TestInPlaceTakesNoMoreMemory than copying: slots, and two largest batches.
func TestInPlaceTakesNoMoreMemory(t *testing.T) {
	used := map[int64]int64{}
	for _, from := range []int64{-1, 1} {
		memory := &Heap{}
		newTestStore(t, Options{
			Memory: memory, States: []State{{Name: "state", Layout: Layout{1, 100}}},
			Sizing: Sizing{Initial: 50, MaxChunks: 1}, MaxLanes: 5, inPlaceFrom: from,
		})
		used[from] = memory.Used()
	}
	require.Equal(t, int64(100*(50+2*5+1)), used[1], "and one initial value")
	require.Equal(t, used[-1], used[1])
}

// TestInPlaceAllocatesNothing on Go's heap, whatever batches come.
func TestInPlaceAllocatesNothing(t *testing.T) {
	for _, layout := range []Layout{{1, 512}, {4, 128}} {
		s, batches := patternOf(t, layout, 8, "random", true)
		sorted, i := make([]Lane, 8), 0
		require.Zero(t, testing.AllocsPerRun(200, func() {
			inOrder(t, s, batches[i%len(batches)], sorted)
			i++
		}))
	}
}
