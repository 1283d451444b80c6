package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestElements(t *testing.T) {
	const big = 1 << 32
	tests := []struct {
		name  string
		shape Shape
		want  int64
		fault string
	}{
		{"scalar", Shape{}, 1, ""},
		{"nil is a scalar", nil, 1, ""},
		{"vector", Shape{7}, 7, ""},
		{"tensor", Shape{4, 1, 5}, 20, ""},
		{"an extent of zero", Shape{4, 0, 5}, 0, ""},
		{"above 2^31", Shape{1 << 20, 1 << 20}, 1 << 40, ""},
		{"the largest", Shape{math.MaxInt64, 1}, math.MaxInt64, ""},
		{"dynamic", Shape{4, Dynamic, 5}, 0, "[4,-1,5] has an extent"},
		{"2^63", Shape{1 << 31, big}, 0, "more elements than 63 bits"},
		{"2^64 would wrap to zero", Shape{big, big}, 0, "more elements than 63 bits"},
		{"2^64+2^32 would wrap to a small number", Shape{big + 1, big}, 0, "more elements than 63 bits"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.shape.Elements()
			if tt.fault != "" {
				require.ErrorContains(t, err, tt.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestBytes(t *testing.T) {
	tests := []struct {
		name  string
		shape Shape
		dtype DType
		want  int64
		fault string
	}{
		{"FP32", Shape{4, 1, 5}, FP32, 80, ""},
		{"BOOL", Shape{3}, Bool, 3, ""},
		{"nothing", Shape{0}, FP64, 0, ""},
		{"the largest", Shape{math.MaxInt64 / 8}, FP64, math.MaxInt64 - 7, ""},
		{"strings", Shape{3}, Bytes, 0, "type BYTES have no fixed size"},
		{"no type", Shape{3}, Invalid, 0, "type INVALID have no fixed size"},
		{"dynamic", Shape{Dynamic}, FP32, 0, "not fixed"},
		{"elements fit, bytes do not", Shape{math.MaxInt64/8 + 1}, FP64, 0, "more bytes than 63 bits"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.shape.Bytes(tt.dtype)
			if tt.fault != "" {
				require.ErrorContains(t, err, tt.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestFixed(t *testing.T) {
	require.True(t, Shape{}.Fixed())
	require.True(t, Shape{0, 3}.Fixed())
	require.False(t, Shape{3, Dynamic}.Fixed())
}

func TestEqual(t *testing.T) {
	require.True(t, Shape{}.Equal(nil))
	require.True(t, Shape{4, 5}.Equal(Shape{4, 5}))
	require.False(t, Shape{4, 5}.Equal(Shape{5, 4}))
	require.False(t, Shape{4, 5}.Equal(Shape{4, 5, 1}))
}

// TestCopies checks that a shape derived from another one shares no memory with it.
func TestCopies(t *testing.T) {
	s := Shape{4, Dynamic, 5}
	require.Equal(t, Shape{4, 16, 5}, s.With(1, 16))
	require.Equal(t, Shape{4, 5}, s.Without(1))
	require.Equal(t, s, s.With(-1, 16))
	require.Equal(t, s, s.Without(-1))
	require.Equal(t, Shape{Dynamic, 5}, s.Without(0))
	s.Clone()[0], s.With(-1, 16)[0], s.Without(-1)[0] = 99, 99, 99
	require.Equal(t, Shape{4, Dynamic, 5}, s)
}

func TestString(t *testing.T) {
	require.Equal(t, "[]", Shape{}.String())
	require.Equal(t, "[4,-1,5]", Shape{4, Dynamic, 5}.String())
}
