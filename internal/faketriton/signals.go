package faketriton

// #include "signals.h"
import "C"

import "syscall"

// Handled is the exit status of the handlers of TakeSignals.
const Handled = C.FAKE_HANDLED

// TakeSignals replaces the process's signal handlers as tritonserver does once
// its start-up models are loaded.
func TakeSignals() { C.fake_take_signals() }

// PutForwarder installs a handler of SIGSEGV in front of all others that forwards
// every signal, as another library with a Go runtime would.
func PutForwarder() { C.fake_put_forwarder() }

// ForwarderIsFirst reports whether no handler was installed in front of the forwarder.
func ForwarderIsFirst() bool { return bool(C.fake_forwarder_is_first()) }

// Forwarded is how many signals the forwarder has forwarded.
func Forwarded() int { return int(C.fake_forwarded()) }

// OnStack reports whether the handler of a signal asks for the alternate stack.
func OnStack(signal syscall.Signal) bool { return bool(C.fake_on_stack(C.int(signal))) }

// FaultElsewhere faults in code that is not the library's.
func FaultElsewhere() { C.fake_fault_elsewhere() }
