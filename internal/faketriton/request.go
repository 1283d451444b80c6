package faketriton

// #include <stdlib.h>
// #include "server.h"
import "C"

import (
	"slices"
	"unsafe"
)

// Memory is TRITONSERVER_MemoryType.
type Memory int

// The kinds of memory.
const (
	CPU Memory = iota
	Pinned
	GPU
)

// The bits of Call.Flags: TRITONSERVER_RequestFlag.
const (
	Start = 1
	End   = 2
)

// Input is an input tensor of a call.
type Input struct {
	Name    string
	Type    int // TRITONSERVER_DataType
	Shape   []int64
	Buffers [][]byte
	Memory  Memory // of all buffers, as the library is told, but all of them are in CPU memory
}

// Call is what a client sends.
type Call struct {
	Flags       int
	Number      uint64
	StringID    string // the sequence ID, if it is a string
	HasStringID bool
	Cancelled   bool
	Timeout     uint64 // in microseconds; 0 is none
	Traced      bool
	Inputs      []Input
	Parameters  []Parameter
	// Outputs are the names of those it wants.
	Outputs []string
	// OutputMemory is what its outputs get.
	OutputMemory Memory
}

// Request is a TRITONBACKEND_Request.
type Request struct{ c *C.TRITONBACKEND_Request }

// NewRequest copies a call to C. The caller deletes it.
func NewRequest(call Call) *Request {
	c := newObject[C.TRITONBACKEND_Request]()
	c.flags = C.uint32_t(call.Flags)
	c.number = C.uint64_t(call.Number)
	if call.HasStringID {
		c.string_id = C.CString(call.StringID)
	}
	c.cancelled = C.bool(call.Cancelled)
	c.timeout_us = C.uint64_t(call.Timeout)
	if call.Traced {
		c.trace = newObject[C.TRITONSERVER_InferenceTrace]()
		c.trace.request = c
	}
	c.output_memory = C.TRITONSERVER_MemoryType(call.OutputMemory)
	c.input_count = C.uint32_t(len(call.Inputs))
	c.inputs = newArray[C.TRITONBACKEND_Input](len(call.Inputs))
	for i, input := range call.Inputs {
		fillInput(&unsafe.Slice(c.inputs, len(call.Inputs))[i], c, input)
	}
	c.parameter_count = C.uint32_t(len(call.Parameters))
	c.parameters = newArray[C.fake_parameter](len(call.Parameters))
	for i, p := range call.Parameters {
		p.fill(&unsafe.Slice(c.parameters, len(call.Parameters))[i])
	}
	c.wanted_count = C.uint32_t(len(call.Outputs))
	c.wanted = newArray[*C.char](len(call.Outputs))
	for i, name := range call.Outputs {
		unsafe.Slice(c.wanted, len(call.Outputs))[i] = C.CString(name)
	}
	return &Request{c}
}

func fillInput(c *C.TRITONBACKEND_Input, of *C.TRITONBACKEND_Request, input Input) {
	c.request = of
	c.name = C.CString(input.Name)
	c._type = C.TRITONSERVER_DataType(input.Type)
	c.rank = C.uint32_t(len(input.Shape))
	c.shape = newArray[C.int64_t](len(input.Shape))
	for i, extent := range input.Shape {
		unsafe.Slice(c.shape, len(input.Shape))[i] = C.int64_t(extent)
	}
	c.memory = C.TRITONSERVER_MemoryType(input.Memory)
	c.buffer_count = C.uint32_t(len(input.Buffers))
	c.buffers = newArray[C.fake_buffer](len(input.Buffers))
	for i, buffer := range input.Buffers {
		b := &unsafe.Slice(c.buffers, len(input.Buffers))[i]
		b.data, b.bytes = (*C.char)(C.CBytes(buffer)), C.uint64_t(len(buffer))
	}
}

// Delete frees the request and its answer.
func (r *Request) Delete() {
	C.fake_forget_answer(r.c)
	for _, input := range unsafe.Slice(r.c.inputs, r.c.input_count) {
		for _, buffer := range unsafe.Slice(input.buffers, input.buffer_count) {
			freeStrings(buffer.data)
		}
		freeStrings(input.name)
		C.free(unsafe.Pointer(input.shape))
		C.free(unsafe.Pointer(input.buffers))
	}
	for _, p := range unsafe.Slice(r.c.parameters, r.c.parameter_count) {
		freeStrings(p.name, p.text)
	}
	freeStrings(unsafe.Slice(r.c.wanted, r.c.wanted_count)...)
	freeStrings(r.c.string_id)
	C.free(unsafe.Pointer(r.c.trace))
	C.free(unsafe.Pointer(r.c.parameters))
	C.free(unsafe.Pointer(r.c.inputs))
	C.free(unsafe.Pointer(r.c.wanted))
	C.free(unsafe.Pointer(r.c))
}

// Cancel makes the request one that its client has cancelled.
func (r *Request) Cancel() { r.c.cancelled = true }

// Sent is how often the request was answered.
func (r *Request) Sent() int { return int(r.c.sent) }

// Released is how often the request was released.
func (r *Request) Released() int { return int(r.c.released) }

// Statistics is what was reported of the request.
func (r *Request) Statistics() Statistics { return statistics(r.c.statistics) }

// Activity is an activity in the trace of a request, at a time in nanoseconds.
type Activity struct {
	Name string
	At   uint64
}

// Activities are those that were added to the trace of the request.
func (r *Request) Activities() (all []Activity) {
	for _, a := range r.c.trace.activities[:r.c.trace.count] {
		all = append(all, Activity{C.GoString(&a.name[0]), uint64(a.at)})
	}
	return all
}

// Output is an output tensor of an answer.
type Output struct {
	Name  string
	Type  int
	Shape []int64
	Data  []byte
}

// Answer is the answer to the request: its outputs in the order in which they
// were made, or the error, an *Error.
func (r *Request) Answer() ([]Output, error) {
	if r.c.failed {
		return nil, &Error{int(r.c.code), C.GoString(r.c.message)}
	}
	var outputs []Output
	for o := r.c.answer; o != nil; o = o.next {
		output := Output{
			Name: C.GoString(o.name),
			Type: int(o._type),
			Data: C.GoBytes(unsafe.Pointer(o.data), C.int(o.bytes)),
		}
		for _, extent := range unsafe.Slice(o.shape, o.rank) {
			output.Shape = append(output.Shape, int64(extent))
		}
		outputs = append(outputs, output)
	}
	slices.Reverse(outputs)
	return outputs, nil
}

// newArray is zeroed C memory for count elements.
func newArray[T any](count int) *T {
	var zero T
	return (*T)(C.calloc(C.size_t(count+1), C.size_t(unsafe.Sizeof(zero))))
}
