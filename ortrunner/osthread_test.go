package ortrunner

import (
	"encoding/binary"
	"math"
	"syscall"
)

func threadID() int { return syscall.Gettid() }

func appendFloat(b []byte, f float32) []byte {
	return binary.NativeEndian.AppendUint32(b, math.Float32bits(f))
}
