package statebuffer

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// saved reads a sequence as a saver does.
func saved(t testing.TB, s *Store, q *Sequence) *Saved {
	t.Helper()
	n := &Snapshot{}
	require.NoError(t, s.Snapshot(q, n))
	defer n.Release()
	a := &Saved{Steps: q.Steps(), Totals: append([]uint64(nil), q.Totals()...)}
	for i, v := range n.Values() {
		value := SavedValue{v.DType, v.Shape.Clone(), make([]byte, n.parts[i].bytes)}
		n.CopyTo(i, value.Data)
		a.Values = append(a.Values, value)
	}
	return a
}

// TestSnapshotNeedsAValue: a sequence that has just begun has none, and neither has one that
// is gone, or one of a step that is open.
func TestSnapshotNeedsAValue(t *testing.T) {
	s, n := newTestStore(t, Options{}), &Snapshot{}
	q := begin(t, s, number(1), 1)
	require.ErrorIs(t, s.Snapshot(q, n), errNoValue)
	doStep(t, s, Lane{Sequence: q}, "8 bytes.")
	require.NoError(t, s.Snapshot(q, n))
	require.Equal(t, int64(8), n.Bytes())
	step, err := s.Gather([]Lane{{Sequence: q}}, 1)
	require.NoError(t, err)
	require.ErrorIs(t, s.Snapshot(q, n), errStepOpen)
	_, err = s.Restore(number(1), 0, &Saved{}, 1)
	require.ErrorIs(t, err, errStepOpen)
	s.Undo(step)
	require.NoError(t, s.Snapshot(q, n))
	n.Release()
	require.Empty(t, n.Values())
	s.End(number(1))
	require.ErrorIs(t, s.Snapshot(q, n), errNoValue)
}

// TestSnapshotAllocatesNothing when it is used again.
func TestSnapshotAllocatesNothing(t *testing.T) {
	s := cacheStore(t, Limits{})
	q, n := begin(t, s, number(1), 1), &Snapshot{}
	require.NoError(t, writeCache(t, s, q, 3000, 1))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if s.Snapshot(q, n) != nil {
			t.Fatal("no snapshot")
		}
		n.Release()
	}))
}

// TestGeneration: who keeps a sequence and its generation sees whether its life goes on, and
// what is attached goes with the life.
func TestGeneration(t *testing.T) {
	s := newTestStore(t, Options{Limits: Limits{Tombstones: 9}})
	seen := map[uint64]bool{}
	lives := func(q *Sequence) {
		t.Helper()
		require.NotZero(t, q.Generation())
		require.False(t, seen[q.Generation()], "a life of its own")
		seen[q.Generation()] = true
		require.Nil(t, q.Attached)
		q.Attached = "mine"
	}
	q := begin(t, s, number(1), 1)
	lives(q)
	doStep(t, s, Lane{Sequence: q}, "8 bytes.")
	generation := q.Generation()
	again, err := s.Continue(number(1), 2)
	require.NoError(t, err)
	require.Equal(t, generation, again.Generation())
	require.Equal(t, "mine", again.Attached)
	kept := saved(t, s, q)
	lives(begin(t, s, number(1), 3))
	for _, end := range []func(*Sequence){
		func(*Sequence) { s.End(number(1)) },
		func(*Sequence) { s.Forget(number(1)) },
		func(*Sequence) { s.Refuse(number(1), 4) },
		func(q *Sequence) { s.Lose(q, Unsaved, 4) },
		func(q *Sequence) { doStep(t, s, Lane{Sequence: q, End: true}, "8 bytes.") },
	} {
		q, err := s.Restore(number(1), 0, kept, 4)
		require.NoError(t, err)
		q.Attached = nil
		lives(q)
		end(q)
		require.Zero(t, q.Generation())
		require.Nil(t, q.Attached)
	}
}

