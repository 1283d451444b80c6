package main

// #include <stdlib.h>
// #include "table.h"
import "C"

import (
	"unsafe"

	"tritonstateful/internal/status"
)

// codes maps our error codes to those of Triton.
var codes = [...]C.TRITONSERVER_Error_Code{
	status.Unknown:       C.TRITONSERVER_ERROR_UNKNOWN,
	status.Internal:      C.TRITONSERVER_ERROR_INTERNAL,
	status.NotFound:      C.TRITONSERVER_ERROR_NOT_FOUND,
	status.InvalidArg:    C.TRITONSERVER_ERROR_INVALID_ARG,
	status.Unavailable:   C.TRITONSERVER_ERROR_UNAVAILABLE,
	status.Unsupported:   C.TRITONSERVER_ERROR_UNSUPPORTED,
	status.AlreadyExists: C.TRITONSERVER_ERROR_ALREADY_EXISTS,
	status.Cancelled:     C.TRITONSERVER_ERROR_CANCELLED,
}

// codeOf maps a code of Triton to ours.
func codeOf(theirs C.TRITONSERVER_Error_Code) status.Code {
	for ours, code := range codes {
		if code == theirs {
			return status.Code(ours)
		}
	}
	return status.Unknown
}

// newError turns err into an error of Triton, nil into nil. Its receiver deletes it.
func newError(err error) *C.TRITONSERVER_Error {
	if err == nil {
		return nil
	}
	text := C.CString(err.Error())
	defer C.free(unsafe.Pointer(text))
	return C.error_new(codes[status.CodeOf(err)], text)
}

// copyError turns an error of Triton into one of ours, nil into nil. It does not
// delete it.
func copyError(theirs *C.TRITONSERVER_Error) error {
	if theirs == nil {
		return nil
	}
	return status.Errorf(codeOf(C.error_code(theirs)), "%s", C.GoString(C.error_message(theirs)))
}

// takeError is copyError for an error that we own, which it deletes.
func takeError(theirs *C.TRITONSERVER_Error) error {
	err := copyError(theirs)
	if err != nil {
		C.error_delete(theirs)
	}
	return err
}
