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
