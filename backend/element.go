package backend

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"tritonstateful/internal/tensor"
)

// putInt writes a number as an element of a type.
func putInt(to []byte, dtype tensor.DType, n int64) {
	switch dtype {
	case tensor.FP16, tensor.FP32, tensor.FP64, tensor.BF16:
		copy(to, floatElement(float64(n), dtype))
	default:
		var buffer [8]byte
		binary.LittleEndian.PutUint64(buffer[:], uint64(n))
		copy(to[:dtype.Size()], buffer[:])
	}
}

// parseElement is the bytes of one element from a word: a number, nan, inf, true,
// false or zeros.
func parseElement(word string, dtype tensor.DType) ([]byte, error) {
	switch word {
	case "", "zero", "zeros", "empty", "false":
		word = "0"
	case "one", "ones", "true":
		word = "1"
	}
	bad := func() error { return fmt.Errorf("%q is no value of type %v", word, dtype) }
	size := dtype.Size()
	switch dtype {
	case tensor.FP32, tensor.FP64, tensor.FP16, tensor.BF16:
		f, err := strconv.ParseFloat(word, 64)
		if err != nil || !inRange(f, dtype) {
			return nil, bad()
		}
		return floatElement(f, dtype), nil
	case tensor.Bool, tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		bits := 8 * size
		if dtype == tensor.Bool {
			bits = 1
		}
		u, err := strconv.ParseUint(word, 0, bits)
		if err != nil {
			return nil, bad()
		}
		return binary.NativeEndian.AppendUint64(nil, u)[:size], nil
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		i, err := strconv.ParseInt(word, 0, 8*size)
		if err != nil {
			return nil, bad()
		}
		return binary.NativeEndian.AppendUint64(nil, uint64(i))[:size], nil
	}
	return nil, bad()
}

// inRange tells whether a number, unless it is infinite itself, is a finite one of a
// type: -1e9 in FP16 would be -65504, and 1e39 in FP32 infinite.
func inRange(f float64, dtype tensor.DType) bool {
	if math.IsInf(f, 0) || dtype == tensor.FP64 {
		return true
	}
	f32 := float32(f)
	_, clamped := tensor.Half(f32)
	switch {
	case math.IsInf(float64(f32), 0):
		return false
	case dtype == tensor.BF16:
		return tensor.BFloat16(f32)&0x7fff != 0x7f80 // infinity, of either sign
	default:
		return dtype != tensor.FP16 || !clamped
	}
}

// floatElement is the bytes of a number; 16-bit types are rounded to nearest even.
func floatElement(f float64, dtype tensor.DType) []byte {
	switch dtype {
	case tensor.FP64:
		return binary.NativeEndian.AppendUint64(nil, math.Float64bits(f))
	case tensor.FP32:
		return binary.NativeEndian.AppendUint32(nil, math.Float32bits(float32(f)))
	case tensor.BF16:
		return binary.NativeEndian.AppendUint16(nil, tensor.BFloat16(float32(f)))
	default:
		h, _ := tensor.Half(float32(f))
		return binary.NativeEndian.AppendUint16(nil, h)
	}
}
