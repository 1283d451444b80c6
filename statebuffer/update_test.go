package statebuffer

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// grown is a value by its plain account: what was appended, each as a whole tensor
// of one lane.
type grown struct {
	parts  []tensor.Shape
	values [][]byte
}

// joined puts the parts one after the other along an axis.
func (g *grown) joined(axis int) (shape tensor.Shape, value []byte) {
	shape = g.parts[0].Clone()
	for _, p := range g.parts[1:] {
		shape[axis] += p[axis]
	}
	for outer := range elements(shape[:axis]) {
		for i, p := range g.parts {
			inner := elements(p[axis:])
			value = append(value, g.values[i][outer*inner:(outer+1)*inner]...)
		}
	}
	return shape, value
}

// putBatched lays lanes out as one tensor, from which getLane takes one.
func putBatched(t *testing.T, v *Varying, shape tensor.Shape, values [][]byte) Block {
	layout, err := v.layout(shape)
	require.NoError(t, err)
	b := Block{Size: layout.BatchBytes(len(values))}
	b.Bytes = make([]byte, b.Size)
	for lane, value := range values {
		rest := value
		laneOf(b, layout, len(values), lane, func(tensor, _ []byte) { rest = rest[copy(tensor, rest):] })
	}
	return b
}

func getLane(t *testing.T, v *Varying, b Block, shape tensor.Shape, lanes, lane int) (value []byte) {
	layout, err := v.layout(shape.With(v.Axis, 1))
	require.NoError(t, err)
	laneOf(b, layout, lanes, lane, func(tensor, _ []byte) { value = append(value, tensor...) })
	return value
}

// TestAppend: wherever the batch and the length are, what runs write is put after
// what there was, in any company, and whatever a padding lane writes.
func TestAppend(t *testing.T) {
	for axis := -1; axis < 4; axis++ {
		for at := range 4 {
			if at == axis {
				continue
			}
			for _, begins := range []int64{0, 2} {
				t.Run(fmt.Sprintf("batch %d, append %d, begins with %d", axis, at, begins), func(t *testing.T) {
					v := Varying{Name: "cache", DType: tensor.Uint8, Axis: axis, Update: Append, AppendAxis: at, InitialShape: tensor.Shape{2, 3, 2, 3}.With(at, begins)}
					if axis >= 0 {
						v.InitialShape[axis] = 1
					}
					testAppend(t, v, rand.New(rand.NewPCG(uint64(axis+2), uint64(at))))
				})
			}
		}
	}
}

func testAppend(t *testing.T, v Varying, rng *rand.Rand) {
	v.Initial = make([]byte, elements(v.InitialShape))
	for i := range v.Initial {
		v.Initial[i] = byte(rng.Uint32())
	}
	most := 1
	if v.Axis >= 0 {
		most = 4
	}
	s := newTestStore(t, Options{Varying: []Varying{v}, MaxLanes: most, Sizing: Sizing{Initial: 8, MaxChunks: 1}})
	plain := map[uint64]*grown{}
	for step := range 12 {
		lanes, names := []Lane{}, []uint64{}
		padded := 1 + rng.IntN(most)
		for _, n := range rng.Perm(5)[:min(5, 1+rng.IntN(padded))] {
			name := uint64(n)
			q, err := s.Continue(Key{Number: name}, time.Second)
			if err != nil || rng.IntN(9) == 0 {
				q, err = s.Begin(Key{Number: name}, time.Second)
				plain[name] = &grown{parts: []tensor.Shape{v.InitialShape}, values: [][]byte{v.Initial}}
			}
			require.NoError(t, err)
			if len(lanes) == 0 || s.Compatible(q, lanes[0].Sequence) {
				lanes, names = append(lanes, Lane{Sequence: q}), append(names, name)
			}
		}
		run, err := s.Gather(lanes, padded)
		require.NoError(t, err)
		io := &run.Varying[0]
		delta := v.InitialShape.With(v.AppendAxis, rng.Int64N(3))
		var written [][]byte
		for lane := range padded {
			value := make([]byte, elements(delta))
			for i := range value {
				value[i] = byte(rng.Uint32())
			}
			written = append(written, value)
			if lane >= len(lanes) {
				continue
			}
			shape, want := plain[names[lane]].joined(v.AppendAxis)
			require.Equal(t, shape.With(v.Axis, int64(padded)), io.InShape, "step %d", step)
			require.Equal(t, want, getLane(t, &v, io.In, io.InShape, padded, lane), "step %d, sequence %d", step, names[lane])
		}
		io.Out, io.OutShape = putBatched(t, &v, delta, written), delta.With(v.Axis, int64(padded))
		if rng.IntN(6) == 0 { // a failed run changes nothing
			s.Abort(run, time.Second)
			continue
		}
		require.NoError(t, s.Commit(run, time.Second))
		for lane, name := range names {
			plain[name].parts, plain[name].values = append(plain[name].parts, delta), append(plain[name].values, written[lane])
		}
	}
}

