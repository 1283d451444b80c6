package ortrunner

// #include "shim.h"
import "C"

import (
	"fmt"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// group is one of the lists of tensors that a session has.
type group struct {
	id   C.ortx_group
	word string // for messages
}

var (
	inputGroup       = group{C.ORTX_INPUTS, "input"}
	outputGroup      = group{C.ORTX_OUTPUTS, "output"}
	initializerGroup = group{C.ORTX_INITIALIZERS, "input"} // those that a run may override
)

// readSignature returns the tensors of a session. It fails with Unsupported for a
// tensor that Triton has no type for.
func readSignature(s *C.OrtSession) (*onnx.Signature, error) {
	plain, err := readGroup(s, inputGroup)
	if err != nil {
		return nil, err
	}
	defaulted, err := readGroup(s, initializerGroup)
	if err != nil {
		return nil, err
	}
	for i := range defaulted {
		defaulted[i].Optional = true
	}
	results, err := readGroup(s, outputGroup)
	if err != nil {
		return nil, err
	}
	description, err := readDescription(s)
	if err != nil {
		return nil, fmt.Errorf("graph description: %w", err)
	}
	return &onnx.Signature{
		Inputs:      append(plain, defaulted...),
		Outputs:     results,
		Description: description,
	}, nil
}

func readGroup(s *C.OrtSession, g group) ([]onnx.TensorInfo, error) {
	var count C.size_t
	if err := statusError(C.ortx_count(s, g.id, &count)); err != nil {
		return nil, fmt.Errorf("number of %ss: %w", g.word, err)
	}
	infos := make([]onnx.TensorInfo, count)
	for i := range infos {
		var d C.ortx_description
		if err := statusError(C.ortx_describe(s, g.id, C.size_t(i), &d)); err != nil {
			return nil, fmt.Errorf("%s %d: %w", g.word, i, err)
		}
		info, err := tensorInfo(&d)
		name := C.GoString(d.name)
		C.ortx_release_description(&d)
		if err != nil {
			return nil, status.Errorf(status.Unsupported, "%s %q: %w", g.word, name, err)
		}
		infos[i] = info
	}
	return infos, nil
}

// tensorInfo copies ONNX Runtime's description of a tensor. Dims is nil, not empty,
// when not even the rank is known.
func tensorInfo(d *C.ortx_description) (onnx.TensorInfo, error) {
	if d.onnx_type != onnxTensor {
		return onnx.TensorInfo{}, fmt.Errorf("it is %s: only tensors can be served: export the model with tensors only (a classifier that skl2onnx converts, with the option zipmap=False)", onnxTypeName(d.onnx_type))
	}
	dtype, err := dtypeOf(elementType(d.element_type))
	if err != nil {
		return onnx.TensorInfo{}, err
	}
	info := onnx.TensorInfo{Name: C.GoString(d.name), DType: dtype}
	if !d.has_shape {
		return info, nil
	}
	info.Dims = make(tensor.Shape, d.rank)
	info.Symbols = make([]string, d.rank)
	for axis := range info.Dims {
		info.Dims[axis] = max(int64(d.dims[axis]), tensor.Dynamic)
		info.Symbols[axis] = C.GoString(d.symbols[axis])
	}
	return info, nil
}

func readDescription(s *C.OrtSession) (string, error) {
	var text *C.char
	if err := statusError(C.ortx_graph_description(s, &text)); err != nil {
		return "", err
	}
	defer C.ortx_free_string(text)
	return C.GoString(text), nil
}
