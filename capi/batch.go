package main

// #include <stdlib.h>
// #include "batch.h"
import "C"

import (
	"unsafe"

	"tritonstateful/backend"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// batch implements backend.Batch over the C arrays of one instance. It is made
// with the instance and serves one Execute after the other, so that a batch
// allocates nothing. Requests that run again have a batch of their own.
type batch struct {
	c       *C.batch
	inputs  []onnx.IOTensor
	outputs []onnx.IOTensor
	// isOpen: the requests are ours, and are to be answered and released.
	isOpen bool
	// parked are the requests that were taken out of it, for reruns to run again.
	parked []*parked
	reruns *reruns

	// What Requests returns. Emptied by Finish, see forget.
	requests      []backend.Request
	requestInputs []backend.Input
	parameters    []backend.Parameters // of each request, if the instance takes any

	// answers are the outputs noted since the last Send: referenced so that their
	// memory lives until then, and to see when requests share the same ones.
	answers []noted
	// addresses is what Reserve returns.
	addresses []uint64
}

// onDevice is an executor that can say whether inputs may be in the memory of a
// GPU.
type onDevice interface{ TakesDevice() bool }

// tokened is an executor that can name one of Triton's own states.
type tokened interface{ TokenInput() string }

// parametered is an executor that can say whether it uses the stateful_* parameters of
// requests.
type parametered interface{ TakesParameters() bool }

// newBatch makes the batch of an instance; the caller frees it.
func newBatch(of *C.TRITONBACKEND_ModelInstance, exec executor) (*batch, error) {
	inputs, outputs := exec.Inputs(), exec.Outputs()
	cInputs, cOutputs := newNames(inputs), newNames(outputs)
	c := C.batch_new(of, cInputs, cOutputs, C.bool(exec.StringIDs()))
	if c == nil {
		freeNames(cInputs)
		freeNames(cOutputs)
		return nil, status.Errorf(status.Unavailable, "allocating a batch: out of memory")
	}
	if on, ok := exec.(onDevice); ok {
		c.takes_device = C.bool(on.TakesDevice())
	}
	if of, ok := exec.(tokened); ok && of.TokenInput() != "" {
		c.token_input = C.CString(of.TokenInput())
	}
	if takes, ok := exec.(parametered); ok && takes.TakesParameters() {
		c.takes_parameters, c.takes_timeouts = C.has_request_parameters(), true
	}
	return &batch{c: c, inputs: inputs, outputs: outputs}, nil
}

func (b *batch) free() {
	freeNames(b.c.inputs)
	freeNames(b.c.outputs)
	C.batch_free(b.c)
}

// open takes the requests, and their responses if they were parked. After an error the caller
// still owns them.
func (b *batch) open(requests **C.TRITONBACKEND_Request, responses **C.TRITONBACKEND_Response, count C.uint32_t) error {
	err := takeError(C.batch_open(b.c, requests, responses, count))
	b.isOpen = err == nil
	return err
}

// Finish implements backend.Batch.
func (b *batch) Finish(timing backend.Timing) {
	if !b.isOpen {
		return
	}
	b.isOpen = false
	C.batch_finish(b.c, C.uint64_t(timing.ComputeStart), C.uint64_t(timing.ComputeEnd))
	b.forget()
	b.reruns.free(b.parked)
	clear(b.parked)
	b.parked = b.parked[:0]
}

// ensureFinished is to be deferred: it answers all requests that have no answer
// with a panic, if there was one, and finishes a batch that was not finished.
func (b *batch) ensureFinished() {
	if cause := recover(); cause != nil {
		err := panicked(cause)
		for req := range b.entries() {
			b.Fail(req, err)
		}
	}
	b.Finish(backend.Timing{})
}

// forget drops every pointer to memory of Triton's. Such memory may be
// returned to the system and become part of Go's heap, and the garbage
// collector ends the process over a stale pointer into its heap.
func (b *batch) forget() {
	clear(b.requests)
	clear(b.requestInputs)
	clear(b.parameters)
	b.requests = b.requests[:0]
	b.forgetAnswers()
}

// entries are the requests in C.
func (b *batch) entries() []C.batch_request {
	return unsafe.Slice(b.c.requests, b.c.count)
}

// newNames copies the names to C; the caller frees them with freeNames.
func newNames(tensors []onnx.IOTensor) C.batch_names {
	size := C.size_t(len(tensors)) * C.size_t(unsafe.Sizeof((*C.char)(nil)))
	names := (**C.char)(C.malloc(size)) // C.malloc never returns nil
	for i, list := 0, unsafe.Slice(names, len(tensors)); i < len(list); i++ {
		list[i] = C.CString(tensors[i].Name)
	}
	return C.batch_names{names: names, count: C.uint32_t(len(tensors))}
}

func freeNames(list C.batch_names) {
	for _, name := range unsafe.Slice(list.names, list.count) {
		C.free(unsafe.Pointer(name))
	}
	C.free(unsafe.Pointer(list.names))
}
