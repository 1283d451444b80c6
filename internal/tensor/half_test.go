package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// value returns the value of an FP16, by the definition of the format.
func value(h uint16) float64 {
	exp, frac := int(h>>10)&0x1f, float64(h&0x3ff)
	f := math.Ldexp(1024+frac, exp-25)
	switch {
	case exp == 0x1f && frac != 0:
		return math.NaN()
	case exp == 0x1f:
		f = math.Inf(1)
	case exp == 0:
		f = math.Ldexp(frac, -24)
	}
	if h&0x8000 != 0 {
		return math.Copysign(f, -1)
	}
	return f
}

// TestHalfOfEveryValue widens every FP16 exactly and converts it back.
func TestHalfOfEveryValue(t *testing.T) {
	for h := range 1 << 16 {
		want, got := value(uint16(h)), Widen(uint16(h))
		back, clamped := Half(got)
		if math.IsNaN(want) {
			require.True(t, got != got && Widen(back) != Widen(back), "%#04x", h)
			continue
		}
		if math.Float64bits(float64(got)) != math.Float64bits(want) || back != uint16(h) || clamped {
			t.Fatalf("%#04x is %v and comes back as %#04x, clamped %v: want %v", h, got, back, clamped, want)
		}
	}
}

// TestHalfRounds checks that the middle between two neighbours is rounded to the even
// one, and values next to the middle to the nearer one.
func TestHalfRounds(t *testing.T) {
	for h := range uint16(0x7bff) {
		tie := float32((value(h) + value(h+1)) / 2)
		even := h + h&1
		for f, want := range map[float32]uint16{
			tie: even, math.Nextafter32(tie, 0): h, math.Nextafter32(tie, 1e9): h + 1,
			-tie: even | 0x8000, -math.Nextafter32(tie, 0): h | 0x8000, -math.Nextafter32(tie, 1e9): h + 1 | 0x8000,
		} {
			if got, clamped := Half(f); got != want || clamped {
				t.Fatalf("%v becomes %#04x, clamped %v: want %#04x", f, got, clamped, want)
			}
		}
	}
}

func TestHalfClamps(t *testing.T) {
	tests := []struct {
		f       float64
		want    uint16
		clamped bool
	}{
		{65504, 0x7bff, false}, {65519.996, 0x7bff, false}, {65520, 0x7bff, true}, {math.MaxFloat32, 0x7bff, true}, {-1e6, 0xfbff, true},
		{math.Inf(1), 0x7c00, false}, {math.Inf(-1), 0xfc00, false}, {math.SmallestNonzeroFloat32, 0, false},
	}
	for _, tt := range tests {
		got, clamped := Half(float32(tt.f))
		require.Equal(t, tt.want, got, "%v", tt.f)
		require.Equal(t, tt.clamped, clamped, "%v", tt.f)
	}
}

func TestBFloat16(t *testing.T) {
	wide := func(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
	for h := range 1 << 16 {
		f := wide(uint16(h))
		if f != f {
			require.True(t, wide(bfloat16(f)) != wide(bfloat16(f)), "%#04x", h)
			continue
		}
		if bfloat16(f) != uint16(h) {
			t.Fatalf("%#04x comes back as %#04x", h, bfloat16(f))
		}
	}
	for bits, want := range map[uint32]uint16{0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82, 0x3f817fff: 0x3f81, 0x7f7fffff: 0x7f80, 0x80008000: 0x8000} {
		require.Equal(t, want, bfloat16(math.Float32frombits(bits)), "%#08x", bits)
	}
}
