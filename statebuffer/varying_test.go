package statebuffer

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// mostVarying is the longest that a varying state of a world may become.
const mostVarying = 5

func (w *world) randomVarying(i int) Varying {
	v := Varying{Name: fmt.Sprint("cache ", i), DType: tensor.Int16, Axis: 1}
	v.InitialShape = tensor.Shape{1 + w.rng.Int64N(3), 1, w.rng.Int64N(3), 1 + w.rng.Int64N(3)}
	bytes, _ := v.InitialShape.Bytes(v.DType)
	if w.rng.IntN(2) == 0 {
		v.Initial = w.noise(bytes)
	}
	v.MaxBytes, _ = v.InitialShape.With(2, mostVarying).Bytes(v.DType)
	return v
}

func (w *world) noise(bytes int64) []byte {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return b
}

// current is what the next step of a sequence reads; k need not be live.
func (w *world) current(i int, k Key) plainVarying {
	if q, ok := w.plain.live[k]; ok && !q.fresh {
		return q.varying[i]
	}
	v := &w.vary[i]
	bytes, _ := v.InitialShape.Bytes(v.DType)
	if v.Initial == nil {
		return plainVarying{v.InitialShape, make([]byte, bytes)}
	}
	return plainVarying{v.InitialShape, v.Initial}
}

func (w *world) compatible(a, b Key) bool {
	for i := range w.vary {
		if !w.current(i, a).shape.Equal(w.current(i, b).shape) {
			return false
		}
	}
	return true
}

func (w *world) checkVarying(step *Step, lanes []Lane, names []Key, padded int) {
	require.Len(w.t, step.Varying, len(w.vary))
	for i := range w.vary {
		io := &step.Varying[i]
		for lane, l := range lanes {
			k := names[lane]
			if l.Sequence == nil {
				k = Key{Text: "unknown"}
			}
			want := w.current(i, k)
			require.Equal(w.t, want.shape.With(1, int64(padded)), io.InShape)
			layout, err := w.vary[i].layout(want.shape)
			require.NoError(w.t, err)
			require.Equal(w.t, layout.LaneBytes()*int64(padded), io.In.Size)
			var got []byte
			laneOf(io.In, layout, padded, lane, func(tensor, _ []byte) { got = append(got, tensor...) })
			require.True(w.t, bytes.Equal(want.value, got), "lane %d: want %v, got %v", lane, want.value, got)
		}
	}
}

// fillVarying stands in for a model whose states grow and shrink: the shapes of one lane
// and [state][lane] what it wrote.
func (w *world) fillVarying(step *Step, lanes, padded int) (shapes []tensor.Shape, written [][][]byte) {
	written = make([][][]byte, len(w.vary))
	for i := range w.vary {
		v, io := &w.vary[i], &step.Varying[i]
		shape := v.InitialShape.With(2, w.rng.Int64N(mostVarying+1))
		if w.rng.IntN(12) == 0 {
			shape[2] = mostVarying + 1
		}
		layout, err := v.layout(shape)
		require.NoError(w.t, err)
		io.OutShape = shape.With(1, int64(padded))
		size := layout.LaneBytes() * int64(padded)
		io.Out = Block{Bytes: make([]byte, size), Size: size}
		for lane := range padded {
			value := w.noise(layout.LaneBytes())
			rest := value
			laneOf(io.Out, layout, padded, lane, func(tensor, _ []byte) { rest = rest[copy(tensor, rest):] })
			if lane < lanes {
				written[i] = append(written[i], value)
			}
		}
		shapes = append(shapes, shape)
	}
	return shapes, written
}

func (w *world) tooLarge(shapes []tensor.Shape) bool {
	for _, s := range shapes {
		if s[2] > mostVarying {
			return true
		}
	}
	return false
}

func (w *world) committedVarying(lanes []Lane, names []Key, shapes []tensor.Shape, written [][][]byte) {
	for lane, l := range lanes {
		if l.Sequence == nil || l.End {
			continue
		}
		q := w.plain.live[names[lane]]
		q.varying = nil
		for i := range w.vary {
			q.varying = append(q.varying, plainVarying{shapes[i], written[i][lane]})
		}
	}
}

// varyingBytes is what the live sequences hold, by their own account.
func (w *world) varyingBytes() (n int64) {
	for q := w.store.live.first; q != nil; q = q.next {
		for _, v := range q.values {
			n += v.block.Size
		}
	}
	for q := w.store.tombstones.first; q != nil; q = q.next {
		require.Empty(w.t, q.values, "a lost sequence holds memory")
	}
	return n
}

func TestVaryingGrowsByPowersOfTwo(t *testing.T) {
	for bytes, want := range map[int64]int64{0: 256, 1: 256, 256: 256, 257: 512, 1 << 40: 1 << 40, 1<<40 + 1: 1 << 41, math.MaxInt64: 1 << 62} {
		require.Equal(t, want, Capacity(bytes), "%d bytes", bytes)
	}
}

func TestVaryingRejects(t *testing.T) {
	tests := []struct {
		name  string
		state Varying
		fault string
	}{
		{"bytes that do not fit the shape", Varying{DType: tensor.FP32, InitialShape: tensor.Shape{1, 2}, Initial: make([]byte, 7)}, `initial value has 7 bytes: want 8`},
		{"no fixed shape", Varying{DType: tensor.FP32, InitialShape: tensor.Shape{1, -1}}, `state "cache": the initial value: shape [1,-1]`},
		{"strings", Varying{DType: tensor.Bytes, InitialShape: tensor.Shape{1, 1}}, "have no fixed size"},
		{"no memory", Varying{DType: tensor.FP32, InitialShape: tensor.Shape{1, 1 << 20}}, `state "cache": the initial value: allocating 4194304 bytes`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			memory := &Heap{Limit: 1 << 20}
			tt.state.Name = "cache"
			_, err := NewStore(Options{Memory: memory, Varying: []Varying{tt.state}, Sizing: Sizing{Initial: 1, MaxChunks: 1}, MaxLanes: 1})
			require.ErrorContains(t, err, tt.fault)
			require.Zero(t, memory.Used())
		})
	}
}

// TestRestartGivesLargeBlocksBack: what a sequence had before its new START takes
// nothing of the limit from then on, neither while its first run is tried and undone
// nor after it.
func TestRestartGivesLargeBlocksBack(t *testing.T) {
	memory := &Heap{}
	s := newTestStore(t, Options{
		Memory:  memory,
		Varying: []Varying{{Name: "cache", DType: tensor.Int8, Axis: 0, InitialShape: tensor.Shape{1, 0}}},
		Sizing:  Sizing{Initial: 8, MaxChunks: 1}, Limits: Limits{Bytes: 64<<10 + 1024, Tombstones: 9},
	})
	require.NoError(t, writeCache(t, s, begin(t, s, number(1), 1), 64<<10, 1))
	require.Equal(t, int64(64<<10), s.Usage().Bytes)
	held := memory.Used()

	q := begin(t, s, number(1), 2)
	require.Zero(t, s.Usage().Bytes)
	require.Equal(t, held-64<<10, memory.Used())
	other := begin(t, s, number(2), 2)
	require.NoError(t, writeCache(t, s, other, 64<<10, 2), "there is room for another one")
	step, err := s.Gather([]Lane{{Sequence: q}}, 1)
	require.NoError(t, err)
	require.Equal(t, tensor.Shape{1, 0}, step.Varying[0].InShape)
	s.Undo(step)
	require.NoError(t, writeCache(t, s, begin(t, s, number(1), 2), 100, 2))
	require.Equal(t, int64(64<<10+256), s.Usage().Bytes)
}
