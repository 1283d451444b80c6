package ortrunner

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"unsafe"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// sessionTensor is one input or output of a session: its type, and the values that
// were built for the tensors it was given.
type sessionTensor struct {
	info    onnx.TensorInfo
	element elementType
	name    *C.char          // owned
	where   *C.OrtMemoryInfo // nil: the host's memory
	values  valueCache
	strings stringValue  // of an input of type Bytes
	shape   tensor.Shape // of an output that ONNX Runtime allocated
}

func newSessionTensors(infos []onnx.TensorInfo) []sessionTensor {
	tensors := make([]sessionTensor, len(infos))
	for i, info := range infos {
		tensors[i] = sessionTensor{info: info, element: elementTypeOf(info.DType), name: C.CString(info.Name)}
	}
	return tensors
}

// input is the value of a tensor given as this input.
func (p *sessionTensor) input(t *onnx.Tensor) (*C.OrtValue, error) {
	if p.info.DType == tensor.Bytes && t.DType == tensor.Bytes {
		return p.strings.fill(t)
	}
	return p.value(t)
}

// output is the value of a tensor given as this output, or nil when ONNX Runtime
// is to allocate it.
func (p *sessionTensor) output(t *onnx.Tensor) (*C.OrtValue, error) {
	if t.Data.Size == 0 {
		return nil, nil
	}
	if p.info.DType == tensor.Bytes {
		return nil, status.Errorf(status.InvalidArg, "strings have no fixed size: want no block, so that ONNX Runtime allocates it")
	}
	return p.value(t)
}

func (p *sessionTensor) value(t *onnx.Tensor) (*C.OrtValue, error) {
	if t.DType != p.info.DType {
		return nil, status.Errorf(status.InvalidArg, "it is %v: the model has %v", t.DType, p.info.DType)
	}
	if v := p.values.find(t.Data, t.Shape); v != nil {
		return v, nil
	}
	if err := checkSize(t); err != nil {
		return nil, err
	}
	return p.values.add(p.where, t.Data, t.Shape, p.element)
}

// checkSize makes sure that a tensor's block is as long as its shape says: ONNX
// Runtime will read and write as much as the shape says.
func checkSize(t *onnx.Tensor) error {
	want, err := t.Shape.Bytes(t.DType)
	if err != nil {
		return status.Errorf(status.InvalidArg, "%w", err)
	}
	if want != t.Data.Size {
		return status.Errorf(status.InvalidArg,
			"shape %v of %v takes %d bytes, its data has %d", t.Shape, t.DType, want, t.Data.Size)
	}
	return nil
}

func (p *sessionTensor) fail(word string, err error) error {
	return fmt.Errorf("%s %q: %w", word, p.info.Name, err)
}

func (p *sessionTensor) close() {
	p.values.close()
	p.strings.close()
	C.free(unsafe.Pointer(p.name))
}
