package statebuffer

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// TestLayoutOf: a lane is the extents before the batch axis, in pieces of those after it.
func TestLayoutOf(t *testing.T) {
	for _, tt := range []struct {
		dims tensor.Shape
		axis int
		want Layout
	}{
		{tensor.Shape{5, 2, 3}, 0, Layout{1, 24}},
		{tensor.Shape{2, 5, 3}, 1, Layout{2, 12}},
		{tensor.Shape{2, 3, tensor.Dynamic}, 2, Layout{6, 4}},
		{tensor.Shape{2, 3}, -1, Layout{1, 24}},
		{tensor.Shape{}, -1, Layout{1, 4}},
		{tensor.Shape{1 << 40, 1, 0}, 1, Layout{1, 0}},
	} {
		got, err := LayoutOf(tt.dims, tt.axis, tensor.FP32)
		require.NoError(t, err)
		require.Equal(t, tt.want, got, "%v, batch at %d", tt.dims, tt.axis)
	}
	_, err := LayoutOf(tensor.Shape{1, tensor.Dynamic}, 0, tensor.FP32)
	require.ErrorContains(t, err, "not fixed")
}

// TestLanes: what PutLane writes TakeLane reads, and other lanes stay as they are.
func TestLanes(t *testing.T) {
	for _, l := range []Layout{{1, 6}, {2, 3}, {6, 1}, {1, 0}} {
		const lanes = 4
		batch := bytes.Repeat([]byte("#"), int(l.BatchBytes(lanes)))
		value := []byte("abcdef")[:l.LaneBytes()]
		for lane := range lanes {
			l.PutLane(batch, lanes, lane, value)
			require.Equal(t, (lane+1)*len(value)/6, bytes.Count(batch, []byte("a")))
			got := make([]byte, len(value))
			l.TakeLane(got, batch, lanes, lane)
			require.Equal(t, value, got)
		}
		l.clearLane(batch, lanes, 2)
		for lane := range lanes {
			want := value
			if lane == 2 {
				want = make([]byte, len(value))
			}
			got := make([]byte, len(value))
			l.TakeLane(got, batch, lanes, lane)
			require.Equal(t, want, got, "lane %d of %v", lane, l)
		}
	}
}

// TestSaturation: sizes beyond 63 bits are the greatest number.
func TestSaturation(t *testing.T) {
	require.EqualValues(t, 6, SatAdd(1, 2, 3))
	require.EqualValues(t, math.MaxInt64, SatAdd(math.MaxInt64, 1, 5))
	require.EqualValues(t, 12, Layout{2, 3}.BatchBytes(2))
	require.EqualValues(t, math.MaxInt64, Layout{1, 1 << 61}.BatchBytes(4))
}
