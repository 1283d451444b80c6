package ortrunner

// #include "shim.h"
import "C"

import (
	"fmt"

	"tritonstateful/internal/tensor"
)

// onnxTensor is ONNX_TYPE_TENSOR.
const onnxTensor = 1

// onnxTypeName is what an ONNXType other than a tensor is called in a message.
func onnxTypeName(t C.ortx_enum) string {
	names := [...]string{"of unknown kind", "a tensor", "a sequence", "a map", "opaque", "a sparse tensor", "an optional"}
	if int(t) >= len(names) {
		return fmt.Sprintf("of ONNX type %d", t)
	}
	return names[t]
}

// elementType is ONNXTensorElementDataType; its numbers are those of
// TensorProto.DataType in the ONNX format.
type elementType uint32

// elementTypes is indexed by elementType: the name in the ONNX format, and
// Triton's type where it has one.
var elementTypes = [...]struct {
	name  string
	dtype tensor.DType
}{
	0:  {"UNDEFINED", tensor.Invalid},
	1:  {"FLOAT", tensor.FP32},
	2:  {"UINT8", tensor.Uint8},
	3:  {"INT8", tensor.Int8},
	4:  {"UINT16", tensor.Uint16},
	5:  {"INT16", tensor.Int16},
	6:  {"INT32", tensor.Int32},
	7:  {"INT64", tensor.Int64},
	8:  {"STRING", tensor.Bytes},
	9:  {"BOOL", tensor.Bool},
	10: {"FLOAT16", tensor.FP16},
	11: {"DOUBLE", tensor.FP64},
	12: {"UINT32", tensor.Uint32},
	13: {"UINT64", tensor.Uint64},
	14: {"COMPLEX64", tensor.Invalid},
	15: {"COMPLEX128", tensor.Invalid},
	16: {"BFLOAT16", tensor.BF16},
	17: {"FLOAT8E4M3FN", tensor.Invalid},
	18: {"FLOAT8E4M3FNUZ", tensor.Invalid},
	19: {"FLOAT8E5M2", tensor.Invalid},
	20: {"FLOAT8E5M2FNUZ", tensor.Invalid},
}

func (t elementType) String() string {
	if int(t) >= len(elementTypes) {
		return fmt.Sprintf("element type %d", uint32(t))
	}
	return elementTypes[t].name
}

// dtypeOf is Triton's type for an element type of ONNX.
func dtypeOf(t elementType) (tensor.DType, error) {
	if int(t) < len(elementTypes) && elementTypes[t].dtype != tensor.Invalid {
		return elementTypes[t].dtype, nil
	}
	return tensor.Invalid, fmt.Errorf("elements of type %v cannot be served: Triton has no such type", t)
}

// elementTypeOf is the reverse of dtypeOf.
func elementTypeOf(d tensor.DType) elementType {
	for t := range elementTypes {
		if elementTypes[t].dtype == d {
			return elementType(t)
		}
	}
	return 0
}
