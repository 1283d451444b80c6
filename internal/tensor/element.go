package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// PutInt writes a number as an element of a type.
func PutInt(to []byte, dtype DType, n int64) {
	switch dtype {
	case FP16, FP32, FP64, BF16:
		copy(to, FloatElement(float64(n), dtype))
	default:
		var buffer [8]byte
		binary.LittleEndian.PutUint64(buffer[:], uint64(n))
		copy(to[:dtype.Size()], buffer[:])
	}
}

// ParseElement is the bytes of one element from a word: a number, nan, inf, true,
// false or zeros.
func ParseElement(word string, dtype DType) ([]byte, error) {
	switch word {
	case "", "zero", "zeros", "empty", "false":
		word = "0"
	case "one", "ones", "true":
		word = "1"
	}
	bad := func() error { return fmt.Errorf("%q is no value of type %v", word, dtype) }
	size := dtype.Size()
	switch dtype {
	case FP32, FP64, FP16, BF16:
		f, err := strconv.ParseFloat(word, 64)
		if err != nil || !inRange(f, dtype) {
			return nil, bad()
		}
		return FloatElement(f, dtype), nil
	case Bool, Uint8, Uint16, Uint32, Uint64:
		bits := 8 * size
		if dtype == Bool {
			bits = 1
		}
		u, err := strconv.ParseUint(word, 0, bits)
		if err != nil {
			return nil, bad()
		}
		return binary.NativeEndian.AppendUint64(nil, u)[:size], nil
	case Int8, Int16, Int32, Int64:
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
func inRange(f float64, dtype DType) bool {
	if math.IsInf(f, 0) || dtype == FP64 {
		return true
	}
	f32 := float32(f)
	_, clamped := Half(f32)
	switch {
	case math.IsInf(float64(f32), 0):
		return false
	case dtype == BF16:
		return BFloat16(f32)&0x7fff != 0x7f80 // infinity, of either sign
	default:
		return dtype != FP16 || !clamped
	}
}

// FloatElement is the bytes of a number; 16-bit types are rounded to nearest even.
func FloatElement(f float64, dtype DType) []byte {
	switch dtype {
	case FP64:
		return binary.NativeEndian.AppendUint64(nil, math.Float64bits(f))
	case FP32:
		return binary.NativeEndian.AppendUint32(nil, math.Float32bits(float32(f)))
	case BF16:
		return binary.NativeEndian.AppendUint16(nil, BFloat16(float32(f)))
	default:
		h, _ := Half(float32(f))
		return binary.NativeEndian.AppendUint16(nil, h)
	}
}
