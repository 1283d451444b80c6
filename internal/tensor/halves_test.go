package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// floats returns the bytes of these bit patterns.
func floats(bits ...uint32) (data []byte) {
	for _, b := range bits {
		data = binary.NativeEndian.AppendUint32(data, b)
	}
	return data
}

// TestWidensAsWiden compares Widens with Widen for all FP16, in slices of any length
// and at any address.
func TestWidensAsWiden(t *testing.T) {
	for _, length := range []int{1, 7, 15, 16, 17, 100, 1 << 16} {
		for shift := range 3 {
			src := make([]byte, shift, shift+2*length)
			for i := range length {
				src = binary.NativeEndian.AppendUint16(src, uint16(i*(1<<16/length)))
			}
			dst := make([]byte, shift+4*length+4)
			Widens(dst[shift:][:4*length], src[shift:])
			for i := range length {
				h := binary.NativeEndian.Uint16(src[shift+2*i:])
				got := binary.NativeEndian.Uint32(dst[shift+4*i:])
				require.Equal(t, math.Float32bits(Widen(h)), got, "%#04x", h)
			}
			require.Equal(t, make([]byte, 4), dst[shift+4*length:], "bytes after the elements")
		}
	}
}

// TestHalvesAsHalf compares Halves with Half, results and counts, for FP32 from the
// whole range and around the limits of FP16.
func TestHalvesAsHalf(t *testing.T) {
	var bits []uint32
	for _, edge := range []uint32{
		0, 1, 0x007fffff, 0x33000000, 0x33800000, 0x38800000, 0x477fe000, 0x477fefff, 0x477ff000, 0x47800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff,
	} {
		for near := range uint32(5) {
			bits = append(bits, (edge+near-2)&0x7fffffff, edge+near-2|0x80000000)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		bits = append(bits, rng.Uint32())
		bits = append(bits, rng.Uint32()&0x8fffffff|0x30000000+rng.Uint32N(0x18)<<24) // the range of FP16 and some more
	}
	for _, length := range []int{1, 15, 16, 17, 150, len(bits)} {
		for from := 0; from+length <= len(bits) && from < 200; from++ {
			checkHalves(t, bits[from:from+length], from%3)
			if length == len(bits) {
				break
			}
		}
	}
}

func checkHalves(t *testing.T, bits []uint32, shift int) {
	t.Helper()
	src := append(make([]byte, shift), floats(bits...)...)
	dst := make([]byte, shift+2*len(bits)+4)
	want := uint64(0)
	clamped := Halves(dst[shift:][:2*len(bits)], src[shift:])
	for i, b := range bits {
		h, c := Half(math.Float32frombits(b))
		if c {
			want++
		}
		if got := binary.NativeEndian.Uint16(dst[shift+2*i:]); got != h {
			t.Fatalf("%#08x becomes %#04x: want %#04x", b, got, h)
		}
	}
	require.Equal(t, want, clamped)
	require.Equal(t, make([]byte, 4), dst[shift+2*len(bits):], "bytes after the elements")
}

// BenchmarkHalves measures the conversion in both directions, in bytes of FP32.
func BenchmarkHalves(b *testing.B) {
	for _, elements := range []int{16, 1024, 128 << 10} {
		wide, narrow := make([]byte, 4*elements), make([]byte, 2*elements)
		for i := range elements {
			binary.NativeEndian.PutUint32(wide[4*i:], math.Float32bits(float32(i)/7))
		}
		b.Run(fmt.Sprintf("halves/elements=%d", elements), func(b *testing.B) {
			b.SetBytes(int64(len(wide)))
			for b.Loop() {
				Halves(narrow, wide)
			}
		})
		b.Run(fmt.Sprintf("widens/elements=%d", elements), func(b *testing.B) {
			b.SetBytes(int64(len(wide)))
			for b.Loop() {
				Widens(wide, narrow)
			}
		})
	}
}
