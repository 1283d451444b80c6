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

	"tritonstateful/internal/status"
)

// codes translates OrtErrorCode (onnxruntime_error_code.h). Other codes are faults of
// this package or of ONNX Runtime: Internal.
var codes = map[C.uint]status.Code{
	2:  status.InvalidArg,  // ORT_INVALID_ARGUMENT
	3:  status.NotFound,    // ORT_NO_SUCHFILE
	7:  status.InvalidArg,  // ORT_INVALID_PROTOBUF
	9:  status.Unsupported, // ORT_NOT_IMPLEMENTED
	10: status.InvalidArg,  // ORT_INVALID_GRAPH
	14: status.NotFound,    // ORT_NOT_FOUND
}

// statusError turns an OrtStatus into an error with ONNX Runtime's message, and frees
// it. It turns NULL into nil.
func statusError(failed *C.OrtStatus) error {
	if failed == nil {
		return nil
	}
	code, known := codes[C.ortx_error_code(failed)]
	if !known {
		code = status.Internal
	}
	text := strings.TrimSpace(C.GoString(C.ortx_error_message(failed)))
	C.ortx_release_status(failed)
	return status.Errorf(code, "%s", text)
}
