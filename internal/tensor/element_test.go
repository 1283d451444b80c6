package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFloatsInRange checks that a finite number that a type cannot represent is refused,
// as for integers.
func TestFloatsInRange(t *testing.T) {
	for dtype, words := range map[DType]struct{ good, bad []string }{
		FP16: {[]string{"65504", "-65519", "1e-9", "inf", "-inf", "nan"}, []string{"65520", "-1e9", "1e300"}},
		BF16: {[]string{"3.38e38", "-1e9", "inf", "-inf", "nan"}, []string{"3.4e38", "-3.4e38", "1e39"}},
		FP32: {[]string{"3.4e38", "-1e9", "inf", "-inf", "nan"}, []string{"1e39", "-1e39"}},
		FP64: {[]string{"1e300", "-inf", "nan"}, []string{"1e309"}},
	} {
		for _, word := range words.good {
			_, err := ParseElement(word, dtype)
			require.NoError(t, err)
		}
		for _, word := range words.bad {
			_, err := ParseElement(word, dtype)
			require.EqualError(t, err, fmt.Sprintf("%q is not a value of type %v", word, dtype))
		}
	}
}

func TestParseElement(t *testing.T) {
	tests := []struct {
		word  string
		dtype DType
		want  []byte
	}{
		{"true", Bool, []byte{1}}, {"false", Bool, []byte{0}}, {"2", Bool, nil}, {"255", Uint8, []byte{255}}, {"256", Uint8, nil}, {"-1", Uint8, nil},
		{"-128", Int8, []byte{0x80}}, {"-129", Int8, nil}, {"1", Uint16, []byte{1, 0}}, {"1.5", FP16, []byte{0, 0x3e}}, {"1.5", BF16, []byte{0xc0, 0x3f}},
		{"-inf", FP32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.Inf(-1))))}, {"2", FP64, binary.LittleEndian.AppendUint64(nil, math.Float64bits(2))},
		{"9223372036854775807", Int64, binary.LittleEndian.AppendUint64(nil, math.MaxInt64)}, {"x", FP32, nil}, {"1", Bytes, nil}, {"empty", Int32, []byte{0, 0, 0, 0}},
	}
	for _, tt := range tests {
		got, err := ParseElement(tt.word, tt.dtype)
		require.Equal(t, tt.want == nil, err != nil, "%q of %v: %v", tt.word, tt.dtype, err)
		require.Equal(t, tt.want, got, "%q of %v", tt.word, tt.dtype)
	}
}
