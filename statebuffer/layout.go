package statebuffer

import (
	"math"
	"math/bits"

	"tritonstateful/internal/tensor"
)

// Layout says how one lane of a tensor lies in memory. With the batch on axis
// b of a tensor, a lane is Pieces (the product of the extents before b) pieces of
// PieceBytes (the bytes after b) each; of a batched tensor with n lanes, piece x of
// lane j starts at (x*n + j)*PieceBytes. A slot of a store is the same pieces,
// one after the other. Pieces is 1 when the batch is outermost.
type Layout struct {
	Pieces     int64
	PieceBytes int64
}

// LayoutOf is the layout of a tensor with these extents, whose batch is at axis;
// the extent there does not count. A negative axis is a tensor without a batch. It
// fails when the extents are not fixed, or are too large for 63 bits.
func LayoutOf(dims tensor.Shape, axis int, dtype tensor.DType) (Layout, error) {
	if axis < 0 {
		bytes, err := dims.Bytes(dtype)
		return Layout{Pieces: 1, PieceBytes: bytes}, err
	}
	whole, err := dims.With(axis, 1).Bytes(dtype)
	if err != nil {
		return Layout{}, err
	}
	if whole == 0 { // there may be very many pieces of nothing
		return Layout{Pieces: 1}, nil
	}
	pieces, err := dims[:axis].Elements()
	return Layout{Pieces: pieces, PieceBytes: whole / max(pieces, 1)}, err
}

// LaneBytes is the size of one lane.
func (l Layout) LaneBytes() int64 { return l.Pieces * l.PieceBytes }

// Offset is where a piece of a lane begins in a batched tensor of that many lanes.
func (l Layout) Offset(piece int64, lanes, lane int) int64 {
	return (piece*int64(lanes) + int64(lane)) * l.PieceBytes
}

// PutLane copies a value, LaneBytes long, to a lane of a batched tensor.
func (l Layout) PutLane(tensor []byte, lanes, lane int, value []byte) {
	l.copyLane(tensor, lanes, lane, value, 1, 0)
}

// TakeLane copies a lane of a batched tensor to a value, LaneBytes long.
func (l Layout) TakeLane(value, tensor []byte, lanes, lane int) {
	l.copyLane(value, 1, 0, tensor, lanes, lane)
}

// takePart copies a part of a lane of a batched tensor, from an offset in the lane on.
func (l Layout) takePart(to []byte, offset int64, tensor []byte, lanes, lane int) {
	for len(to) > 0 {
		piece, begin := offset/l.PieceBytes, offset%l.PieceBytes
		n := copy(to, tensor[l.Offset(piece, lanes, lane)+begin:][:l.PieceBytes-begin])
		to, offset = to[n:], offset+int64(n)
	}
}

// copyLane copies a lane of a batched tensor to a lane of another.
func (l Layout) copyLane(to []byte, toLanes, toLane int, from []byte, fromLanes, fromLane int) {
	if l.Pieces == 1 { // the usual case, for small values 10 % faster
		copy(to[int64(toLane)*l.PieceBytes:][:l.PieceBytes], from[int64(fromLane)*l.PieceBytes:])
		return
	}
	l.copyPieces(to[l.Offset(0, toLanes, toLane):], int64(toLanes)*l.PieceBytes,
		from[l.Offset(0, fromLanes, fromLane):], int64(fromLanes)*l.PieceBytes)
}

// copyPieces copies pieces that are a stride apart, on each side.
func (l Layout) copyPieces(to []byte, toStride int64, from []byte, fromStride int64) {
	for piece := range l.Pieces {
		copy(to[piece*toStride:][:l.PieceBytes], from[piece*fromStride:])
	}
}

// clearLane overwrites a lane of a batched tensor with zeros.
func (l Layout) clearLane(tensor []byte, lanes, lane int) {
	for piece := range l.Pieces {
		clear(tensor[l.Offset(piece, lanes, lane):][:l.PieceBytes])
	}
}

// BatchBytes is the size of that many lanes.
func (l Layout) BatchBytes(lanes int) int64 { return satMul(lanes, l.LaneBytes()) }

// satMul is n pieces of that many bytes. A product that 63 bits cannot count is the
// greatest number, of which no Memory has as many bytes.
func satMul(n int, bytes int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(bytes))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// SatAdd adds sizes. A sum that 63 bits cannot count is the greatest number.
func SatAdd(sizes ...int64) (sum int64) {
	for _, size := range sizes {
		if sum += size; sum < 0 {
			return math.MaxInt64
		}
	}
	return sum
}
