package main

// #include "../internal/triton/triton.h"
import "C"

import (
	"runtime/debug"

	"tritonstateful/internal/status"
	_ "tritonstateful/internal/triton" // so that a change of triton.h compiles this package again
)

// The entry points, in the order of Triton's calls. The compiler checks each
// against its prototype in internal/triton/triton.h.

//export TRITONBACKEND_Initialize
func TRITONBACKEND_Initialize(b *C.TRITONBACKEND_Backend) *C.TRITONSERVER_Error {
	return guard(func() error { return initialize(b, assemble) })
}

//export TRITONBACKEND_Finalize
func TRITONBACKEND_Finalize(b *C.TRITONBACKEND_Backend) *C.TRITONSERVER_Error {
	return guard(func() error { return finalize(b) })
}

//export TRITONBACKEND_GetBackendAttribute
func TRITONBACKEND_GetBackendAttribute(_ *C.TRITONBACKEND_Backend, a *C.TRITONBACKEND_BackendAttribute) *C.TRITONSERVER_Error {
	return guard(func() error { return setAttributes(a) })
}

//export TRITONBACKEND_ModelInitialize
func TRITONBACKEND_ModelInitialize(m *C.TRITONBACKEND_Model) *C.TRITONSERVER_Error {
	return guard(func() error { return initializeModel(m) })
}

//export TRITONBACKEND_ModelFinalize
func TRITONBACKEND_ModelFinalize(m *C.TRITONBACKEND_Model) *C.TRITONSERVER_Error {
	return guard(func() error { return finalizeModel(m) })
}

//export TRITONBACKEND_ModelInstanceInitialize
func TRITONBACKEND_ModelInstanceInitialize(i *C.TRITONBACKEND_ModelInstance) *C.TRITONSERVER_Error {
	return guard(func() error { return initializeInstance(i) })
}

//export TRITONBACKEND_ModelInstanceFinalize
func TRITONBACKEND_ModelInstanceFinalize(i *C.TRITONBACKEND_ModelInstance) *C.TRITONSERVER_Error {
	return guard(func() error { return finalizeInstance(i) })
}

//export TRITONBACKEND_ModelInstanceExecute
func TRITONBACKEND_ModelInstanceExecute(i *C.TRITONBACKEND_ModelInstance, requests **C.TRITONBACKEND_Request, count C.uint32_t) *C.TRITONSERVER_Error {
	return guard(func() error { return execute(i, requests, count) })
}

//export TRITONBACKEND_ModelInstanceReady
func TRITONBACKEND_ModelInstanceReady(i *C.TRITONBACKEND_ModelInstance) *C.TRITONSERVER_Error {
	return guard(func() error { return ready(i) })
}

// guard turns the error or the panic of an entry point into an error of Triton: a
// panic that leaves an exported function would end the process. Once a batch is
// open, its requests must be answered instead: see batch.ensureFinished.
func guard(entry func() error) (failed *C.TRITONSERVER_Error) {
	defer func() {
		if cause := recover(); cause != nil {
			failed = newError(panicked(cause))
		}
	}()
	debug.SetPanicOnFault(true) // of this thread's goroutine: a bad address panics too
	return newError(entry())
}

// panicked logs a panic with its stack and returns it as an error. The deferred
// function that recovered it calls panicked.
func panicked(cause any) error {
	newLog().Error("panic in the stateful backend", "cause", cause, "stack", string(debug.Stack()))
	return status.Errorf(status.Internal, "panic in the stateful backend (a bug): %v; the server log has the stack", cause)
}
