package statebuffer

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newTestStore fills in what a test does not care for, and checks at its end
// that all memory came back.
func newTestStore(t testing.TB, o Options) *Store {
	t.Helper()
	memory := &Heap{}
	if o.Memory == nil {
		o.Memory = memory
	}
	if o.Sizing == (Sizing{}) {
		o.Sizing = Sizing{Initial: 4, Subsequent: 2, MaxChunks: 1, AllocBelow: 2, DeallocAbove: 4}
	}
	if o.States == nil && o.Varying == nil {
		o.States = []State{{Name: "state", Layout: Layout{Pieces: 1, PieceBytes: 8}}}
	}
	o.MaxLanes = max(o.MaxLanes, 2)
	s, err := NewStore(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Close()
		require.Zero(t, memory.Used())
	})
	return s
}

func number(n uint64) Key { return Key{Number: n} }

// doStep runs one sequence whose model writes text, and is what it read.
func doStep(t testing.TB, s *Store, l Lane, write string) (read string) {
	t.Helper()
	step, err := s.Gather([]Lane{l}, 1)
	require.NoError(t, err)
	read = string(step.In[0].Bytes[:len(write)])
	copy(step.Out[0].Bytes, write)
	require.NoError(t, s.Commit(step, 0))
	return read
}

func begin(t testing.TB, s *Store, k Key, now time.Duration) *Sequence {
	t.Helper()
	q, err := s.Begin(k, now)
	require.NoError(t, err)
	return q
}

// TestStartReadsNothingOfAnOlderOwner: a slot that was used before shows the
// initial value, whatever happened to its owner.
func TestStartReadsNothingOfAnOlderOwner(t *testing.T) {
	for _, initial := range []string{"", "beginner"} {
		state := State{Name: "state", Layout: Layout{Pieces: 2, PieceBytes: 4}}
		want := strings.Repeat("\x00", 8)
		if initial != "" {
			state.Initial, want = []byte(initial), initial
		}
		s := newTestStore(t, Options{States: []State{state}, Sizing: Sizing{Initial: 1, MaxChunks: 1}})
		require.Equal(t, want, doStep(t, s, Lane{Sequence: begin(t, s, number(1), 1)}, "secret 1"))
		require.Equal(t, want, doStep(t, s, Lane{Sequence: begin(t, s, number(1), 2)}, "secret 2"), "START on a live sequence")
		s.End(number(1))
		require.Equal(t, want, doStep(t, s, Lane{Sequence: begin(t, s, number(2), 3), End: true}, "secret 3"))
		require.Equal(t, want, doStep(t, s, Lane{Sequence: begin(t, s, number(3), 4)}, "secret 4"))
		require.Equal(t, want, doStep(t, s, Lane{}, "secret 5"), "a lane of no sequence")
	}
}

// TestFailedRunChangesNothing: whatever the model left in its outputs.
func TestFailedRunChangesNothing(t *testing.T) {
	s := newTestStore(t, Options{})
	q := begin(t, s, number(1), 1)
	doStep(t, s, Lane{Sequence: q}, "original")
	step, err := s.Gather([]Lane{{Sequence: q}}, 1)
	require.NoError(t, err)
	copy(step.Out[0].Bytes, "garbage!")
	copy(step.In[0].Bytes, "garbage!")
	s.Abort(step, 2)
	require.Equal(t, "original", doStep(t, s, Lane{Sequence: q}, "8 bytes."))
	require.Equal(t, uint64(2), q.Steps())
}

func TestGatherTwice(t *testing.T) {
	s := newTestStore(t, Options{})
	step, err := s.Gather([]Lane{{}}, 1)
	require.NoError(t, err)
	_, err = s.Gather([]Lane{{}}, 1)
	require.ErrorIs(t, err, errStepOpen)
	s.Abort(step, 0)
	_, err = s.Gather([]Lane{{}}, 1)
	require.NoError(t, err)
}

// TestEndOfUnknown: the end of an unknown sequence frees no slot (B1).
func TestEndOfUnknown(t *testing.T) {
	s := newTestStore(t, Options{})
	q := begin(t, s, number(1), 1)
	require.Equal(t, Slot{}, q.slot)
	before := s.Usage()
	s.End(number(2))
	s.End(Key{Text: "two"})
	s.End(Key{})
	require.Equal(t, before, s.Usage())
	require.NotEqual(t, q.slot, begin(t, s, number(3), 2).slot)
	s.End(number(1))
	s.End(number(1))
	require.Equal(t, 1, s.Usage().Live)
}

