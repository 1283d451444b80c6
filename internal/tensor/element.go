package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// PutInt writes n to the beginning of to as one element of a type. Integers are
// truncated to the size of the type; to must have room for an element.
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

// ParseElement returns the bytes of the element that a word of a configuration stands
// for: a number, nan or inf; true, one or ones; false, zero, zeros, empty or no word at
// all. It fails if the type has no such value.
func ParseElement(word string, dtype DType) ([]byte, error) {
	switch word {
	case "", "zero", "zeros", "empty", "false":
		word = "0"
	case "one", "ones", "true":
		word = "1"
	}
	bad := func() error { return fmt.Errorf("%q is not a value of type %v", word, dtype) }
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

// inRange reports whether a type can represent f, up to rounding. A finite f must stay
// finite and unclamped: in FP16, -1e9 would become -65504; in FP32, 1e39 would become
// infinite.
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
		return bfloat16(f32)&0x7fff != 0x7f80 // infinity, of either sign
	default:
		return dtype != FP16 || !clamped
	}
}

// FloatElement returns the bytes of f as an element of a floating-point type, rounded
// to nearest, ties to even.
func FloatElement(f float64, dtype DType) []byte { return AppendFloat(nil, f, dtype) }

// AppendFloat appends FloatElement to data.
func AppendFloat(data []byte, f float64, dtype DType) []byte {
	switch dtype {
	case FP64:
		return binary.NativeEndian.AppendUint64(data, math.Float64bits(f))
	case FP32:
		return binary.NativeEndian.AppendUint32(data, math.Float32bits(float32(f)))
	case BF16:
		return binary.NativeEndian.AppendUint16(data, bfloat16(float32(f)))
	default:
		h, _ := Half(float32(f))
		return binary.NativeEndian.AppendUint16(data, h)
	}
}

// Float returns the first element of data, which is of a floating-point type.
func Float(data []byte, dtype DType) float64 {
	switch dtype {
	case FP64:
		return math.Float64frombits(binary.NativeEndian.Uint64(data))
	case FP32:
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(data)))
	case BF16:
		return float64(math.Float32frombits(uint32(binary.NativeEndian.Uint16(data)) << 16))
	default:
		return float64(Widen(binary.NativeEndian.Uint16(data)))
	}
}
