package statebuffer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lazyStore has two states, so that half a chunk can be allocated.
func lazyStore(t *testing.T, memory *Heap, sizing Sizing) *Store {
	return newTestStore(t, Options{Memory: memory, Sizing: sizing, States: []State{
		{Name: "small", Layout: Layout{Pieces: 1, PieceBytes: 8}},
		{Name: "large", Layout: Layout{Pieces: 4, PieceBytes: 100}},
	}})
}

func fill(t *testing.T, s *Store, from, to uint64) {
	t.Helper()
	for n := from; n < to; n++ {
		begin(t, s, number(n), 1)
	}
}

func at(now time.Duration) func() time.Duration { return func() time.Duration { return now } }

// TestThresholdsAreStrict: a chunk is allocated at fewer free slots than the one
// threshold, freed at more than the other, one a call.
func TestThresholdsAreStrict(t *testing.T) {
	sizing := Sizing{Initial: 10, Subsequent: 4, MaxChunks: 3, AllocBelow: 3, DeallocAbove: 6}
	memory := &Heap{}
	s := lazyStore(t, memory, sizing)
	maintain := func(want Change, chunks int) {
		t.Helper()
		got, err := s.Maintain(at(1))
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, chunks, s.Usage().Chunks)
	}
	full := memory.Used()
	fill(t, s, 0, 7)
	require.Equal(t, 3, s.Usage().Free)
	maintain(Change{}, 1) // 3 free are not fewer than 3
	fill(t, s, 7, 8)
	maintain(Change{Grown: true}, 2) // 2 free
	require.Equal(t, 6, s.Usage().Free)
	maintain(Change{}, 2) // 6 free are not more than 6
	fill(t, s, 8, 12)     // two of them in the second chunk
	maintain(Change{Grown: true}, 3)
	fill(t, s, 12, 16)
	maintain(Change{}, 3) // 2 free, but all chunks are there
	for n := uint64(0); n < 5; n++ {
		s.End(number(n))
	}
	require.Equal(t, 7, s.Usage().Free)
	maintain(Change{}, 3) // 7 are more than 6, but the last chunk is in use
	fill(t, s, 20, 25)
	for n := uint64(12); n < 16; n++ {
		s.End(number(n))
	}
	require.Equal(t, 6, s.Usage().Free, "the last chunk is free, but no more than 6 are")
	maintain(Change{}, 3)
	s.End(number(20))
	maintain(Change{Shrunk: true}, 2)
	for n := range uint64(30) {
		s.End(number(n))
	}
	maintain(Change{Shrunk: true}, 1)
	maintain(Change{}, 1) // the first chunk stays
	require.Equal(t, full, memory.Used(), "all memory of the chunks came back")
}

func TestNotLazyNeverChanges(t *testing.T) {
	s := lazyStore(t, &Heap{}, Sizing{Initial: 4, Subsequent: 4, MaxChunks: 1, AllocBelow: 4, DeallocAbove: 0})
	fill(t, s, 0, 4)
	change, err := s.Maintain(func() time.Duration { panic("no clock is needed") })
	require.NoError(t, err)
	require.Equal(t, Change{}, change)
}

// TestFailedChunk: nothing is half allocated, sequences go on, and the next
// attempts wait longer each time (B5, B23).
func TestFailedChunk(t *testing.T) {
	sizing := Sizing{Initial: 4, Subsequent: 4, MaxChunks: 2, AllocBelow: 4, DeallocAbove: 99}
	memory := &Heap{}
	s := lazyStore(t, memory, sizing)
	q := begin(t, s, number(1), 1)
	doStep(t, s, Lane{Sequence: q}, "original")
	before := memory.Used()
	memory.Limit = before + 4*8 // enough for the small state's chunk only

	now, wait := time.Duration(1000), firstBackoff
	for range 12 {
		_, err := s.Maintain(at(now))
		require.ErrorContains(t, err, `state "large": a chunk of 4 slots`)
		require.Equal(t, before, memory.Used(), "rolled back")
		require.Equal(t, 1, s.Usage().Chunks)
		change, err := s.Maintain(at(now + wait - 1))
		require.NoError(t, err, "no attempt before %v are over", wait)
		require.Equal(t, Change{}, change)
		now += wait
		wait = min(2*wait, lastBackoff)
	}
	require.Equal(t, lastBackoff, wait)
	require.Equal(t, "original", doStep(t, s, Lane{Sequence: q}, "8 bytes."))

	memory.Limit = 0
	calls := time.Duration(0)
	change, err := s.Maintain(func() time.Duration { calls++; return now + calls })
	require.NoError(t, err)
	require.Equal(t, Change{Grown: true, Took: 1}, change)
	for n := uint64(2); n < 9; n++ {
		begin(t, s, number(n), 1)
	}
	require.Equal(t, "8 bytes.", doStep(t, s, Lane{Sequence: q}, "8 bytes."))
}

// TestNewStoreWithoutMemory: whichever allocation fails, the error names the
// state, and nothing is held.
func TestNewStoreWithoutMemory(t *testing.T) {
	options := Options{MaxLanes: 2, Sizing: Sizing{Initial: 4, MaxChunks: 1}, States: []State{
		{Name: "one", Layout: Layout{Pieces: 1, PieceBytes: 8}, Initial: make([]byte, 8)},
		{Name: "two", Layout: Layout{Pieces: 1, PieceBytes: 16}},
	}}
	probe := &Heap{}
	options.Memory = probe
	s, err := NewStore(options)
	require.NoError(t, err)
	all := probe.Used()
	s.Close()
	seen := map[string]bool{}
	for limit := range all - 1 {
		memory := &Heap{Limit: limit + 1}
		options.Memory = memory
		_, err := NewStore(options)
		require.ErrorContains(t, err, "bytes: ")
		require.Zero(t, memory.Used())
		for _, what := range []string{"the initial value", "the batched input", "the batched output", "a chunk of 4 slots"} {
			for _, state := range []string{"one", "two"} {
				prefix := fmt.Sprintf("state %q: %s", state, what)
				seen[prefix] = seen[prefix] || len(err.Error()) > len(prefix) && err.Error()[:len(prefix)] == prefix
			}
		}
	}
	for prefix, ok := range seen {
		require.True(t, ok, "no error begins with %s", prefix)
	}
}

// TestSteadyFrom: from there on, and not below, a chunk that was allocated stays while
// no sequence starts or ends, however many slots are taken.
func TestSteadyFrom(t *testing.T) {
	sizing := Sizing{Initial: 16, Subsequent: 6, MaxChunks: 3, AllocBelow: 4}
	least := sizing.SteadyFrom()
	require.Equal(t, 9, least)
	for sizing.DeallocAbove = least - 3; sizing.DeallocAbove <= least+3; sizing.DeallocAbove++ {
		restless := false
		for taken := range sizing.Total() {
			s := newTestStore(t, Options{Sizing: sizing})
			for n := range taken { // one after the other, so that chunks come as they are needed
				begin(t, s, number(uint64(n)), 1)
				_, err := s.Maintain(at(1))
				require.NoError(t, err)
			}
			for range 4 {
				change, err := s.Maintain(at(2))
				require.NoError(t, err)
				restless = restless || change.Shrunk
			}
		}
		require.Equal(t, sizing.DeallocAbove < least, restless, "released when more than %d are free", sizing.DeallocAbove)
	}
}
