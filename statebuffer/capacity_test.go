package statebuffer

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// checker is a Heap with a CheckCapacity.
type checker struct {
	Heap
	free   int64
	allocs int
}

func (m *checker) CheckCapacity(bytes int64) error {
	if bytes > m.free-m.Used() {
		return fmt.Errorf("%d bytes are wanted and %d are free", bytes, m.free-m.Used())
	}
	return nil
}

func (m *checker) Alloc(bytes int64) (Block, error) {
	m.allocs++
	return m.Heap.Alloc(bytes)
}

// TestChunkWithoutRoom: a chunk that does not fit is not even begun, and is tried
// again later.
func TestChunkWithoutRoom(t *testing.T) {
	sizing := Sizing{Initial: 4, Subsequent: 4, MaxChunks: 2, AllocBelow: 4, DeallocAbove: 99}
	memory := &checker{free: math.MaxInt64}
	s := newTestStore(t, Options{Memory: memory, Sizing: sizing, States: []State{
		{Name: "small", Layout: Layout{Pieces: 1, PieceBytes: 8}},
		{Name: "large", Layout: Layout{Pieces: 4, PieceBytes: 100}},
	}})
	q := begin(t, s, number(1), 1)
	doStep(t, s, Lane{Sequence: q}, "original")
	memory.free, memory.allocs = memory.Used()+4*408-1, 0
	now := time.Duration(1000)
	_, err := s.Maintain(at(now))
	require.ErrorContains(t, err, "1632 bytes are wanted and 1631")
	require.Zero(t, memory.allocs)
	require.Equal(t, "original", doStep(t, s, Lane{Sequence: q}, "8 bytes."))
	memory.free++
	change, err := s.Maintain(at(now + firstBackoff - 1))
	require.NoError(t, err)
	require.Equal(t, Change{}, change, "too early")
	change, err = s.Maintain(at(now + firstBackoff))
	require.NoError(t, err)
	require.True(t, change.Grown)
}

// TestBytes is what a new store takes, to the byte.
func TestBytes(t *testing.T) {
	o := Options{
		Sizing: Sizing{Initial: 5, Subsequent: 4, MaxChunks: 3, AllocBelow: 4, DeallocAbove: 99}, MaxLanes: 3,
		States: []State{
			{Name: "plain", Layout: Layout{Pieces: 2, PieceBytes: 12}},
			{Name: "half", Layout: Layout{Pieces: 1, PieceBytes: 40}, Convert: Half, Initial: make([]byte, 40)},
		},
		Varying: []Varying{{Name: "grows", DType: tensor.FP32, Axis: 0, InitialShape: []int64{1, 7}}},
	}
	memory := &Heap{}
	o.Memory = memory
	s, err := NewStore(o)
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, memory.Used(), o.Bytes())
	o.Sizing.Initial = math.MaxInt
	require.Equal(t, int64(math.MaxInt64), o.Bytes())
}
