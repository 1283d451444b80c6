package tensor

import (
	"encoding/binary"
	"encoding/json"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzShape compares sizes with arithmetic that cannot overflow.
func FuzzShape(f *testing.F) {
	extents := func(dims ...int64) (data []byte) {
		for _, d := range dims {
			data = binary.LittleEndian.AppendUint64(data, uint64(d))
		}
		return data
	}
	f.Add(extents(), uint8(FP32))
	f.Add(extents(2, 3, 4), uint8(FP16))
	f.Add(extents(1<<31, 1<<31), uint8(Bool))
	f.Add(extents(1<<31, 1<<31, 2), uint8(Uint8))
	f.Add(extents(1<<62, 2), uint8(FP64))
	f.Add(extents(1<<62, 1<<62, 0), uint8(Int8))
	f.Add(extents(1, -1), uint8(Int64))
	f.Add(extents(5), uint8(Bytes))
	f.Fuzz(func(t *testing.T, data []byte, dtype uint8) {
		shape, want := Shape{}, big.NewInt(1)
		fixed := true
		for ; len(data) >= 8 && len(shape) < 20; data = data[8:] {
			d := int64(binary.LittleEndian.Uint64(data))
			shape = append(shape, d)
			fixed = fixed && d >= 0
			want.Mul(want, big.NewInt(d))
		}
		require.Equal(t, fixed, shape.Fixed())
		if n, err := shape.Elements(); err == nil {
			require.Equal(t, want.String(), big.NewInt(n).String())
		} else {
			require.True(t, !fixed || !want.IsInt64() || want.Sign() == 0, "%v was refused: %v", shape, err)
		}
		want.Mul(want, big.NewInt(int64(DType(dtype).Size())))
		if n, err := shape.Bytes(DType(dtype)); err == nil {
			require.Equal(t, want.String(), big.NewInt(n).String())
		} else {
			require.True(t, !fixed || !want.IsInt64() || want.Sign() == 0, "%v was refused: %v", shape, err)
		}
		text, err := json.Marshal(shape)
		require.NoError(t, err)
		var again Shape
		require.NoError(t, json.Unmarshal(text, &again))
		require.True(t, shape.Equal(again))
	})
}
