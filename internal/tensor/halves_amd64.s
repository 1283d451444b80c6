#include "textflag.h"

// Bit patterns of FP32: all bits but the sign; the largest value that does not round
// to infinity in FP16; infinity; the largest FP16; a quiet NaN without a payload.
DATA magnitude<>+0(SB)/4, $0x7fffffff
DATA limit<>+0(SB)/4, $0x477fefff
DATA infinity<>+0(SB)/4, $0x7f800000
DATA largest<>+0(SB)/4, $0x477fe000
DATA quiet<>+0(SB)/4, $0x7fc00000
GLOBL magnitude<>(SB), RODATA|NOPTR, $4
GLOBL limit<>(SB), RODATA|NOPTR, $4
GLOBL infinity<>(SB), RODATA|NOPTR, $4
GLOBL largest<>(SB), RODATA|NOPTR, $4
GLOBL quiet<>(SB), RODATA|NOPTR, $4

// func widenF16C(dst, src *byte, blocks int)
TEXT ·widenF16C(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ blocks+16(FP), CX

widen:
	VCVTPH2PS (SI), Y0
	VCVTPH2PS 16(SI), Y1
	VMOVUPS   Y0, (DI)
	VMOVUPS   Y1, 32(DI)
	ADDQ      $32, SI
	ADDQ      $64, DI
	DECQ      CX
	JNZ       widen
	VZEROUPPER
	RET

// HALF converts the 8 elements at an offset. Magnitudes are compared as integers,
// which have the same order. VCVTPS2PH with 0 rounds to the nearest, ties to even,
// in any rounding mode of the thread. It keeps payloads of NaN, unlike Half. Each of
// the 8 integers of Y15 is decremented for each clamped element.
#define HALF(from, to) \
	VMOVUPS   from(SI), Y0     \
	VPAND     Y0, Y10, Y1      \ // magnitude
	VPANDN    Y0, Y10, Y2      \ // sign
	VPCMPGTD  Y11, Y1, Y3      \ // too large, infinite or NaN
	VPCMPGTD  Y1, Y12, Y4      \ // finite
	VPCMPGTD  Y12, Y1, Y5      \ // NaN
	VPAND     Y4, Y3, Y3       \
	VPADDD    Y3, Y15, Y15     \
	VPOR      Y2, Y13, Y6      \
	VBLENDVPS Y3, Y6, Y0, Y0   \
	VPOR      Y2, Y14, Y6      \
	VBLENDVPS Y5, Y6, Y0, Y0   \
	VCVTPS2PH $0, Y0, to(DI)

// func halfF16C(dst, src *byte, blocks int) (clamped uint64)
TEXT ·halfF16C(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         blocks+16(FP), CX
	XORQ         AX, AX
	VPBROADCASTD magnitude<>(SB), Y10
	VPBROADCASTD limit<>(SB), Y11
	VPBROADCASTD infinity<>(SB), Y12
	VPBROADCASTD largest<>(SB), Y13
	VPBROADCASTD quiet<>(SB), Y14

half:
	VPXOR        Y15, Y15, Y15
	HALF(0, 0)
	HALF(32, 16)
	VPTEST       Y15, Y15
	JZ           next
	VPABSD       Y15, Y15
	VEXTRACTI128 $1, Y15, X0
	VPADDD       X0, X15, X0
	VPHADDD      X0, X0, X0
	VPHADDD      X0, X0, X0
	VMOVD        X0, DX
	ADDQ         DX, AX

next:
	ADDQ $64, SI
	ADDQ $32, DI
	DECQ CX
	JNZ  half
	VZEROUPPER
	MOVQ AX, clamped+24(FP)
	RET
