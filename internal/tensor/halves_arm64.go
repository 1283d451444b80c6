package tensor

// blockElements is how many elements one iteration of the assembly converts.
const blockElements = 16

// widenBlocks is Widens for the leading elements that make whole blocks. It returns
// their number.
func widenBlocks(dst, src []byte) (done int) {
	blocks := len(dst) / 4 / blockElements
	if blocks == 0 {
		return 0
	}
	done = blocks * blockElements
	widenNEON(&dst[:4*done][0], &src[:2*done][0], blocks)
	return done
}

// halfBlocks is Halves for the leading elements that make whole blocks. It returns
// their number.
func halfBlocks(dst, src []byte) (done int, clamped uint64) {
	blocks := len(dst) / 2 / blockElements
	if blocks == 0 {
		return 0, 0
	}
	done = blocks * blockElements
	return done, halfNEON(&dst[:2*done][0], &src[:4*done][0], blocks)
}

//go:noescape
func widenNEON(dst, src *byte, blocks int)

//go:noescape
func halfNEON(dst, src *byte, blocks int) (clamped uint64)
