package ortrunner

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"strings"

	"tritonstateful/backend"
)

// codes translates OrtErrorCode (onnxruntime_error_code.h). What is not listed
// is a fault of ours or of ONNX Runtime: Internal.
var codes = map[C.uint]backend.Code{
	2:  backend.InvalidArg,  // ORT_INVALID_ARGUMENT
	3:  backend.NotFound,    // ORT_NO_SUCHFILE
	7:  backend.InvalidArg,  // ORT_INVALID_PROTOBUF
	9:  backend.Unsupported, // ORT_NOT_IMPLEMENTED
	10: backend.InvalidArg,  // ORT_INVALID_GRAPH
	14: backend.NotFound,    // ORT_NOT_FOUND
}

// statusError turns an OrtStatus into an error with ONNX Runtime's own text, and
// frees it. NULL is nil.
func statusError(status *C.OrtStatus) error {
	if status == nil {
		return nil
	}
	code, known := codes[C.ortx_error_code(status)]
	if !known {
		code = backend.Internal
	}
	text := strings.TrimSpace(C.GoString(C.ortx_error_message(status)))
	C.ortx_release_status(status)
	return backend.Errorf(code, "%s", text)
}
