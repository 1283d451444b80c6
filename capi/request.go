package main

// #include "batch.h"
import "C"

import (
	"math"
	"slices"
	"time"
	"unsafe"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// The times of a run are the same in memory of Go and of C.
var _ [C.sizeof_batch_times]byte = [unsafe.Sizeof(backend.RunTimes{})]byte{}

// Requests implements backend.Batch.
func (b *batch) Requests() []backend.Request { return b.requests }

// readRequests makes the Go view of what batch_open read. All of it but the
// errors is in memory of Triton or of the C batch.
func (b *batch) readRequests() {
	entries, width := b.entries(), len(b.inputs)
	b.requests = resize(b.requests, len(entries))
	b.requestInputs = resize(b.requestInputs, len(entries)*width)
	if b.c.takes_parameters {
		b.parameters = resize(b.parameters, len(entries))
	}
	inputs := unsafe.Slice(b.c.request_inputs, len(entries)*width)
	for i := range entries {
		from, to := i*width, (i+1)*width
		for k := from; k < to; k++ {
			b.requestInputs[k] = readInput(&inputs[k])
		}
		b.requests[i] = backend.Request{
			Sequence:  sequenceID(&entries[i]),
			Token:     uint64(entries[i].token),
			Start:     entries[i].flags&C.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START != 0,
			End:       entries[i].flags&C.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END != 0,
			Cancelled: bool(entries[i].cancelled),
			Timeout:   time.Duration(min(uint64(entries[i].timeout_us), math.MaxInt64/1000)) * time.Microsecond,
			Inputs:    b.requestInputs[from:to:to],
		}
		if entries[i].trace != nil {
			b.requests[i].Trace = (*backend.RunTimes)(unsafe.Pointer(&entries[i].times))
		}
		var err error
		b.requests[i].Parameters, err = b.readParameters(i)
		if b.requests[i].Err = b.readError(&entries[i], b.requests[i].Inputs); b.requests[i].Err == nil {
			b.requests[i].Err = err
		}
	}
}

// sequenceID is TRITONBACKEND_RequestCorrelationId, or
// TRITONBACKEND_RequestCorrelationIdString.
func sequenceID(req *C.batch_request) backend.SequenceID {
	if req.string == nil {
		return backend.SequenceID{Number: uint64(req.number)}
	}
	return backend.SequenceID{Text: borrow(req.string)}
}

func readInput(from *C.batch_input) backend.Input {
	input := backend.Input{
		Present: bool(from.present),
		DType:   tensor.DType(from._type),
		Shape:   unsafe.Slice((*int64)(from.shape), from.rank),
	}
	if from.on_device {
		input.Device, input.Size = uint64(uintptr(unsafe.Pointer(from.data))), int64(from.bytes)
	} else {
		input.Data = unsafe.Slice((*byte)(unsafe.Pointer(from.data)), from.bytes)
	}
	return input
}

// readError returns why a request cannot be served, or nil.
func (b *batch) readError(req *C.batch_request, inputs []backend.Input) error {
	switch req.reading {
	case C.BATCH_REFUSED:
		return copyError(req.refusal)
	case C.BATCH_ON_DEVICE:
		return status.Errorf(status.Unsupported, "input %q: its data is in GPU memory, or in several buffers of which one is: want CPU memory, system shared memory, or one buffer for an instance of KIND_GPU",
			b.inputs[req.faulty_input].Name)
	case C.BATCH_NO_MEMORY:
		return status.Errorf(status.Unavailable, "input %q: no memory to join its buffers: send a smaller request",
			b.inputs[req.faulty_input].Name)
	}
	for k, input := range b.inputs {
		if !inputs[k].Present && !input.Optional {
			return status.Errorf(status.InvalidArg, "input %q is missing: want it in every request", input.Name)
		}
	}
	return nil
}

// resize returns s with that length; its elements are undefined.
func resize[E any](s []E, length int) []E {
	return slices.Grow(s[:0], length)[:length]
}
