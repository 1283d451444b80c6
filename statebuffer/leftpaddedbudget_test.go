package statebuffer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// appendBytes runs one step of sequences with a padded cache of bytes, in which the
// model appends that many to each.
func appendBytes(t *testing.T, s *Store, bytes int64, ids ...uint64) ([]Lane, error) {
	t.Helper()
	lanes := make([]Lane, len(ids))
	for i, id := range ids {
		q, err := s.Continue(number(id), time.Second)
		if err != nil {
			q, err = s.Begin(number(id), time.Second)
		}
		require.NoError(t, err)
		lanes[i] = Lane{Sequence: q}
	}
	step, err := s.Gather(lanes, len(lanes))
	require.NoError(t, err)
	io := &step.Varying[0]
	io.OutShape = io.InShape.With(1, io.InShape[1]+bytes)
	size := io.OutShape[0] * io.OutShape[1]
	io.Out = Block{Bytes: make([]byte, size), Size: size}
	return lanes, s.Commit(step, time.Second)
}

// unequalStore has one long sequence, 1, and three short ones.
func unequalStore(t *testing.T, memory Memory, long int64, limits Limits) *Store {
	limits.Tombstones = 10
	s := newTestStore(t, Options{
		Memory: memory, MaxLanes: 4, Sizing: Sizing{Initial: 4, MaxChunks: 1}, Limits: limits,
		Varying: []Varying{{Name: "cache", DType: tensor.Uint8, InitialShape: tensor.Shape{1, 0}, LeftPadded: true, PadAxis: 1}},
	})
	_, err := appendBytes(t, s, long, 1)
	require.NoError(t, err)
	for id := uint64(2); id <= 4; id++ {
		_, err := appendBytes(t, s, 10, id)
		require.NoError(t, err)
	}
	return s
}

// TestPaddedSequencesTakeTheirOwnLength: what a sequence holds, and is charged for,
// is its own value, however long the others of its runs are.
func TestPaddedSequencesTakeTheirOwnLength(t *testing.T) {
	const long, least = 1<<20 - 100, 256
	for name, limit := range map[string]int64{"without a limit": 0, "with a limit": 3 << 20, "with no byte to spare": 1<<20 + 3*least} {
		t.Run(name, func(t *testing.T) {
			s := unequalStore(t, nil, long, Limits{Bytes: limit})
			before := s.Usage().Bytes
			lanes, err := appendBytes(t, s, 10, 1, 2, 3, 4)
			require.NoError(t, err)
			for i := range lanes {
				require.Nil(t, lanes[i].Refused, "lane %d", i)
			}
			require.Equal(t, int64(1<<20+3*least), before)
			require.Equal(t, before, s.Usage().Bytes)
		})
	}
}

// TestPaddedRation: of a run with too little memory only who grows too much is
// refused, and needs no more than that.
func TestPaddedRation(t *testing.T) {
	s := unequalStore(t, nil, 1024, Limits{Bytes: 1024 + 4*256})
	lanes, err := appendBytes(t, s, 10, 2, 1, 3, 4)
	require.NoError(t, err)
	require.Equal(t, &BudgetError{Held: 1024 + 3*256, More: 1024, Most: 1024 + 4*256}, lanes[1].Refused)
	for _, i := range []int{0, 2, 3} {
		require.Nil(t, lanes[i].Refused, "lane %d", i)
	}
	_, err = appendBytes(t, s, 0, 1, 2)
	require.NoError(t, err)
	require.Equal(t, int64(1024), s.Length(0, s.find(number(1))))
	require.Equal(t, int64(20), s.Length(0, s.find(number(2))))
}

// TestPaddedRunWithoutMemory: whatever a run needs to keep padded values is there
// before anything changes, so that a lack of memory harms no sequence.
func TestPaddedRunWithoutMemory(t *testing.T) {
	memory := &Heap{}
	s := unequalStore(t, memory, 1000, Limits{})
	_, err := appendBytes(t, s, 0, 1, 2, 3, 4) // the slot for the input is there
	require.NoError(t, err)
	held := memory.Used()
	for free := int64(0); ; free += 64 {
		memory.Limit = memory.Used() + free
		_, err := appendBytes(t, s, 300, 1, 2, 3, 4)
		memory.Limit = 0
		if err == nil {
			require.Greater(t, memory.Used(), held+2048, "a step that takes nothing cannot fail")
			return
		}
		for id := uint64(1); id <= 4; id++ {
			_, err := s.Continue(number(id), time.Second)
			require.NoError(t, err, "sequence %d, with %d bytes free", id, free)
		}
	}
}
