package main

// #include <string.h>
// #include "batch.h"
import "C"

import (
	"slices"
	"unsafe"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// Requests is part of backend.Batch.
func (b *batch) Requests() []backend.Request { return b.requests }

// readRequests makes the Go view of what batch_open read. All of it but the
// errors lies in memory of Triton or of the C batch.
func (b *batch) readRequests() {
	rows, width := b.rows(), len(b.inputs)
	b.requests = resize(b.requests, len(rows))
	b.requestInputs = resize(b.requestInputs, len(rows)*width)
	inputs := unsafe.Slice(b.c.row_inputs, len(rows)*width)
	for i := range rows {
		from, to := i*width, (i+1)*width
		for k := from; k < to; k++ {
			b.requestInputs[k] = readInput(&inputs[k])
		}
		b.requests[i] = backend.Request{
			Sequence:  sequenceID(&rows[i]),
			Token:     uint64(rows[i].token),
			Start:     rows[i].flags&C.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START != 0,
			End:       rows[i].flags&C.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END != 0,
			Cancelled: bool(rows[i].cancelled),
			Inputs:    b.requestInputs[from:to:to],
		}
		b.requests[i].Err = b.readError(&rows[i], b.requests[i].Inputs)
	}
}

// sequenceID is TRITONBACKEND_RequestCorrelationId, or
// TRITONBACKEND_RequestCorrelationIdString.
func sequenceID(row *C.batch_row) backend.SequenceID {
	if row.text == nil {
		return backend.SequenceID{Number: uint64(row.number)}
	}
	text := (*byte)(unsafe.Pointer(row.text))
	return backend.SequenceID{Text: unsafe.String(text, C.strlen(row.text))}
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

// readError is why a request is of no use, or nil.
func (b *batch) readError(row *C.batch_row, inputs []backend.Input) error {
	switch row.reading {
	case C.BATCH_REFUSED:
		return copyError(row.refusal)
	case C.BATCH_ON_DEVICE:
		return status.Errorf(status.Unsupported, "input %q: its data is in GPU memory, or in several pieces of which one is: want CPU memory, system shared memory, or one piece for an instance of KIND_GPU",
			b.inputs[row.faulty_input].Name)
	case C.BATCH_NO_MEMORY:
		return status.Errorf(status.Unavailable, "input %q: there is no memory to join its buffers: want a smaller request",
			b.inputs[row.faulty_input].Name)
	}
	for k, port := range b.inputs {
		if !inputs[k].Present && !port.Optional {
			return status.Errorf(status.InvalidArg, "input %q is missing: want it in every request", port.Name)
		}
	}
	return nil
}

// resize is s with that length; the elements are not kept.
func resize[E any](s []E, length int) []E {
	return slices.Grow(s[:0], length)[:length]
}