// appendingStore keeps a cache of bytes, two slots for each sequence, that grows by
// what is written.
func appendingStore(t *testing.T, o Options) *Store {
	o.Limits.Tombstones = 9
	o.Varying = []Varying{{Name: "cache", DType: tensor.Uint8, Update: Append, AppendAxis: 2, InitialShape: tensor.Shape{1, 2, 0}, MaxBytes: 600}}
	return newTestStore(t, o)
}

// writeAppended runs a step of one sequence that appends that many columns of a byte.
func writeAppended(t *testing.T, s *Store, q *Sequence, columns int, value byte) error {
	t.Helper()
	lanes := []Lane{{Sequence: q}}
	step, err := s.Gather(lanes, 1)
	require.NoError(t, err)
	io := &step.Varying[0]
	io.OutShape, io.Out = tensor.Shape{1, 2, int64(columns)}, Block{Bytes: make([]byte, 2*columns), Size: int64(2 * columns)}
	for i := range io.Out.Bytes {
		io.Out.Bytes[i] = value + byte(i/columns)
	}
	err = s.Commit(step, 1)
	if lanes[0].Refused != nil {
		return lanes[0].Refused
	}
	return err
}

func readCache(t *testing.T, s *Store, q *Sequence) []byte {
	t.Helper()
	step, err := s.Gather([]Lane{{Sequence: q}}, 1)
	require.NoError(t, err)
	defer s.Undo(step)
	return append([]byte(nil), step.Varying[0].In.Bytes...)
}

// TestAppendBounds: max_state_bytes and the limit of memory hold for the joined
// value, and what is refused leaves the old one.
func TestAppendBounds(t *testing.T) {
	s := appendingStore(t, Options{Limits: Limits{Bytes: 1000}})
	q := begin(t, s, number(1), 1)
	require.NoError(t, writeAppended(t, s, q, 3, 10))
	require.Equal(t, []byte{10, 10, 10, 11, 11, 11}, readCache(t, s, q))

	err := writeAppended(t, s, q, 298, 20)
	require.ErrorContains(t, err, `state "cache" would grow to 602 bytes`)
	require.Equal(t, []byte{10, 10, 10, 11, 11, 11}, readCache(t, s, q))

	other := begin(t, s, number(2), 1)
	require.NoError(t, writeAppended(t, s, other, 128, 0)) // 256 bytes each by now
	err = writeAppended(t, s, q, 254, 20)                  // would take 1024
	var budget *BudgetError
	require.ErrorAs(t, err, &budget)
	require.EqualValues(t, 768, budget.More)
	require.Equal(t, []byte{10, 10, 10, 11, 11, 11}, readCache(t, s, q))
	require.NoError(t, writeAppended(t, s, q, 1, 30))
	require.Equal(t, []byte{10, 10, 10, 30, 11, 11, 11, 31}, readCache(t, s, q))
}

// TestAppendShapes: what does not fit after the old value is refused.
func TestAppendShapes(t *testing.T) {
	s := appendingStore(t, Options{})
	q := begin(t, s, number(1), 1)
	require.NoError(t, writeAppended(t, s, q, 1, 10))
	const another = "want rank 3"
	for _, tt := range []struct {
		written tensor.Shape
		fault   string
	}{
		{tensor.Shape{1, 3, 1}, `state "cache": the model wrote shape [1,3,1]`},
		{tensor.Shape{1, 2}, another},
		{tensor.Shape{2, 2, 1}, another},
		{tensor.Shape{0, 2, 1}, another},
		{tensor.Shape{1, 2, 1, 1}, another},
	} {
		step, err := s.Gather([]Lane{{Sequence: q}}, 1)
		require.NoError(t, err)
		step.Varying[0].OutShape, step.Varying[0].Out = tt.written, Block{Bytes: make([]byte, 9), Size: 9}
		require.ErrorContains(t, s.Commit(step, 1), tt.fault)
		require.Equal(t, []byte{10, 11}, readCache(t, s, q))
	}
}

