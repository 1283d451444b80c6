//go:build !amd64 && !arm64

package tensor

// widenBlocks and halfBlocks convert nothing: the loops of Widens and Halves do.
func widenBlocks(dst, src []byte) (done int) { return 0 }

func halfBlocks(dst, src []byte) (done int, clamped uint64) { return 0, 0 }
