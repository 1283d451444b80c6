package tensor

import (
	"encoding/binary"
	"math"
)

// Widens fills dst with FP32 elements converted from the FP16 elements of src, as by
// [Widen]. src has at least as many elements as dst. Both are in the host's byte
// order and need no alignment.
func Widens(dst, src []byte) {
	done := widenBlocks(dst, src)
	for i := done; i < len(dst)/4; i++ {
		h := binary.NativeEndian.Uint16(src[2*i:])
		binary.NativeEndian.PutUint32(dst[4*i:], math.Float32bits(Widen(h)))
	}
}

// Halves fills dst with FP16 elements converted from the FP32 elements of src, as by
// [Half], and returns how many were clamped. src has at least as many elements as
// dst. Both are in the host's byte order and need no alignment.
func Halves(dst, src []byte) (clamped uint64) {
	done, clamped := halfBlocks(dst, src)
	for i := done; i < len(dst)/2; i++ {
		h, c := Half(math.Float32frombits(binary.NativeEndian.Uint32(src[4*i:])))
		binary.NativeEndian.PutUint16(dst[2*i:], h)
		if c {
			clamped++
		}
	}
	return clamped
}

// BFloats fills dst with BF16 elements converted from the FP32 elements of src, rounded to the
// nearest, ties to even. src has at least as many elements as dst. Both are in the host's byte
// order and need no alignment.
func BFloats(dst, src []byte) {
	for i := range len(dst) / 2 {
		f := math.Float32frombits(binary.NativeEndian.Uint32(src[4*i:]))
		binary.NativeEndian.PutUint16(dst[2*i:], bfloat16(f))
	}
}

// WidenBFloats fills dst with FP32 elements converted from the BF16 elements of src, which has
// at least as many. Both are in the host's byte order and need no alignment.
func WidenBFloats(dst, src []byte) {
	for i := range len(dst) / 4 {
		binary.NativeEndian.PutUint32(dst[4*i:], uint32(binary.NativeEndian.Uint16(src[2*i:]))<<16)
	}
}
