package memorytest

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/statebuffer"
)

// wide is the value of an FP16, by the definition of the format.
func wide(h uint16) float32 {
	exp, frac := int(h>>10)&0x1f, float64(h&0x3ff)
	value := math.Ldexp(1024+frac, exp-25)
	switch {
	case exp == 0x1f && frac != 0:
		return float32(math.NaN())
	case exp == 0x1f:
		value = math.Inf(1)
	case exp == 0:
		value = math.Ldexp(frac, -24)
	}
	if h&0x8000 != 0 {
		value = -value
		if value == 0 {
			value = math.Copysign(0, -1)
		}
	}
	return float32(value)
}

// narrow is the FP16 that is nearest to f, ties to even, and never infinite if f
// is not. It reasons in units of the last place instead of bits.
func narrow(f float32) (h uint16, clamped bool) {
	sign := uint16(0)
	if math.Signbit(float64(f)) {
		sign = 0x8000
	}
	a := math.Abs(float64(f))
	switch {
	case a == 0:
		return sign, false
	case math.IsInf(a, 0):
		return sign | 0x7c00, false
	}
	_, exp := math.Frexp(a)
	place := max(exp-11, -24)
	units := math.RoundToEven(math.Ldexp(a, -place)) // 1024 to 2048, or fewer for a subnormal
	if math.Ldexp(units, place) > 65504 {
		return sign | 0x7bff, true
	}
	// One place further, 1024 units more are the next exponent: the format's trick.
	return sign | uint16(place+24)<<10 + uint16(units), false
}

// halves is a Transfer of one slot of FP32 stored as FP16.
func (b *bench) halves(stored, floats []byte, saturated *uint64) []statebuffer.Transfer {
	return []statebuffer.Transfer{{
		Layout: statebuffer.Layout{Pieces: 1, PieceBytes: int64(len(floats))}, Convert: statebuffer.Half,
		Chunks: []statebuffer.Block{b.filled(stored)}, Initial: b.alloc(int64(len(stored))),
		Slots: []statebuffer.Slot{{}}, Tensor: b.filled(floats), Lanes: 1, Saturated: saturated,
	}}
}

// testHalfGathersEveryValue: all 65536 widen exactly, and come back the same.
func testHalfGathersEveryValue(t *testing.T, b *bench) {
	const all = 1 << 16
	stored := make([]byte, 2*all)
	for h := range all {
		binary.NativeEndian.PutUint16(stored[2*h:], uint16(h))
	}
	saturated := uint64(0)
	move := b.halves(stored, make([]byte, 4*all), &saturated)
	require.NoError(t, b.memory.Gather(move))
	floats := b.read(move[0].Tensor)
	for h := range all {
		got, want := math.Float32frombits(binary.NativeEndian.Uint32(floats[4*h:])), wide(uint16(h))
		if math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
			t.Fatalf("FP16 %#04x widens to %v: want %v", h, got, want)
		}
	}
	b.write(move[0].Chunks[0], make([]byte, 2*all))
	require.NoError(t, b.memory.Scatter(move))
	back := b.read(move[0].Chunks[0])
	for h := range all {
		got := binary.NativeEndian.Uint16(back[2*h:])
		if f := wide(uint16(h)); got != uint16(h) && f == f || f != f && wide(got) == wide(got) {
			t.Fatalf("FP16 %#04x comes back as %#04x", h, got)
		}
	}
	require.Zero(t, saturated, "infinities and the largest finite value are not clamped")
}

