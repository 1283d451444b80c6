package tensor

import (
	"encoding/binary"
	"math"
)

// Widens fills dst with the FP32 values of the FP16 in src, exactly. src has an
// element for each of dst; both are in the host's byte order and may lie anywhere.
func Widens(dst, src []byte) {
	done := widenBlocks(dst, src)
	for i := done; i < len(dst)/4; i++ {
		h := binary.NativeEndian.Uint16(src[2*i:])
		binary.NativeEndian.PutUint32(dst[4*i:], math.Float32bits(Widen(h)))
	}
}

// Halves fills dst with the FP32 in src, each as [Half] makes it, and counts what
// was clamped. src has an element for each of dst.
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
