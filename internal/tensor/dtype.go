package tensor

import "fmt"

// DType is the type of a tensor's elements. The values equal
// TRITONSERVER_DataType (tritonserver.h).
type DType uint8

// The element types of Triton.
const (
	Invalid DType = iota
	Bool
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	FP16
	FP32
	FP64
	Bytes // strings of any length; in Triton's memory a uint32 with its length precedes each
	BF16
)

// dtypes has the protocol's name and the element size in bytes of each DType.
var dtypes = [...]struct {
	name string
	size int
}{
	Invalid: {"INVALID", 0},
	Bool:    {"BOOL", 1},
	Uint8:   {"UINT8", 1},
	Uint16:  {"UINT16", 2},
	Uint32:  {"UINT32", 4},
	Uint64:  {"UINT64", 8},
	Int8:    {"INT8", 1},
	Int16:   {"INT16", 2},
	Int32:   {"INT32", 4},
	Int64:   {"INT64", 8},
	FP16:    {"FP16", 2},
	FP32:    {"FP32", 4},
	FP64:    {"FP64", 8},
	Bytes:   {"BYTES", 0},
	BF16:    {"BF16", 2},
}

// Size returns the number of bytes of one element. It is 0 for Bytes, whose
// elements differ in size, and for Invalid.
func (d DType) Size() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].size
}

// String returns the protocol's name, such as "FP32".
func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// ParseDType returns the type with a name of the model configuration ("TYPE_FP32";
// "TYPE_STRING" for Bytes) or of the protocol ("FP32").
func ParseDType(name string) (DType, error) {
	const prefix = "TYPE_"
	bare := name
	if len(name) > len(prefix) && name[:len(prefix)] == prefix {
		bare = name[len(prefix):]
	}
	if bare == "STRING" {
		return Bytes, nil
	}
	for d := Bool; int(d) < len(dtypes); d++ {
		if dtypes[d].name == bare {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("data type %q is unknown: want one such as TYPE_FP32", name)
}

// ConfigName returns the name in a model configuration, such as "TYPE_FP32".
func (d DType) ConfigName() string {
	if d == Bytes {
		return "TYPE_STRING"
	}
	return "TYPE_" + d.String()
}