// TestAppendInPlace: a value in one piece is not copied, but for its new part.
func TestAppendInPlace(t *testing.T) {
	memory := &countingMemory{}
	s := newTestStore(t, Options{Memory: memory, Varying: []Varying{{Name: "cache", DType: tensor.Uint8, Update: Append, AppendAxis: 1, InitialShape: tensor.Shape{1, 100}}}})
	q := begin(t, s, number(1), 1)
	for step, want := range []int64{100 + 1, 1, 1} {
		run, err := s.Gather([]Lane{{Sequence: q}}, 1)
		require.NoError(t, err)
		run.Varying[0].OutShape, run.Varying[0].Out = tensor.Shape{1, 1}, Block{Bytes: []byte{byte(step)}, Size: 1}
		memory.scattered = 0
		require.NoError(t, s.Commit(run, 1))
		require.Equal(t, want, memory.scattered, "step %d", step)
	}
	require.Equal(t, []byte{0, 0, 1, 2}, readCache(t, s, q)[99:])
}

// countingMemory counts the bytes that Scatter moves.
type countingMemory struct {
	Heap
	scattered int64
}

func (m *countingMemory) Scatter(transfers []Transfer) error {
	for i := range transfers {
		for _, slot := range transfers[i].Slots {
			if slot != NoSlot {
				m.scattered += transfers[i].LaneBytes()
			}
		}
	}
	return m.Heap.Scatter(transfers)
}

// TestKeepIfEmpty: an output without elements leaves a value as it was, or makes the
// initial one the value; any other replaces it.
func TestKeepIfEmpty(t *testing.T) {
	v := Varying{Name: "cross", DType: tensor.Uint8, Update: KeepIfEmpty, InitialShape: tensor.Shape{1, 2, 1}, Initial: []byte{7, 8}}
	s := newTestStore(t, Options{Varying: []Varying{v}, MaxLanes: 3, Limits: Limits{Tombstones: 9}})
	a, b := begin(t, s, number(1), 1), begin(t, s, number(2), 1)
	run := func(shape tensor.Shape, written []byte, lanes ...Lane) []byte {
		step, err := s.Gather(lanes, 3)
		require.NoError(t, err)
		in := append([]byte(nil), step.Varying[0].In.Bytes...)
		step.Varying[0].OutShape, step.Varying[0].Out = shape, Block{Bytes: written, Size: int64(len(written))}
		require.NoError(t, s.Commit(step, 1))
		return in
	}
	run(tensor.Shape{0, 2, 1}, nil, Lane{Sequence: a}, Lane{Sequence: b})
	run(tensor.Shape{3, 2, 0}, nil, Lane{Sequence: b}, Lane{Sequence: a})
	require.Equal(t, []byte{7, 8}, readCache(t, s, a))
	require.Equal(t, []byte{7, 8}, readCache(t, s, b))
	run(tensor.Shape{3, 2, 2}, []byte("abcdefgh...."), Lane{Sequence: b}, Lane{Sequence: a})
	in := run(tensor.Shape{0, 2, 1}, nil, Lane{Sequence: a}, Lane{Sequence: b})
	require.Equal(t, "efghabcd", string(in[:8]))
	require.Equal(t, "efgh", string(readCache(t, s, a)))
	require.False(t, s.Compatible(a, begin(t, s, number(3), 1)), "the shape is the kept one")

	step, err := s.Gather([]Lane{{Sequence: a}}, 1)
	require.NoError(t, err)
	step.Varying[0].OutShape = tensor.Shape{0, 2}
	require.ErrorContains(t, s.Commit(step, 1), "want rank 3")

	again := begin(t, s, number(1), 2)
	require.Equal(t, []byte{7, 8}, readCache(t, s, again))
}
