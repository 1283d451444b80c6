package ortrunner

// #include "shim.h"
import "C"

import (
	"encoding/binary"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// stringValue is the value of an input of type Bytes. ONNX Runtime keeps strings
// as objects of its own, so they are copied in for every run; a new value is made
// only when the shape changes. Its zero value is ready.
type stringValue struct {
	c     *C.OrtValue
	shape tensor.Shape
}

// fill copies the strings of a tensor, which are in Triton's form.
func (s *stringValue) fill(t *onnx.Tensor) (*C.OrtValue, error) {
	count, err := t.Shape.Elements()
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "%w", err)
	}
	if err := checkStrings(t.Data.Bytes, count); err != nil {
		return nil, err
	}
	if s.c == nil || !s.shape.Equal(t.Shape) {
		if err := statusError(C.ortx_new_strings(dimsOf(t.Shape), C.size_t(len(t.Shape)), &s.c)); err != nil {
			return nil, err
		}
		s.shape = append(s.shape[:0], t.Shape...)
	}
	return s.c, statusError(C.ortx_fill_strings(s.c, C.uintptr_t(t.Data.Addr), C.size_t(count)))
}

// checkStrings makes sure that data is count elements, each preceded by its
// length as uint32, and nothing else. The bytes come from clients.
func checkStrings(data []byte, count int64) error {
	const prefix = 4
	rest := data
	for i := range count {
		if len(rest) < prefix {
			return status.Errorf(status.InvalidArg, "%d bytes end before string %d of %d", len(data), i, count)
		}
		length := int64(binary.NativeEndian.Uint32(rest))
		if rest = rest[prefix:]; length > int64(len(rest)) {
			return status.Errorf(status.InvalidArg,
				"string %d of %d has %d bytes, but only %d are left", i, count, length, len(rest))
		}
		rest = rest[length:]
	}
	if len(rest) != 0 {
		return status.Errorf(status.InvalidArg, "%d bytes are left after the last of %d strings", len(rest), count)
	}
	return nil
}

func (s *stringValue) close() {
	C.ortx_release_value(s.c)
	*s = stringValue{}
}
