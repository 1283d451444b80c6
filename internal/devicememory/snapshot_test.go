package devicememory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// TestSnapshots: the values of sequences are read from the device as from the host's memory,
// and go on after they were written to another sequence.
func TestSnapshots(t *testing.T) {
	for _, settings := range [][]string{{"DELAY_US", "20"}, {"DELAY_US", "0", "NO_PTX", "1"}} {
		t.Run(fmt.Sprint(settings), func(t *testing.T) {
			compareSnapshots(t, newMemory(t, device(t, settings...)))
		})
	}
}

func compareSnapshots(t *testing.T, m *Memory) {
	options := statebuffer.Options{
		States: []statebuffer.State{
			{Name: "strided", DType: tensor.FP32, Shape: tensor.Shape{3, 1, 5}, Layout: statebuffer.Layout{Pieces: 3, PieceBytes: 20}},
			{Name: "half", DType: tensor.FP32, Shape: tensor.Shape{1, 7}, Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 28}, Convert: statebuffer.Half},
		},
		Varying: []statebuffer.Varying{
			{Name: "cache", DType: tensor.FP32, Axis: 1, Update: statebuffer.Append, AppendAxis: 2, InitialShape: tensor.Shape{2, 1, 0, 3}},
		},
		MaxLanes: 2, Sizing: statebuffer.Sizing{Initial: 3, MaxChunks: 1},
	}
	open := func(memory statebuffer.Memory) *statebuffer.Store {
		options.Memory = memory
		s, err := statebuffer.NewStore(options)
		require.NoError(t, err)
		return s
	}
	stores := [2]*statebuffer.Store{open(&statebuffer.Heap{}), open(m)}
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 9 {
		if step == 4 { // the first sequence begins again where the second one is
			for _, s := range stores {
				_, err := s.Restore(statebuffer.Key{Number: 0}, 0, savedOf(t, stores[1], 1), time.Second)
				require.NoError(t, err)
			}
		}
		seed := rng.Uint64()
		for _, s := range stores {
			stepOf(t, m, s, rand.New(rand.NewPCG(seed, 3)))
		}
		for n := range uint64(2) {
			require.Equal(t, savedOf(t, stores[0], n), savedOf(t, stores[1], n), "step %d", step)
		}
	}
	for _, s := range stores {
		s.Close()
	}
	freeAll(m)
}

// stepOf is a step of two sequences whose values are random.
func stepOf(t *testing.T, m *Memory, s *statebuffer.Store, rng *rand.Rand) {
	var lanes []statebuffer.Lane
	for n := range uint64(2) {
		q, err := s.Continue(statebuffer.Key{Number: n}, time.Second)
		if err != nil {
			q, err = s.Begin(statebuffer.Key{Number: n}, time.Second)
		}
		require.NoError(t, err)
		lanes = append(lanes, statebuffer.Lane{Sequence: q})
	}
	run, err := s.Gather(lanes, len(lanes))
	require.NoError(t, err)
	fill := func(to statebuffer.Block) {
		floats := make([]float32, to.Size/4)
		for i := range floats {
			floats[i] = float32(rng.NormFloat64())
		}
		content := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(floats))), to.Size)
		if to.Bytes == nil {
			require.NoError(t, m.Upload(to, content))
		}
		copy(to.Bytes, content)
	}
	for _, out := range run.Out {
		fill(out)
	}
	io := &run.Varying[0]
	io.OutShape = io.InShape.With(2, 1+rng.Int64N(3))
	bytes, err := io.OutShape.Bytes(tensor.FP32)
	require.NoError(t, err)
	if run.Out[0].Bytes != nil {
		io.Out = statebuffer.Block{Bytes: make([]byte, bytes), Size: bytes}
	} else {
		io.Out, err = m.Alloc(bytes)
		require.NoError(t, err)
		defer m.Free(io.Out)
	}
	fill(io.Out)
	require.NoError(t, s.Commit(run, time.Second))
}

// savedOf reads a sequence as a saver does.
func savedOf(t *testing.T, s *statebuffer.Store, number uint64) *statebuffer.Saved {
	q, err := s.Continue(statebuffer.Key{Number: number}, time.Second)
	require.NoError(t, err)
	n := &statebuffer.Snapshot{}
	require.NoError(t, s.Snapshot(q, n))
	defer n.Release()
	saved := &statebuffer.Saved{Steps: q.Steps()}
	for i, v := range n.Values() {
		bytes, err := v.Shape.Bytes(v.DType)
		require.NoError(t, err)
		value := statebuffer.SavedValue{DType: v.DType, Shape: v.Shape.Clone(), Data: make([]byte, bytes)}
		n.CopyTo(i, value.Data)
		saved.Values = append(saved.Values, value)
	}
	return saved
}