// TestLose: the reason is in the error of the next request.
func TestLose(t *testing.T) {
	s := newTestStore(t, Options{Limits: Limits{Tombstones: 9}})
	for reason, text := range map[LossReason]string{
		TakenOver: "it was taken over by another server 1s ago; continue there, or take it back with a START request that has the parameter stateful_resume",
		Unsaved:   "its state could not be saved 1s ago, so it was dropped; resume what was saved before with a START request that has the parameter stateful_resume, or begin it again",
	} {
		q := begin(t, s, number(1), 1)
		s.Lose(q, reason, time.Second)
		s.Lose(q, Damaged, 2*time.Second)
		_, err := s.Continue(number(1), 2*time.Second)
		require.EqualError(t, err, text)
		require.Zero(t, s.Usage().Live)
	}
}

// TestRestoreGoesOn: with its steps and totals, in another store.
func TestRestoreGoesOn(t *testing.T) {
	from, to := newTestStore(t, Options{}), newTestStore(t, Options{})
	q := begin(t, from, number(1), 1)
	doStep(t, from, Lane{Sequence: q}, "original")
	q.Add(1, 5)
	q, err := to.Restore(Key{Text: "seven"}, 0, saved(t, from, q), 2)
	require.NoError(t, err)
	require.Equal(t, uint64(1), q.Steps())
	require.Equal(t, []uint64{0, 5}, q.Totals())
	require.Equal(t, "original", doStep(t, to, Lane{Sequence: q}, "8 bytes."))
	require.Equal(t, uint64(2), q.Steps())
	require.Equal(t, Counters{Started: 1}, to.Counters())
}

// TestRestoreSetsAside: as a START does that has the ID of a sequence with requests on their
// way; also one that fails.
func TestRestoreSetsAside(t *testing.T) {
	s := newTestStore(t, Options{Limits: Limits{Tombstones: 9}})
	older := begin(t, s, number(1), 1)
	doStep(t, s, Lane{Sequence: older}, "original")
	kept := saved(t, s, older)
	q, err := s.Restore(number(1), 7, kept, 2)
	require.NoError(t, err)
	require.NotSame(t, older, q)
	require.Same(t, older, s.Touch(token(1, 7), 3))
	kept.Values = nil
	_, err = s.Restore(number(1), 8, kept, 4)
	require.EqualError(t, err, "there are 0 saved states: the model has 1")
	require.Same(t, q, s.Touch(token(1, 8), 5))
	_, err = s.Continue(number(1), 5)
	require.ErrorContains(t, err, "its START failed 0s ago, so it has no state")
}

// TestRestoreSaysWhatDiffers in the saved values.
func TestRestoreSaysWhatDiffers(t *testing.T) {
	s := newTestStore(t, Options{
		States:  []State{{Name: "state", DType: tensor.FP32, Shape: tensor.Shape{1, 2}, Layout: Layout{1, 8}}},
		Varying: []Varying{{Name: "cache", DType: tensor.Int8, Axis: 0, InitialShape: tensor.Shape{1, 0}, MaxBytes: 9}},
	})
	good := Saved{Values: []SavedValue{{tensor.FP32, tensor.Shape{1, 2}, make([]byte, 8)}, {tensor.Int8, tensor.Shape{1, 3}, make([]byte, 3)}}}
	for fault, spoil := range map[string]func(state, cache *SavedValue){
		`state "state": the saved value is FP16 [1,2], 8 bytes: want FP32 [1,2], 8 bytes`:              func(state, _ *SavedValue) { state.DType = tensor.FP16 },
		`state "state": the saved value is FP32 [2], 8 bytes: want FP32 [1,2], 8 bytes`:                func(state, _ *SavedValue) { state.Shape = tensor.Shape{2} },
		`state "state": the saved value is FP32 [1,2], 7 bytes: want FP32 [1,2], 8 bytes`:              func(state, _ *SavedValue) { state.Data = state.Data[:7] },
		`state "cache": the saved value is UINT8 [1,3], 3 bytes: want INT8 of rank 2 with 1 at axis 0`: func(_, cache *SavedValue) { cache.DType = tensor.Uint8 },
		`state "cache": the saved value is INT8 [3,1], 3 bytes: want INT8 of rank 2 with 1 at axis 0`:  func(_, cache *SavedValue) { cache.Shape = tensor.Shape{3, 1} },
		`state "cache": the saved value is INT8 [1,-3], 3 bytes: want INT8 of rank 2 with 1 at axis 0`: func(_, cache *SavedValue) { cache.Shape = tensor.Shape{1, -3} },
		`state "cache": the saved value is INT8 [3], 3 bytes: want INT8 of rank 2 with 1 at axis 0`:    func(_, cache *SavedValue) { cache.Shape = tensor.Shape{3} },
		`state "cache" would grow to 10 bytes with shape [1,10]: at most 9 bytes are allowed (max_state_bytes); end the sequence, or raise the limit`: func(_, cache *SavedValue) {
			*cache = SavedValue{tensor.Int8, tensor.Shape{1, 10}, make([]byte, 10)}
		},
	} {
		bad := Saved{Values: append([]SavedValue(nil), good.Values...)}
		spoil(&bad.Values[0], &bad.Values[1])
		_, err := s.Restore(number(1), 0, &bad, 1)
		require.EqualError(t, err, fault)
		require.Zero(t, s.Usage().Live)
	}
	_, err := s.Restore(number(1), 0, &good, 1)
	require.NoError(t, err)
}