// TestKeys: a number and a string name different sequences, and the string is copied.
func TestKeys(t *testing.T) {
	s := newTestStore(t, Options{})
	a, b := begin(t, s, number(7), 1), begin(t, s, Key{Text: "7"}, 1)
	require.NotSame(t, a, b)
	got, err := s.Continue(Key{Text: "7"}, 2)
	require.NoError(t, err)
	require.Same(t, b, got)
	s.End(number(7))
	require.Nil(t, s.Touch(number(7), 3))
	require.NotNil(t, s.Touch(Key{Text: "7"}, 3))
}

func TestMarkRun(t *testing.T) {
	s := newTestStore(t, Options{})
	q := begin(t, s, number(7), 1)
	require.False(t, q.InRun(1))
	q.MarkRun(1)
	require.True(t, q.InRun(1))
	require.False(t, q.InRun(2))
}

// TestTotals: sums live from START to START.
func TestTotals(t *testing.T) {
	s := newTestStore(t, Options{})
	q := begin(t, s, number(7), 1)
	require.Zero(t, q.Total(0))
	doStep(t, s, Lane{Sequence: q}, "8 bytes.")
	q.Add(1, 5)
	q.Add(1, 2)
	require.Zero(t, q.Total(0))
	require.Equal(t, uint64(7), q.Total(1))
	require.Zero(t, q.Total(2))
	q = begin(t, s, number(7), 2)
	require.Zero(t, q.Total(1))
	doStep(t, s, Lane{Sequence: q}, "8 bytes.")
	q.Add(0, 1)
	require.Equal(t, uint64(1), q.Total(0))
	require.Zero(t, q.Total(1), "of the sequence before")
}

// TestLostErrors: a client is told what became of its sequence, and for how long
// that is remembered.
func TestLostErrors(t *testing.T) {
	s := newTestStore(t, Options{
		Sizing: Sizing{Initial: 2, MaxChunks: 1},
		Limits: Limits{Idle: time.Second, Full: EvictLRU, Tombstones: 4, Field: "max_candidate_sequences", IdleField: "max_sequence_idle_microseconds"},
	})
	ask := func(n uint64, parts ...string) {
		t.Helper()
		_, err := s.Continue(number(n), 10*time.Second)
		for _, part := range append(parts, "begin it again") {
			require.ErrorContains(t, err, part)
		}
	}
	begin(t, s, number(1), 0)
	begin(t, s, number(2), 1)
	begin(t, s, number(3), 2)
	ask(1, "its state was evicted 10s ago", "2 slots (max_candidate_sequences)")
	s.Fail(Lane{Sequence: begin(t, s, number(3), time.Millisecond)}, time.Millisecond)
	ask(3, "its START failed 9.999s ago")
	begin(t, s, number(10), 2*time.Second)
	begin(t, s, number(8), 2500*time.Millisecond)
	ask(2, "its state expired 7.5s ago", "1s (max_sequence_idle_microseconds)")
	s.End(number(10))
	s.End(number(8))
	ask(9, "no such sequence is known")
	s.limits.Full = Reject
	for n := uint64(4); n < 6; n++ {
		begin(t, s, number(n), 3*time.Second)
	}
	_, err := s.Begin(number(6), 3*time.Second)
	require.ErrorContains(t, err, "2 of 2 slots are taken")
	ask(6, "its START was refused 7s ago", "2 slots (max_candidate_sequences)")
	_, err = s.Begin(number(7), 3*time.Second)
	require.Error(t, err)
	ask(1, "no such sequence is known") // the fifth loss made the first be forgotten
	ask(2, "its state expired 7.5s ago", "1s (max_sequence_idle_microseconds)")
	s.End(number(4))
	begin(t, s, number(6), 4*time.Second)
	_, err = s.Continue(number(6), 5*time.Second)
	require.NoError(t, err, "a START that succeeds ends the matter")
}

