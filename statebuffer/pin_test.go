package statebuffer

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// large is a value that a Snapshot pins, in several pieces of which one is longer than
// copyTo copies at a time.
var large = Layout{Pieces: 2, PieceBytes: lockedBytes + 10}

// writeAll is a step of one sequence whose model writes one byte everywhere.
func writeAll(t testing.TB, s *Store, q *Sequence, b byte) {
	t.Helper()
	lanes := lanesOf([]*Sequence{q})
	s.Arrange(lanes)
	step, err := s.Gather(lanes, 1)
	require.NoError(t, err)
	for i := range step.Out[0].Bytes {
		step.Out[0].Bytes[i] = b
	}
	require.NoError(t, s.Commit(step, 1))
}

// pinnedOf is a Snapshot of a sequence whose values are pinned.
func pinnedOf(t testing.TB, s *Store, q *Sequence) *Snapshot {
	t.Helper()
	n := &Snapshot{}
	require.NoError(t, s.Snapshot(q, n))
	require.NotNil(t, n.pin)
	require.Equal(t, s.SlotBytes(), n.Bytes())
	return n
}

// requireFullOf: a Snapshot has one byte everywhere.
func requireFullOf(t testing.TB, n *Snapshot, b byte) {
	t.Helper()
	got := make([]byte, n.Bytes())
	n.CopyTo(0, got)
	require.Equal(t, len(got), bytes.Count(got, []byte{b}))
}

// TestPinnedValueStays where it is until Release, whatever becomes of its sequence; what was
// left of one that is gone is overwritten then.
func TestPinnedValueStays(t *testing.T) {
	for what, gone := range map[string]func(*Store, *Sequence){
		"steps on":     func(s *Store, q *Sequence) { writeAll(t, s, q, 9) },
		"ends":         func(s *Store, q *Sequence) { s.End(q.key()) },
		"is lost":      func(s *Store, q *Sequence) { s.Lose(q, TakenOver, 2) },
		"begins again": func(s *Store, q *Sequence) { writeAll(t, s, begin(t, s, q.key(), 2), 9) },
	} {
		t.Run(what, func(t *testing.T) {
			s, all := storeOf(t, true, large, 8, 2, 2)
			q := all[0]
			writeAll(t, s, q, 7)
			b, cell := q.slab, q.cell()
			n := pinnedOf(t, s, q)
			gone(s, q)
			for i := range uint64(20) { // others, which use every cell
				writeAll(t, s, begin(t, s, number(100+i%6), 2), byte(i))
				requireFullOf(t, n, 7)
			}
			require.Same(t, n.pin, b.pins[cell])
			n.Release()
			_, err := s.Maintain(at(1))
			require.NoError(t, err)
			require.Zero(t, b.pinned)
			if tensor, _, _ := b.lane(0, cell); what != "steps on" {
				require.Zero(t, tensor[0])
			}
		})
	}
}

// TestPinEndsWhereCellsAreShort: the Snapshot has a copy then.
func TestPinEndsWhereCellsAreShort(t *testing.T) {
	s, all := storeOf(t, true, large, 3, 3, 1)
	inPlaceOf(s).pins.share = 1
	pinned := map[byte]*Snapshot{}
	for i, q := range all {
		writeAll(t, s, q, byte(i))
		if q.slab.pool != nil {
			pinned[byte(i)] = pinnedOf(t, s, q)
		}
	}
	for range 3 {
		for _, q := range all {
			writeAll(t, s, q, 50)
		}
	}
	moved := 0
	for i, n := range pinned {
		requireFullOf(t, n, i)
		if n.pin.moved {
			moved++
		}
		n.Release()
	}
	require.NotZero(t, moved)
	for _, q := range all {
		writeAll(t, s, q, 51)
	}
	require.Empty(t, inPlaceOf(s).pins.active)
	require.Len(t, inPlaceOf(s).pins.free, len(pinned))
}