// TestRestoreKeepsTheBudget: others are evicted for it, as for a step that grows.
func TestRestoreKeepsTheBudget(t *testing.T) {
	s := cacheStore(t, Limits{Bytes: 64 + 1024, Full: EvictLRU})
	q := begin(t, s, number(1), 1)
	require.NoError(t, writeCache(t, s, q, 600, 1))
	kept := saved(t, s, q)
	_, err := s.Restore(number(2), 0, kept, 1)
	require.ErrorContains(t, err, "the states take 1088 bytes and would grow by 1024: at most 1088 bytes are allowed (max_state_memory_bytes)")
	lost(t, s, 2, "its START failed 0s ago", "1088 bytes (max_state_memory_bytes)")
	_, err = s.Restore(number(2), 0, kept, 2)
	require.NoError(t, err)
	lost(t, s, 1, "its state was evicted")
	require.Equal(t, int64(64+1024), s.Usage().Bytes)
	kept.Values[1] = SavedValue{tensor.Int8, tensor.Shape{1, 2000}, make([]byte, 2000)}
	_, err = s.Restore(number(3), 0, kept, 3)
	require.ErrorAs(t, err, new(*BudgetError))
	require.Equal(t, 1, s.Usage().Live, "2000 bytes never fit")
}

// TestRestoreOfHalves: FP16 is taken as it is stored, and FP32 as from a run.
func TestRestoreOfHalves(t *testing.T) {
	s := newTestStore(t, Options{States: []State{{Name: "state", DType: tensor.FP32, Shape: tensor.Shape{1, 2}, Layout: Layout{1, 8}, Convert: Half}}})
	wide := binary.NativeEndian.AppendUint32(nil, math.Float32bits(1e6))
	wide = binary.NativeEndian.AppendUint32(wide, math.Float32bits(2049))
	q, err := s.Restore(number(1), 0, &Saved{Values: []SavedValue{{tensor.FP32, tensor.Shape{1, 2}, wide}}}, 1)
	require.NoError(t, err)
	require.Equal(t, uint64(1), s.Counters().Saturated)
	kept := saved(t, s, q)
	require.Equal(t, tensor.FP16, kept.Values[0].DType)
	require.Len(t, kept.Values[0].Data, 4)
	q, err = s.Restore(number(2), 0, kept, 1)
	require.NoError(t, err)
	read := doStep(t, s, Lane{Sequence: q}, string(wide))
	require.Equal(t, float32(65504), math.Float32frombits(binary.NativeEndian.Uint32([]byte(read))))
	require.Equal(t, float32(2048), math.Float32frombits(binary.NativeEndian.Uint32([]byte(read[4:]))))
}