// testHalfScatters: rounding to nearest even, clamping and counting, on values
// that are delicate and on many random ones, with several pieces and lanes.
func testHalfScatters(t *testing.T, b *bench) {
	named := []struct {
		name    string
		f       float32
		want    uint16
		clamped bool
	}{
		{"zero", 0, 0, false},
		{"minus zero", float32(math.Copysign(0, -1)), 0x8000, false},
		{"one", 1, 0x3c00, false},
		{"2048 is the end of the odd numbers", 2048, 0x6800, false},
		{"2049 ties to even, down", 2049, 0x6800, false},
		{"2051 ties to even, up", 2051, 0x6802, false},
		{"a tie and a bit goes up", 2049.0002, 0x6801, false},
		{"carry into the exponent", 4095.5, 0x6c00, false},
		{"largest finite", 65504, 0x7bff, false},
		{"just below the tie to infinity", 65519.996, 0x7bff, false},
		{"the tie to infinity is clamped", 65520, 0x7bff, true},
		{"largest FP32 is clamped", math.MaxFloat32, 0x7bff, true},
		{"and the most negative", -math.MaxFloat32, 0xfbff, true},
		{"infinity stays", float32(math.Inf(1)), 0x7c00, false},
		{"minus infinity stays", float32(math.Inf(-1)), 0xfc00, false},
		{"smallest normal", 0x1p-14, 0x0400, false},
		{"largest subnormal", 0x1p-14 - 0x1p-24, 0x03ff, false},
		{"rounds up to the smallest normal", 0x1p-14 - 0x1p-26, 0x0400, false},
		{"smallest subnormal", 0x1p-24, 0x0001, false},
		{"half of it ties to zero", 0x1p-25, 0x0000, false},
		{"a bit more than half rounds up", 0x1.000002p-25, 0x0001, false},
		{"one and a half of it ties to two", 0x1.8p-24, 0x0002, false},
		{"smallest FP32", math.SmallestNonzeroFloat32, 0x0000, false},
	}
	values := make([]float32, 0, 40_000)
	for _, n := range named {
		h, clamped := narrow(n.f)
		require.Equal(t, n.want, h, "the test's own narrow: %s", n.name)
		require.Equal(t, n.clamped, clamped, "the test's own narrow: %s", n.name)
		values = append(values, n.f)
	}
	rng := random(16)
	for len(values) < cap(values)-6 {
		f := math.Float32frombits(rng.Uint32())
		if rng.IntN(2) == 0 {
			f = float32(rng.NormFloat64()) * float32(int64(1)<<rng.IntN(18))
		}
		if f == f {
			values = append(values, f)
		}
	}
	values = append(values, 1, 2, 3, 4, 5, 6)[:len(values)/6*6]
	b.scatterHalves(t, values, 2, 3)
	b.scatterHalves(t, values, 1, 1)
}

// scatterHalves stores the values as one slot for each of the lanes.
func (b *bench) scatterHalves(t *testing.T, values []float32, pieces, lanes int) {
	floats := make([]byte, 4*len(values))
	for i, f := range values {
		binary.NativeEndian.PutUint32(floats[4*i:], math.Float32bits(f))
	}
	perPiece := len(values) / pieces / lanes
	saturated, wantSaturated := uint64(7), uint64(7)
	move := b.halves(make([]byte, 2*len(values)), floats, &saturated)
	move[0].Layout = statebuffer.Layout{Pieces: int64(pieces), PieceBytes: int64(4 * perPiece)}
	move[0].Lanes = lanes
	move[0].Slots = nil
	for lane := range lanes {
		move[0].Slots = append(move[0].Slots, statebuffer.Slot{Index: int32(lane)})
	}
	require.NoError(t, b.memory.Scatter(move))
	stored := b.read(move[0].Chunks[0])
	for i, f := range values {
		x, lane, k := i/perPiece/lanes, i/perPiece%lanes, i%perPiece
		got := binary.NativeEndian.Uint16(stored[2*((lane*pieces+x)*perPiece+k):])
		want, clamped := narrow(f)
		if got != want {
			t.Fatalf("FP32 %v (%#08x) narrows to %#04x: want %#04x", f, math.Float32bits(f), got, want)
		}
		if clamped {
			wantSaturated++
		}
	}
	require.Equal(t, wantSaturated, saturated, "clamped elements are added to the counter")
}

func testHalfWithoutCounter(t *testing.T, b *bench) {
	floats := binary.NativeEndian.AppendUint32(nil, math.Float32bits(1e9))
	floats = binary.NativeEndian.AppendUint32(floats, math.Float32bits(float32(math.NaN())))
	move := b.halves(make([]byte, 4), floats, nil)
	require.NoError(t, b.memory.Scatter(move))
	stored := b.read(move[0].Chunks[0])
	require.Equal(t, uint16(0x7bff), binary.NativeEndian.Uint16(stored))
	nan := wide(binary.NativeEndian.Uint16(stored[2:]))
	require.True(t, nan != nan, "NaN stays NaN")
}
