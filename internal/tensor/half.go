package tensor

import "math"

// Half rounds f to the nearest FP16, ties to even. A finite value out of range is
// clamped to the largest finite value of its sign. Infinities stay infinities, and
// NaN stays NaN.
func Half(f float32) (h uint16, clamped bool) {
	bits := math.Float32bits(f)
	sign := uint16(bits>>16) & 0x8000
	exp := int(bits>>23) & 0xff
	frac := bits & 0x7fffff
	switch {
	case exp == 0xff && frac != 0:
		return sign | 0x7e00, false
	case exp == 0xff:
		return sign | 0x7c00, false
	case exp >= 127-14: // normal in FP16
		h := uint32(exp-127+15)<<10 | frac>>13
		h += roundUp(frac, 13, h)
		if h >= 0x7c00 {
			return sign | 0x7bff, true
		}
		return sign | uint16(h), false
	case exp >= 127-25: // subnormal in FP16, or rounds up to the smallest one
		shift := uint(127 - 14 - exp + 13)
		frac |= 0x800000
		h := frac >> shift
		return sign | uint16(h+roundUp(frac, shift, h)), false
	default:
		return sign, false
	}
}

// roundUp returns 1 if h must be rounded up when the low shift bits of frac are
// dropped, and else 0.
func roundUp(frac uint32, shift uint, h uint32) uint32 {
	low := frac & (1<<shift - 1)
	half := uint32(1) << (shift - 1)
	if low > half || low == half && h&1 == 1 {
		return 1
	}
	return 0
}

// Widen converts an FP16 to FP32, exactly. A NaN becomes a quiet NaN.
func Widen(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h) & 0x3ff
	switch {
	case exp == 0x1f && frac != 0:
		return math.Float32frombits(sign | 0x7fc00000 | frac<<13)
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000)
	case exp != 0:
		return math.Float32frombits(sign | (exp-15+127)<<23 | frac<<13)
	default: // zero or subnormal: frac * 2^-24
		f := float32(frac) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(f))
	}
}

// bfloat16 rounds f to the nearest BF16, ties to even.
func bfloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	if f != f {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
