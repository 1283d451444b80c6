package status

import (
	"errors"
	"fmt"
)

// Code is the kind of an error as a client sees it. The values equal
// TRITONSERVER_Error_Code (tritonserver.h).
type Code uint8

// The codes that Triton knows.
const (
	Unknown Code = iota
	Internal
	NotFound
	InvalidArg
	Unavailable
	Unsupported
	AlreadyExists
	Cancelled
)

// Error is an error with the code that the client gets.
type Error struct {
	Code Code
	err  error
}

// Errorf makes an Error; the format is that of fmt.Errorf, %w included.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, err: fmt.Errorf(format, args...)}
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap makes errors.Is and errors.As see what the Error wraps.
func (e *Error) Unwrap() error { return e.err }

// CodeOf is the code of the outermost Error in err's chain, and Internal when
// there is none: an unclassified error is a fault of ours.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
