package statebuffer

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// cacheStore keeps a cache of bytes for each sequence, next to a slot of 8 bytes.
func cacheStore(t testing.TB, limits Limits) *Store {
	limits.Tombstones = 100
	return newTestStore(t, Options{
		States:  []State{{Name: "state", Layout: Layout{Pieces: 1, PieceBytes: 8}}},
		Varying: []Varying{{Name: "cache", DType: tensor.Int8, Axis: 0, InitialShape: tensor.Shape{1, 0}}},
		Sizing:  Sizing{Initial: 8, MaxChunks: 1}, Limits: limits,
	})
}

// writeCache runs a step of one sequence that makes its cache so long.
func writeCache(t testing.TB, s *Store, q *Sequence, bytes int64, now time.Duration) error {
	t.Helper()
	lanes := []Lane{{Sequence: q}}
	step, err := s.Gather(lanes, 1)
	require.NoError(t, err)
	step.Varying[0].OutShape = tensor.Shape{1, bytes}
	step.Varying[0].Out = Block{Bytes: make([]byte, bytes), Size: bytes}
	err = s.Commit(step, now)
	if refused := lanes[0].Refused; refused != nil {
		require.NoError(t, err)
		return refused
	}
	return err
}

// TestBudgetOfChunks: no chunk is allocated beyond the limit; a START that finds
// no slot then says which limit it was.
func TestBudgetOfChunks(t *testing.T) {
	sizing := Sizing{Initial: 4, Subsequent: 2, MaxChunks: 9, AllocBelow: 2, DeallocAbove: 99}
	s := newTestStore(t, Options{Sizing: sizing, Limits: Limits{Bytes: 8*8 - 1, Tombstones: 9}}) // slots of 8 bytes
	for n := range uint64(6) {
		begin(t, s, number(n), 1)
		_, err := s.Maintain(at(1))
		require.NoError(t, err, "a limit is no failure")
	}
	require.Equal(t, 6, s.Usage().Slots, "7 would fit, but slots come in twos")
	_, err := s.Begin(number(6), 2)
	require.ErrorContains(t, err, "would exceed 63 bytes (max_state_memory_bytes)")
	lost(t, s, 6, "its START was refused 0s ago", "63 bytes (max_state_memory_bytes)")
	s.limits.Full = EvictLRU
	begin(t, s, number(7), 2)
	lost(t, s, 0, "its state was evicted 0s ago", "63 bytes (max_state_memory_bytes)")
	s.End(number(7))
	begin(t, s, number(0), 2)
	s.limits.Full = Reject
	s.limits.Bytes = 64
	_, err = s.Maintain(at(2))
	require.NoError(t, err)
	begin(t, s, number(6), 3)
}

// lost asks for a sequence that lost its state a moment ago.
func lost(t testing.TB, s *Store, n uint64, parts ...string) {
	t.Helper()
	_, err := s.Continue(number(n), 20)
	for _, part := range append(parts, "begin it again") {
		require.ErrorContains(t, err, part)
	}
}

// TestBudgetOfTheFirstChunk: it is never freed, so it must fit.
func TestBudgetOfTheFirstChunk(t *testing.T) {
	options := Options{Memory: &Heap{}, MaxLanes: 1, Sizing: Sizing{Initial: 4, MaxChunks: 1}, Limits: Limits{Bytes: 31, Field: "max_candidate_sequences"},
		States: []State{{Name: "state", Layout: Layout{Pieces: 2, PieceBytes: 4}}}}
	_, err := NewStore(options)
	require.ErrorContains(t, err, "are more than 31 bytes (max_state_memory_bytes)")
	options.Limits.Bytes = 32
	s, err := NewStore(options)
	require.NoError(t, err)
	s.Close()
}

// TestBudgetRejects: a state that would take the store beyond its limit is
// refused and stays as it is, and so do those of others.
func TestBudgetRejects(t *testing.T) {
	s := cacheStore(t, Limits{Bytes: 64 + 1024})
	a, b := begin(t, s, number(1), 1), begin(t, s, number(2), 1)
	require.NoError(t, writeCache(t, s, a, 512, 2))
	require.NoError(t, writeCache(t, s, b, 300, 3)) // takes 512
	require.ErrorContains(t, writeCache(t, s, a, 513, 4), "at most 1088 bytes are allowed (max_state_memory_bytes)")
	require.NoError(t, writeCache(t, s, a, 512, 5), "a client can try again")
	s.End(number(2))
	require.NoError(t, writeCache(t, s, a, 513, 6))
	require.Equal(t, int64(64+1024), s.Usage().Bytes)
}

