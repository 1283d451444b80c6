package statebuffer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// A padded state, wherever its batch and its length stand: a step appends one
// element to values of unequal length that share a run.
func TestPaddedValuesShareARun(t *testing.T) {
	for name, v := range map[string]Varying{
		"batch before length": {Axis: 0, PadAxis: 1, InitialShape: tensor.Shape{1, 0, 2}},
		"length before batch": {Axis: 1, PadAxis: 0, InitialShape: tensor.Shape{0, 1, 2}},
		"length last":         {Axis: 0, PadAxis: 2, InitialShape: tensor.Shape{1, 2, 0}},
		"batch last":          {Axis: 2, PadAxis: 1, InitialShape: tensor.Shape{2, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			v.Name, v.DType, v.LeftPadded = "cache", tensor.Uint8, true
			heap := &Heap{}
			s, err := NewStore(Options{
				Memory: heap, Varying: []Varying{v}, MaxLanes: 4,
				Sizing: Sizing{Initial: 4, Subsequent: 4, MaxChunks: 1}, Limits: Limits{Tombstones: 4},
			})
			require.NoError(t, err)
			values := map[uint64][]byte{} // of each sequence: its elements in the order of its shape
			for id := uint64(1); id <= 3; id++ {
				for range id { // sequence n has length n
					appendTo(t, s, &v, values, id)
				}
			}
			appendTo(t, s, &v, values, 1, 2, 3)
			appendTo(t, s, &v, values, 3, 1)
			s.Close()
			require.Zero(t, heap.Used())
		})
	}
}

// appendTo runs one step that appends to each sequence two elements that say
// whose they are and when, and checks what the step reads.
func appendTo(t *testing.T, s *Store, v *Varying, values map[uint64][]byte, ids ...uint64) {
	t.Helper()
	lanes := make([]Lane, len(ids))
	longest := int64(0)
	for i, id := range ids {
		q, err := s.Continue(Key{Number: id}, time.Second)
		if err != nil {
			q, err = s.Begin(Key{Number: id}, time.Second)
		}
		require.NoError(t, err)
		lanes[i] = Lane{Sequence: q}
		longest = max(longest, s.Length(0, q))
	}
	require.True(t, s.Compatible(lanes[0].Sequence, lanes[len(lanes)-1].Sequence))
	step, err := s.Gather(lanes, len(lanes))
	require.NoError(t, err)
	io := &step.Varying[0]
	require.Equal(t, longest, io.InShape[v.PadAxis])

	out := io.InShape.With(v.PadAxis, longest+1)
	bytes, err := out.Bytes(v.DType)
	require.NoError(t, err)
	io.OutShape, io.Out = out, Block{Bytes: make([]byte, bytes), Size: bytes}
	for lane, id := range ids {
		length := s.Length(0, lanes[lane].Sequence)
		want := values[id]
		for at := range longest {
			for e := range int64(2) {
				got := io.In.Bytes[offset(io.InShape, v, lane, at, e)]
				if at < longest-length {
					require.Zero(t, got, "padding")
					continue
				}
				require.Equal(t, want[2*(at-longest+length)+e], got, "sequence %d, element %d", id, at)
				io.Out.Bytes[offset(out, v, lane, at, e)] = got
			}
		}
		for e := range int64(2) {
			fresh := byte(16*id) + byte(2*length+e)
			io.Out.Bytes[offset(out, v, lane, longest, e)] = fresh
			values[id] = append(values[id], fresh)
		}
	}
	require.NoError(t, s.TooLong(step))
	require.NoError(t, s.Commit(step, time.Second))
}

// offset finds an element in a tensor of three axes: batch, length, and one of 2.
func offset(shape tensor.Shape, v *Varying, lane int, at, element int64) (n int64) {
	for axis, d := range shape {
		index := element
		switch axis {
		case v.Axis:
			index = int64(lane)
		case v.PadAxis:
			index = at
		}
		n = n*d + index
	}
	return n
}

func TestPaddedStateMustNotShrink(t *testing.T) {
	v := Varying{Name: "cache", DType: tensor.Uint8, LeftPadded: true, PadAxis: 1}
	io := &VaryingIO{InShape: tensor.Shape{2, 5}, OutShape: tensor.Shape{2, 4}, Uneven: true}
	require.ErrorContains(t, v.checkPadded(io), "must not get shorter")
	io.OutShape[1] = 5
	require.NoError(t, v.checkPadded(io))
	io.OutShape[1], io.Uneven = 4, false // what is not padded may be of any length
	require.NoError(t, v.checkPadded(io))
}