// TestDamaged: if storing fails, what is in the slots is undefined.
func TestDamaged(t *testing.T) {
	memory := &flaky{}
	s := newTestStore(t, Options{Memory: memory, Limits: Limits{Tombstones: 4}})
	q := begin(t, s, number(1), 1)
	doStep(t, s, Lane{Sequence: q}, "original")
	step, err := s.Gather([]Lane{{Sequence: q}, {}}, 2)
	require.NoError(t, err)
	memory.scatter = errInjected
	require.ErrorIs(t, s.Commit(step, 2), errInjected)
	_, err = s.Continue(number(1), 2)
	require.ErrorContains(t, err, "writing to memory failed")
	require.Equal(t, 0, s.Usage().Live)
}

func TestPolicy(t *testing.T) {
	require.Equal(t, "reject", Reject.String())
	require.Equal(t, "evict_lru", EvictLRU.String())
}

// TestEvictionSparesTheBatch: a sequence that is used at this moment is not
// evicted for another one of the same batch.
func TestEvictionSparesTheBatch(t *testing.T) {
	s := newTestStore(t, Options{Sizing: Sizing{Initial: 2, MaxChunks: 1}, Limits: Limits{Full: EvictLRU, Tombstones: 4}})
	begin(t, s, number(1), 1)
	begin(t, s, number(2), 2)
	s.Touch(number(1), 3)
	begin(t, s, number(3), 3)
	_, err := s.Continue(number(2), 3)
	require.ErrorContains(t, err, "evicted")
	_, err = s.Begin(number(4), 3)
	require.ErrorContains(t, err, "2 of 2 slots", "both slots are in use right now")
}

// TestHalfStorage: FP32 states take half the memory, in the first chunk and in
// later ones, and what is too large is counted (150db53).
func TestHalfStorage(t *testing.T) {
	memory := &Heap{}
	sizing := Sizing{Initial: 10, Subsequent: 5, MaxChunks: 2, AllocBelow: 11, DeallocAbove: 99}
	used := func(c Conversion) (first, later int64) {
		s := newTestStore(t, Options{Memory: memory, Sizing: sizing, States: []State{{Name: "state", Layout: Layout{Pieces: 3, PieceBytes: 8}, Convert: c}}})
		first = s.Usage().Bytes
		before := memory.Used()
		change, err := s.Maintain(func() time.Duration { return 0 })
		require.NoError(t, err)
		require.True(t, change.Grown)
		return first, memory.Used() - before
	}
	first, later := used(Same)
	require.Equal(t, int64(240), first)
	require.Equal(t, int64(120), later)
	first, later = used(Half)
	require.Equal(t, int64(120), first)
	require.Equal(t, int64(60), later)

	s := newTestStore(t, Options{States: []State{{Name: "state", Layout: Layout{Pieces: 1, PieceBytes: 8}, Convert: Half}}})
	value := binary.NativeEndian.AppendUint32(nil, math.Float32bits(1e6))
	value = binary.NativeEndian.AppendUint32(value, math.Float32bits(2049))
	q := begin(t, s, number(1), 1)
	doStep(t, s, Lane{Sequence: q}, string(value))
	read := doStep(t, s, Lane{Sequence: q}, string(value))
	require.Equal(t, float32(65504), math.Float32frombits(binary.NativeEndian.Uint32([]byte(read))))
	require.Equal(t, float32(2048), math.Float32frombits(binary.NativeEndian.Uint32([]byte(read[4:]))))
	require.Equal(t, uint64(2), s.Counters().Saturated)
}

func TestInitialValueOfTheWrongSize(t *testing.T) {
	memory := &Heap{}
	_, err := NewStore(Options{Memory: memory, MaxLanes: 1, Sizing: Sizing{Initial: 1, MaxChunks: 1},
		States: []State{{Name: "state", Layout: Layout{Pieces: 2, PieceBytes: 4}, Initial: make([]byte, 7)}}})
	require.ErrorContains(t, err, `initial value has 7 bytes: want 8`)
	require.Zero(t, memory.Used())
}

// TestStartTriedAgain: a START whose run was undone and that begins once more is no
// second one.
func TestStartTriedAgain(t *testing.T) {
	s := newTestStore(t, Options{})
	for restarts := range uint64(3) {
		for range 2 {
			step, err := s.Gather([]Lane{{Sequence: begin(t, s, number(1), 1)}}, 1)
			require.NoError(t, err)
			s.Undo(step)
		}
		doStep(t, s, Lane{Sequence: begin(t, s, number(1), 1)}, "8 bytes.")
		require.Equal(t, Counters{Started: 1, Restarted: restarts}, s.Counters())
	}
}