// TestBudgetRefusesOnlyWhoDoesNotFit: of a run whose sequences grow, each gets what
// it needs as long as there is some; the others are as before, and a START that is
// refused has failed.
func TestBudgetRefusesOnlyWhoDoesNotFit(t *testing.T) {
	s := newTestStore(t, Options{
		States:  []State{{Name: "state", Layout: Layout{Pieces: 1, PieceBytes: 8}}},
		Varying: []Varying{{Name: "cache", DType: tensor.Int8, Axis: 0, InitialShape: tensor.Shape{1, 300}}}, // START fits to others
		Sizing:  Sizing{Initial: 8, MaxChunks: 1}, MaxLanes: 4, Limits: Limits{Bytes: 64 + 2048, Tombstones: 9},
	})
	written := byte(0)
	run := func(lanes ...Lane) (refused []bool) {
		t.Helper()
		step, err := s.Gather(lanes, len(lanes))
		require.NoError(t, err)
		written++
		bytes := int64(len(lanes)) * 300
		step.Varying[0].OutShape = tensor.Shape{int64(len(lanes)), 300}
		step.Varying[0].Out = Block{Bytes: slices.Repeat([]byte{written}, int(bytes)), Size: bytes}
		require.NoError(t, s.Commit(step, 2))
		for _, l := range lanes {
			refused = append(refused, l.Refused != nil)
			if l.Refused != nil {
				require.ErrorContains(t, l.Refused, "at most 2112 bytes are allowed (max_state_memory_bytes)")
			}
		}
		require.LessOrEqual(t, s.Usage().Bytes, int64(64+2048))
		return refused
	}
	cache := func(n uint64) byte { // of a sequence, the byte that its cache is full of
		t.Helper()
		q, err := s.Continue(number(n), 2)
		require.NoError(t, err)
		step, err := s.Gather([]Lane{{Sequence: q}}, 1)
		require.NoError(t, err)
		defer s.Undo(step)
		return step.Varying[0].In.Bytes[299]
	}
	start := func(n uint64) Lane { return Lane{Sequence: begin(t, s, number(n), 1)} }
	next := func(n uint64) Lane {
		q, err := s.Continue(number(n), 1)
		require.NoError(t, err)
		return Lane{Sequence: q}
	}

	require.Equal(t, []bool{false, false, false}, run(start(1), start(2), start(3))) // take 512 each
	require.Equal(t, []bool{false, false, false, true}, run(next(1), start(4), next(2), start(5)))
	require.Equal(t, []byte{2, 2, 1, 2}, []byte{cache(1), cache(2), cache(3), cache(4)})
	lost(t, s, 5, "its START failed 0s ago", "2112 bytes (max_state_memory_bytes)")

	last := next(4)
	last.End = true
	require.Equal(t, []bool{true, false, false}, run(start(6), last, next(3)), "what ends makes room only afterwards")
	require.Equal(t, []byte{2, 2, 3}, []byte{cache(1), cache(2), cache(3)})
	require.Equal(t, []bool{false}, run(start(6)))
}

// TestBudgetEvicts: those used least recently go, and never one of the batch; if
// even that is not enough, none is evicted.
func TestBudgetEvicts(t *testing.T) {
	s := cacheStore(t, Limits{Bytes: 64 + 1024, Full: EvictLRU})
	for n := range uint64(4) {
		require.NoError(t, writeCache(t, s, begin(t, s, number(n), time.Duration(n)), 256, time.Duration(n)))
	}
	q := s.Touch(number(1), 10)
	require.NoError(t, writeCache(t, s, q, 512, 10))
	lost(t, s, 0, "its state was evicted 0s ago", "1088 bytes (max_state_memory_bytes)")
	_, err := s.Continue(number(2), 11)
	require.NoError(t, err)
	budget := &BudgetError{}
	require.ErrorAs(t, writeCache(t, s, s.Touch(number(3), 12), 2000, 12), &budget)
	require.Equal(t, 3, s.Usage().Live, "2000 bytes never fit")
	require.NoError(t, writeCache(t, s, s.Touch(number(3), 13), 1000, 13))
	require.Equal(t, 1, s.Usage().Live)
}

// TestBudgetExpires: sequences that idled too long are evicted first, under either policy.
func TestBudgetExpires(t *testing.T) {
	s := cacheStore(t, Limits{Bytes: 64 + 512, Idle: time.Second})
	require.NoError(t, writeCache(t, s, begin(t, s, number(1), 0), 256, 0))
	q := begin(t, s, number(2), time.Second)
	budget := &BudgetError{}
	require.ErrorAs(t, writeCache(t, s, q, 512, time.Second), &budget)
	q = begin(t, s, number(2), 1001*time.Millisecond) // its START failed
	require.NoError(t, writeCache(t, s, q, 512, 1001*time.Millisecond))
	_, err := s.Continue(number(1), 1002*time.Millisecond)
	require.ErrorContains(t, err, "expired")
}

// TestBudgetHolds: whatever happens, the store takes no more than its limit, and
// its account agrees with the memory's.
func TestBudgetHolds(t *testing.T) {
	for seed := range uint64(8) {
		memory, rng := &Heap{}, rand.New(rand.NewPCG(seed, 3))
		sizing := Sizing{Initial: 4, Subsequent: 3, MaxChunks: 6, AllocBelow: 2, DeallocAbove: 6}
		const most = 6000
		s := newTestStore(t, Options{Memory: memory, Sizing: sizing, MaxLanes: 1,
			States:  []State{{Name: "state", Layout: Layout{Pieces: 1, PieceBytes: 100}}},
			Varying: []Varying{{Name: "cache", DType: tensor.Int8, Axis: 0, InitialShape: tensor.Shape{1, 0}}},
			Limits:  Limits{Bytes: most, Full: Policy(seed % 2), Tombstones: 9, Idle: 50}})
		refused := 0
		for now := range 4 * time.Microsecond {
			k := number(rng.Uint64N(20))
			q := s.Touch(k, now)
			if q == nil {
				if q, _ = s.Begin(k, now); q == nil {
					continue
				}
			}
			err := writeCache(t, s, q, rng.Int64N(1500), now)
			budget := &BudgetError{}
			if err != nil {
				require.ErrorAs(t, err, &budget)
				refused++
			}
			if rng.IntN(4) == 0 {
				s.End(k)
			}
			_, err = s.Maintain(at(now))
			require.NoError(t, err)
			require.LessOrEqual(t, s.Usage().Bytes, int64(most))
		}
		require.Positive(t, refused+int(s.Counters().Evicted), "the limit was never reached")
	}
}
