package faketriton

// #include <stdlib.h>
// #include "server.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Parameter is a parameter of a call: a string, an int64, a bool, a float64, or bytes.
type Parameter struct {
	Name  string
	Value any
}

// fill copies the parameter to C. The union is a field of bytes in Go.
func (p Parameter) fill(c *C.fake_parameter) {
	c.name, c.text = C.CString(p.Name), nil
	text, value := "", unsafe.Pointer(&c.anon0)
	switch v := p.Value.(type) {
	case string:
		c._type, text = C.TRITONSERVER_PARAMETER_STRING, v
	case int64:
		c._type = C.TRITONSERVER_PARAMETER_INT
		*(*int64)(value) = v
	case bool:
		c._type = C.TRITONSERVER_PARAMETER_BOOL
		*(*bool)(value) = v
	case float64:
		c._type = C.TRITONSERVER_PARAMETER_DOUBLE
		*(*float64)(value) = v
	case []byte:
		c._type = C.TRITONSERVER_PARAMETER_BYTES
	default:
		panic(fmt.Sprintf("faketriton: a parameter of type %T", v))
	}
	c.text = C.CString(text)
}

// AnswerParameters are the parameters of the answer to the request: int64 and bool.
func (r *Request) AnswerParameters() map[string]any {
	all := map[string]any{}
	set := &r.c.answer_parameters
	for _, p := range set.list[:set.count] {
		name := C.GoString(&p.name[0])
		if all[name] = int64(p.value); p._type == C.TRITONSERVER_PARAMETER_BOOL {
			all[name] = p.value != 0
		}
	}
	return all
}
