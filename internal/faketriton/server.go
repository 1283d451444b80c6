package faketriton

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -ldl -rdynamic
// #include <stdlib.h>
// #include "server.h"
import "C"

import (
	"fmt"
	"unsafe"

	_ "tritonstateful/internal/triton" // so that a change of triton.h compiles this package again
)

// Reset forgets all counts, faults and violations; objects stay.
func Reset() { C.fake_reset() }

// FailAt makes the n-th fallible call from now on fail with UNAVAILABLE; 0
// makes none fail.
func FailAt(n int) { C.fake_fail_at(C.uint(n)) }

// Calls is the number of fallible calls since the last Reset or FailAt.
func Calls() int { return int(C.fake_calls()) }

// CallsOf is the number of calls of one function since the last Reset.
func CallsOf(name string) int {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return int(C.fake_calls_of(text))
}

// Alive counts the objects that were made and not deleted; families of metrics
// and the arguments of new ones count as metrics.
type Alive struct{ Errors, Messages, Responses, Metrics, Parameters, Attributes int }

// CountAlive counts them now.
func CountAlive() Alive {
	return Alive{
		Errors:     int(C.fake_live_count(C.LIVE_ERRORS)),
		Messages:   int(C.fake_live_count(C.LIVE_MESSAGES)),
		Responses:  int(C.fake_live_count(C.LIVE_RESPONSES)),
		Metrics:    int(C.fake_live_count(C.LIVE_METRICS)),
		Parameters: int(C.fake_live_count(C.LIVE_PARAMETERS)),
		Attributes: int(C.fake_live_count(C.LIVE_ATTRIBUTES)),
	}
}

// Violations is how often a rule of the API was broken, and the last time.
func Violations() (count int, last string) {
	return int(C.fake_violations()), C.GoString(C.fake_last_violation())
}

// WithoutTraces makes the server one that was built without traces, until Reset.
func WithoutTraces() { C.fake_traces_off(true) }

// SetVerbose makes the log want verbose lines too.
func SetVerbose(on bool) { C.fake_set_verbose(C.bool(on)) }

// KeepData leaves the data of released requests as it is, so that they can be
// executed again with it.
func KeepData() { C.fake_keep_data(true) }

// LastLog is the last line of the log, "file:line] text", and its level as
// TRITONSERVER_LogLevel.
func LastLog() (line string, level int) {
	return C.GoString(C.fake_last_log()), int(C.fake_last_log_level())
}

// Error is a TRITONSERVER_Error that the library returned or answered with.
type Error struct {
	Code    int // TRITONSERVER_Error_Code
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("code %d: %s", e.Code, e.Message) }

// take makes the library's error a Go one, and deletes it as Triton would.
func take(e *C.TRITONSERVER_Error) error {
	if e == nil {
		return nil
	}
	defer C.TRITONSERVER_ErrorDelete(e)
	return &Error{int(C.TRITONSERVER_ErrorCode(e)), C.GoString(C.TRITONSERVER_ErrorMessage(e))}
}
