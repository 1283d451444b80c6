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
// allocates nothing.
type batch struct {
	c       *C.batch
	inputs  []onnx.IOTensor
	outputs []onnx.IOTensor
	// isOpen: the requests are ours, and are to be answered and released.
	isOpen bool

	// What Requests returns. Emptied by Finish, see forget.
	requests      []backend.Request
	requestInputs []backend.Input

	// answers are the outputs noted since the last Send: kept so that their
	// memory lives until then, and to see when rows share the same ones.
	answers []noted
	// addresses is what Reserve returns.
	addresses []uint64
}

// onDevice is an executor that can say whether inputs may be in the memory of a
// GPU.
type onDevice interface{ TakesDevice() bool }

// tokened is an executor that can name one of Triton's own states.
type tokened interface{ TokenInput() string }

// newBatch makes the batch of an instance; free it.
func newBatch(of *C.TRITONBACKEND_ModelInstance, made executor) (*batch, error) {
	inputs, outputs := made.Inputs(), made.Outputs()
	cInputs, cOutputs := newPorts(inputs), newPorts(outputs)
	c := C.batch_new(of, cInputs, cOutputs, C.bool(made.StringIDs()))
	if c == nil {
		freePorts(cInputs)
		freePorts(cOutputs)
		return nil, status.Errorf(status.Unavailable, "there is no memory for a batch")
	}
	if on, ok := made.(onDevice); ok {
		c.takes_device = C.bool(on.TakesDevice())
	}
	if of, ok := made.(tokened); ok && of.TokenInput() != "" {
		c.token_input = C.CString(of.TokenInput())
	}
	return &batch{c: c, inputs: inputs, outputs: outputs}, nil
}

func (b *batch) free() {
	freePorts(b.c.inputs)
	freePorts(b.c.outputs)
	C.batch_free(b.c)
}

// open takes the requests. After an error Triton still owns them.
func (b *batch) open(requests **C.TRITONBACKEND_Request, count C.uint32_t) error {
	err := takeError(C.batch_open(b.c, requests, count))
	b.isOpen = err == nil
	return err
}

// Hold is part of backend.Batch.
func (b *batch) Hold(row int) (release func()) {
	held := C.batch_hold(b.c, C.uint32_t(row)) // of our own memory, so that it may be kept
	return func() { C.release_held(held) }
}

// Finish is part of backend.Batch.
func (b *batch) Finish(timing backend.Timing) {
	if !b.isOpen {
		return
	}
	b.isOpen = false
	C.batch_finish(b.c, C.uint64_t(timing.ComputeStart), C.uint64_t(timing.ComputeEnd))
	b.forget()
}

// settle is the last net under a batch, to be deferred: it makes a panic the
// answer of all rows that have none, and finishes what nobody finished.
func (b *batch) settle() {
	if cause := recover(); cause != nil {
		err := panicked(cause)
		for row := range b.rows() {
			b.Fail(row, err)
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
	b.requests = b.requests[:0]
	b.forgetAnswers()
}

func (b *batch) rows() []C.batch_row {
	return unsafe.Slice(b.c.rows, b.c.count)
}

// newPorts copies the names to C; freePorts them.
func newPorts(ports []onnx.IOTensor) C.batch_ports {
	size := C.size_t(len(ports)) * C.size_t(unsafe.Sizeof((*C.char)(nil)))
	names := (**C.char)(C.malloc(size)) // C.malloc never returns nil
	for i, slots := 0, unsafe.Slice(names, len(ports)); i < len(slots); i++ {
		slots[i] = C.CString(ports[i].Name)
	}
	return C.batch_ports{names: names, count: C.uint32_t(len(ports))}
}

func freePorts(ports C.batch_ports) {
	for _, name := range unsafe.Slice(ports.names, ports.count) {
		C.free(unsafe.Pointer(name))
	}
	C.free(unsafe.Pointer(ports.names))
}
