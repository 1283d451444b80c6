package memorytest

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

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
		got, want := math.Float32frombits(binary.NativeEndian.Uint32(floats[4*h:])), tensor.Widen(uint16(h))
		if math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
			t.Fatalf("FP16 %#04x widens to %v: want %v", h, got, want)
		}
	}
	b.write(move[0].Chunks[0], make([]byte, 2*all))
	require.NoError(t, b.memory.Scatter(move))
	back := b.read(move[0].Chunks[0])
	for h := range all {
		got := binary.NativeEndian.Uint16(back[2*h:])
		if f := tensor.Widen(uint16(h)); got != uint16(h) && f == f || f != f && tensor.Widen(got) == tensor.Widen(got) {
			t.Fatalf("FP16 %#04x comes back as %#04x", h, got)
		}
	}
	require.Zero(t, saturated, "infinities and the largest finite value are not clamped")
}

// testHalfScatters: rounding to nearest even, clamping and counting, as tensor.Half does, on values
// that are delicate and on many random ones, with several pieces and lanes.
func testHalfScatters(t *testing.T, b *bench) {
	values := make([]float32, 0, 40_000)
	values = append(values, 0, float32(math.Copysign(0, -1)), 1, math.SmallestNonzeroFloat32,
		2048, 2049, 2051, 2049.0002, 4095.5, // ties, next to a tie, and a carry into the exponent
		65504, 65519.996, 65520, math.MaxFloat32, -math.MaxFloat32, // from 65520 on they are clamped
		float32(math.Inf(1)), float32(math.Inf(-1)),
		0x1p-14, 0x1p-14-0x1p-24, 0x1p-14-0x1p-26, 0x1p-24, 0x1p-25, 0x1.000002p-25, 0x1.8p-24) // subnormal ones
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
		want, clamped := tensor.Half(f)
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
	nan := tensor.Widen(binary.NativeEndian.Uint16(stored[2:]))
	require.True(t, nan != nan, "NaN stays NaN")
}
