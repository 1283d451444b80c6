// Keeps Go's signal handlers and Triton's both working in one process.
//
// Go turns a fault of its own code (a nil dereference) into a panic in its
// SIGSEGV handler. For models that load at start-up, tritonserver installs its
// own handlers after Go has, by plain signal(): they replace Go's, so that a
// recoverable panic would end the server, and they do not ask for the alternate
// stack, so that they would run on the small stack of a goroutine.
#pragma once

// signals_adopt remembers Go's SIGSEGV handler. To be called while no other
// handler has replaced it: in Initialize.
void signals_adopt(void);

// signals_keep puts a handler of ours in front of whatever handles SIGSEGV now,
// if that would not reach Go: faults in this library's code go to Go's handler,
// all others to the one before. To be called before Go code runs that must be
// able to recover: the start-up order of tritonserver gives no single moment
// for it. Costs two system calls. Any thread.
void signals_keep(void);

// signals_keep_all looks at every signal instead of two: after code that may
// have installed handlers, such as a new session of ONNX Runtime.
void signals_keep_all(void);
