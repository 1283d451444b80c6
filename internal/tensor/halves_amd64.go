package tensor

import "golang.org/x/sys/cpu"

// hasF16C reports whether one instruction converts 8 elements, as on every
// processor with AVX2.
var hasF16C = cpu.X86.HasAVX2

// blockElements is how many elements one iteration of the assembly converts.
const blockElements = 16

// widenBlocks is Widens for the leading elements that make whole blocks. It returns
// their number.
func widenBlocks(dst, src []byte) (done int) {
	blocks := len(dst) / 4 / blockElements
	if !hasF16C || blocks == 0 {
		return 0
	}
	done = blocks * blockElements
	widenF16C(&dst[:4*done][0], &src[:2*done][0], blocks)
	return done
}

// halfBlocks is Halves for the leading elements that make whole blocks. It returns
// their number.
func halfBlocks(dst, src []byte) (done int, clamped uint64) {
	blocks := len(dst) / 2 / blockElements
	if !hasF16C || blocks == 0 {
		return 0, 0
	}
	done = blocks * blockElements
	return done, halfF16C(&dst[:2*done][0], &src[:4*done][0], blocks)
}

//go:noescape
func widenF16C(dst, src *byte, blocks int)

//go:noescape
func halfF16C(dst, src *byte, blocks int) (clamped uint64)