// TestSnapshotOutlivesItsStore, though not its memory.
func TestSnapshotOutlivesItsStore(t *testing.T) {
	memory := &Heap{}
	s, err := NewStore(Options{Memory: memory, States: []State{{Layout: large}}, Sizing: Sizing{Initial: 4, MaxChunks: 1}, MaxLanes: 1})
	require.NoError(t, err)
	q := begin(t, s, number(1), 1)
	writeAll(t, s, q, 7)
	n := pinnedOf(t, s, q)
	s.Close()
	require.Zero(t, memory.Used())
	requireFullOf(t, n, 7)
	n.Release()
}

// TestPinKeepsItsChunk, which is freed after Release. Nothing is pinned in it meanwhile.
func TestPinKeepsItsChunk(t *testing.T) {
	s := draining(t)
	read := func(n *Snapshot) string {
		value := make([]byte, n.Bytes())
		n.CopyTo(0, value)
		return string(value[:8])
	}
	pinned, copied := &Snapshot{}, &Snapshot{}
	require.NoError(t, s.Snapshot(s.Touch(number(1), 1), pinned))
	for range 5 {
		change, err := s.Maintain(at(1))
		require.NoError(t, err)
		require.Equal(t, Change{}, change)
		if q, _ := inPlaceOf(s).pool.last().owner(0); q != nil {
			require.NoError(t, s.Snapshot(q, copied))
			require.Nil(t, copied.pin)
		}
	}
	require.Zero(t, valuesInLast(s))
	require.Equal(t, "state 01", read(pinned))
	pinned.Release()
	change, err := s.Maintain(at(1))
	require.NoError(t, err)
	require.Equal(t, Change{Shrunk: true}, change)
}

// TestPinsAreLimited to a part of the cells, and to values that are worth it. A second
// Snapshot of the same value is a copy.
func TestPinsAreLimited(t *testing.T) {
	for _, layout := range []Layout{{1, pinFrom}, {1, pinFrom - 1}} {
		s, all := storeOf(t, true, layout, 40, 20, 4)
		pinned := 0
		for _, q := range append(all, all...) {
			n := &Snapshot{}
			require.NoError(t, s.Snapshot(q, n))
			if n.pin != nil {
				pinned++
			}
		}
		want := 4
		if layout.PieceBytes < pinFrom {
			want = 0
		}
		require.Equal(t, want, pinned)
	}
}

// TestPinnedSnapshotAllocatesNothing when it is used again.
func TestPinnedSnapshotAllocatesNothing(t *testing.T) {
	s, all := storeOf(t, true, Layout{1, pinFrom}, 40, 4, 4)
	n, lanes := &Snapshot{}, lanesOf(all)
	sorted := make([]Lane, len(lanes))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if s.Snapshot(all[0], n) != nil || n.pin == nil {
			t.Fatal("no pin")
		}
		inOrder(t, s, lanes, sorted)
		n.Release()
	}))
}

// BenchmarkSnapshot is a step of a batch, one sequence of which a Snapshot has until the next
// one, next to a step without snapshots. Where it is pinned it costs next to nothing.
func BenchmarkSnapshot(b *testing.B) {
	const lanes = 16
	for _, layout := range []Layout{{1, 1 << 10}, {1, 32 << 10}, {1, 1 << 20}, {8, 128 << 10}} {
		for _, kind := range []string{"no snapshot", "snapshot", "copied"} {
			b.Run(fmt.Sprintf("pieces=%d/bytes=%d/%s", layout.Pieces, layout.LaneBytes(), kind), func(b *testing.B) {
				s, all := storeOf(b, true, layout, 12*lanes, 2*lanes, lanes)
				if kind == "copied" {
					inPlaceOf(s).pins.from = 1 << 62
				}
				batches := [][]Lane{lanesOf(all[:lanes]), lanesOf(all[lanes:])}
				sorted, n := make([]Lane, lanes), &Snapshot{}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					inOrder(b, s, batches[i%2], sorted)
					n.Release()
					if kind != "no snapshot" {
						require.NoError(b, s.Snapshot(all[i%len(all)], n))
					}
				}
			})
		}
	}
}
