package backend

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// TestFloatsInRange: a number that a type has only as another one, or as infinity, is
// refused as an integer would be.
func TestFloatsInRange(t *testing.T) {
	for dtype, words := range map[tensor.DType]struct{ good, bad []string }{
		tensor.FP16: {[]string{"65504", "-65519", "1e-9", "inf", "-inf", "nan"}, []string{"65520", "-1e9", "1e300"}},
		tensor.BF16: {[]string{"3.38e38", "-1e9", "inf", "-inf", "nan"}, []string{"3.4e38", "-3.4e38", "1e39"}},
		tensor.FP32: {[]string{"3.4e38", "-1e9", "inf", "-inf", "nan"}, []string{"1e39", "-1e39"}},
		tensor.FP64: {[]string{"1e300", "-inf", "nan"}, []string{"1e309"}},
	} {
		for _, word := range words.good {
			_, err := tensor.ParseElement(word, dtype)
			require.NoError(t, err)
		}
		for _, word := range words.bad {
			_, err := tensor.ParseElement(word, dtype)
			require.EqualError(t, err, fmt.Sprintf("%q is no value of type %v", word, dtype))
		}
	}
}

func TestParseElement(t *testing.T) {
	tests := []struct {
		word  string
		dtype tensor.DType
		want  []byte
	}{
		{"true", tensor.Bool, []byte{1}}, {"false", tensor.Bool, []byte{0}}, {"2", tensor.Bool, nil}, {"255", tensor.Uint8, []byte{255}}, {"256", tensor.Uint8, nil}, {"-1", tensor.Uint8, nil},
		{"-128", tensor.Int8, []byte{0x80}}, {"-129", tensor.Int8, nil}, {"1", tensor.Uint16, []byte{1, 0}}, {"1.5", tensor.FP16, []byte{0, 0x3e}}, {"1.5", tensor.BF16, []byte{0xc0, 0x3f}},
		{"-inf", tensor.FP32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.Inf(-1))))}, {"2", tensor.FP64, binary.LittleEndian.AppendUint64(nil, math.Float64bits(2))},
		{"9223372036854775807", tensor.Int64, binary.LittleEndian.AppendUint64(nil, math.MaxInt64)}, {"x", tensor.FP32, nil}, {"1", tensor.Bytes, nil}, {"empty", tensor.Int32, []byte{0, 0, 0, 0}},
	}
	for _, tt := range tests {
		got, err := tensor.ParseElement(tt.word, tt.dtype)
		require.Equal(t, tt.want == nil, err != nil, "%q of %v: %v", tt.word, tt.dtype, err)
		require.Equal(t, tt.want, got, "%q of %v", tt.word, tt.dtype)
	}
}
