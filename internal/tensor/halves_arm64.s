#include "textflag.h"

// Every processor of this architecture has these instructions. Go's assembler does not
// know some of them, which are written as words.

// func widenNEON(dst, src *byte, blocks int)
TEXT ·widenNEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD blocks+16(FP), R2

widen:
	VLD1.P 32(R1), [V0.H8, V1.H8]
	WORD   $0x0e217802 // FCVTL  V2.4S, V0.4H
	WORD   $0x4e217803 // FCVTL2 V3.4S, V0.8H
	WORD   $0x0e217824 // FCVTL  V4.4S, V1.4H
	WORD   $0x4e217825 // FCVTL2 V5.4S, V1.8H
	VST1.P [V2.S4, V3.S4, V4.S4, V5.S4], 64(R0)
	SUBS   $1, R2
	BNE    widen
	RET

// CLAMP loads 4 elements to V0 and makes those that FP16 cannot hold what Half makes of
// them. Magnitudes are compared as integers, which have the same order. FCVTN, which
// follows, rounds to the nearest, ties to even, as Go always has it. It keeps payloads of
// NaN, unlike Half. Each of the 4 integers of V15 counts its clamped elements.
#define CLAMP \
	VLD1.P 16(R1), [V0.S4]           \
	VAND   V10.B16, V0.B16, V1.B16   \ // magnitude
	VAND   V9.B16, V0.B16, V2.B16    \ // sign
	WORD   $0x4eab3423               \ // CMGT V3.4S, V1.4S, V11.4S: too large, infinite or NaN
	WORD   $0x4ea13584               \ // CMGT V4.4S, V12.4S, V1.4S: finite
	WORD   $0x4eac3425               \ // CMGT V5.4S, V1.4S, V12.4S: NaN
	VAND   V4.B16, V3.B16, V3.B16    \
	VSUB   V3.S4, V15.S4, V15.S4     \
	VORR   V2.B16, V13.B16, V6.B16   \
	VBIT   V3.B16, V6.B16, V0.B16    \
	VORR   V2.B16, V14.B16, V6.B16   \
	VBIT   V5.B16, V6.B16, V0.B16

// func halfNEON(dst, src *byte, blocks int) (clamped uint64)
TEXT ·halfNEON(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD blocks+16(FP), R2

	// Bit patterns of FP32: the sign; all other bits; the largest value that does not
	// round to infinity in FP16; infinity; the largest FP16; a quiet NaN without a payload.
	MOVD $0x80000000, R3
	VDUP R3, V9.S4
	MOVD $0x7fffffff, R3
	VDUP R3, V10.S4
	MOVD $0x477fefff, R3
	VDUP R3, V11.S4
	MOVD $0x7f800000, R3
	VDUP R3, V12.S4
	MOVD $0x477fe000, R3
	VDUP R3, V13.S4
	MOVD $0x7fc00000, R3
	VDUP R3, V14.S4
	VEOR V15.B16, V15.B16, V15.B16

half:
	CLAMP
	WORD   $0x0e216807 // FCVTN  V7.4H, V0.4S
	CLAMP
	WORD   $0x4e216807 // FCVTN2 V7.8H, V0.4S
	CLAMP
	WORD   $0x0e216808 // FCVTN  V8.4H, V0.4S
	CLAMP
	WORD   $0x4e216808 // FCVTN2 V8.8H, V0.4S
	VST1.P [V7.H8, V8.H8], 32(R0)
	SUBS   $1, R2
	BNE    half

	VUADDLV V15.S4, V16
	VMOV    V16.D[0], R3
	MOVD    R3, clamped+24(FP)
	RET
