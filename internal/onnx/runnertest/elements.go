package runnertest

import (
	"encoding/binary"
	"math"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// Element reads a number of any type.
func Element(from []byte, dtype tensor.DType, at int64) float64 {
	from = from[at*int64(dtype.Size()):]
	switch dtype {
	case tensor.FP64:
		return math.Float64frombits(binary.NativeEndian.Uint64(from))
	case tensor.FP32:
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(from)))
	case tensor.FP16:
		return float64(tensor.Widen(binary.NativeEndian.Uint16(from)))
	case tensor.Int64:
		return float64(int64(binary.NativeEndian.Uint64(from)))
	case tensor.Int32:
		return float64(int32(binary.NativeEndian.Uint32(from)))
	case tensor.Int8:
		return float64(int8(from[0]))
	case tensor.Bool:
		return float64(from[0])
	}
	panic("the accumulator knows no " + dtype.String())
}

// SetElement writes one; integers wrap around, booleans are true above zero.
func SetElement(to []byte, dtype tensor.DType, at int64, f float64) {
	to = to[at*int64(dtype.Size()):]
	switch dtype {
	case tensor.FP64:
		binary.NativeEndian.PutUint64(to, math.Float64bits(f))
	case tensor.FP32:
		binary.NativeEndian.PutUint32(to, math.Float32bits(float32(f)))
	case tensor.FP16:
		h, _ := tensor.Half(float32(f))
		binary.NativeEndian.PutUint16(to, h)
	case tensor.Int64:
		binary.NativeEndian.PutUint64(to, uint64(int64(f)))
	case tensor.Int32:
		binary.NativeEndian.PutUint32(to, uint32(int64(f)))
	case tensor.Int8:
		to[0] = byte(int64(f))
	case tensor.Bool:
		to[0] = map[bool]byte{true: 1}[f > 0]
	default:
		panic("the accumulator knows no " + dtype.String())
	}
}

// Sum adds up the elements of a tensor.
func Sum(of *onnx.Tensor) (sum float64) {
	for at := range of.Data.Size / int64(of.DType.Size()) {
		sum += Element(of.Data.Bytes, of.DType, at)
	}
	return sum
}

// Fill makes every element of a tensor f.
func Fill(to *onnx.Tensor, f float64) {
	for at := range to.Data.Size / int64(to.DType.Size()) {
		SetElement(to.Data.Bytes, to.DType, at, f)
	}
}
