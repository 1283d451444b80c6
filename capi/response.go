package main

// #include "batch.h"
import "C"

import (
	"errors"
	"slices"
	"unsafe"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// noted is a set of outputs that was copied to the C arrays.
type noted struct {
	outputs []backend.Output
	lanes   int
	req     C.uint32_t // whose request_outputs they are
}

// Fail implements backend.Batch.
func (b *batch) Fail(req int, err error) {
	r := &b.entries()[req]
	if r.answer != C.BATCH_UNANSWERED {
		return
	}
	r.answer = C.BATCH_FAILURE
	r.failure = newError(err)
}

// Answer implements backend.Batch. Requests that are answered with the same
// slice share one copy of it, as those of one run usually do.
func (b *batch) Answer(req int, outputs []backend.Output, lane, lanes int) {
	r := &b.entries()[req]
	if r.answer != C.BATCH_UNANSWERED {
		return
	}
	owner, err := b.note(req, outputs, lane, lanes)
	if err != nil {
		b.Fail(req, err)
		return
	}
	r.answer = C.BATCH_OUTPUTS
	r.outputs = owner
	r.lane, r.lanes = C.uint64_t(lane), C.uint64_t(lanes)
}

// Reserve implements backend.Batch. A request for which Triton has no memory
// is answered with its error.
func (b *batch) Reserve(req int, outputs []backend.Output, lane, lanes int) []uint64 {
	r := &b.entries()[req]
	if r.answer != C.BATCH_UNANSWERED {
		return nil
	}
	if err := b.reserve(req, outputs, lane, lanes); err != nil {
		b.Fail(req, err)
		return nil
	}
	b.addresses = resize(b.addresses, len(outputs))
	for k, buffer := range unsafe.Slice(b.c.request_buffers, len(b.requests)*len(outputs))[req*len(outputs):][:len(outputs)] {
		b.addresses[k] = 0
		if buffer.on_device {
			b.addresses[k] = uint64(uintptr(unsafe.Pointer(buffer.buffer)))
		}
	}
	return b.addresses
}

func (b *batch) reserve(req int, outputs []backend.Output, lane, lanes int) error {
	if err := b.checkLanes(outputs, lane, lanes); err != nil {
		return err
	}
	to := b.outputsOf(req)
	for k := range outputs {
		if err := errors.Join(b.checkLayout(k, &outputs[k]), b.checkShape(k, &outputs[k], lanes)); err != nil {
			return err
		}
		noteOutput(&to[k], &outputs[k], b.outputs[k].DType, lane, lanes)
	}
	return takeError(C.batch_reserve(b.c, C.uint32_t(req), C.uint64_t(lanes)))
}

// outputsOf is where the outputs of a request are noted for C.
func (b *batch) outputsOf(req int) []C.batch_output {
	width := len(b.outputs)
	return unsafe.Slice(b.c.request_outputs, len(b.requests)*width)[req*width:][:width]
}

// Send implements backend.Batch.
func (b *batch) Send() {
	C.batch_send(b.c)
	b.forgetAnswers()
}

func (b *batch) forgetAnswers() {
	clear(b.answers)
	b.answers = b.answers[:0]
}

// note copies outputs to the C arrays, unless the last answer did, and returns
// the request that has them. What C could not copy safely is an error: C cannot
// check it.
func (b *batch) note(req int, outputs []backend.Output, lane, lanes int) (C.uint32_t, error) {
	if err := b.checkLanes(outputs, lane, lanes); err != nil {
		return 0, err
	}
	if last := len(b.answers) - 1; last >= 0 && !hasStrings(outputs) {
		if a := b.answers[last]; unsafe.SliceData(a.outputs) == unsafe.SliceData(outputs) && a.lanes == lanes {
			return a.req, nil
		}
	}
	to := b.outputsOf(req)
	for k := range outputs {
		if err := b.checkOutput(k, &outputs[k], lanes); err != nil {
			return 0, err
		}
		noteOutput(&to[k], &outputs[k], b.outputs[k].DType, lane, lanes)
	}
	b.answers = append(b.answers, noted{outputs, lanes, C.uint32_t(req)})
	return C.uint32_t(req), nil
}

// hasStrings reports whether an output's lanes differ in size; then each request
// needs a copy of its own.
func hasStrings(outputs []backend.Output) bool {
	return slices.ContainsFunc(outputs, func(o backend.Output) bool { return o.Offsets != nil })
}

func noteOutput(to *C.batch_output, from *backend.Output, dtype tensor.DType, lane, lanes int) {
	data, layout := from.Tensor, from.Layout
	if to.whole = C.bool(from.Offsets != nil); to.whole {
		data = data[from.Offsets[lane]:from.Offsets[lane+lanes]]
		layout.Pieces, layout.PieceBytes = 1, int64(len(data))
	}
	to.data = C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
	to.pieces, to.piece_bytes = C.uint64_t(layout.Pieces), C.uint64_t(layout.PieceBytes)
	to.lanes = C.uint64_t(from.Lanes)
	to._type = C.TRITONSERVER_DataType(dtype)
	for i, extent := range from.Shape {
		to.shape[i] = C.int64_t(extent)
	}
	if from.Batched {
		to.shape[0] = C.int64_t(lanes)
	}
	to.rank = C.uint32_t(len(from.Shape))
}

func (b *batch) checkLanes(outputs []backend.Output, lane, lanes int) error {
	if len(outputs) != len(b.outputs) {
		return status.Errorf(status.Internal, "an answer has %d outputs: want %d", len(outputs), len(b.outputs))
	}
	for k := range outputs {
		if lane < 0 || lanes < 1 || lane > outputs[k].Lanes-lanes {
			return status.Errorf(status.Internal, "output %q has %d lanes: want lanes %d to %d of it",
				b.outputs[k].Name, outputs[k].Lanes, lane, lane+lanes-1)
		}
	}
	return nil
}

// checkOutput makes sure that the pieces of all lanes are within the tensor, and
// that the shape agrees with the bytes that the client gets.
func (b *batch) checkOutput(k int, o *backend.Output, lanes int) error {
	if err := b.checkLayout(k, o); err != nil {
		return err
	}
	pieces, pieceBytes := o.Layout.Pieces, o.Layout.PieceBytes
	if pieces > 0 && pieceBytes > 0 && int64(o.Lanes) > int64(len(o.Tensor))/pieces/pieceBytes {
		return status.Errorf(status.Internal, "output %q: its tensor has %d bytes: want %d pieces of %d lanes of %d bytes",
			b.outputs[k].Name, len(o.Tensor), pieces, o.Lanes, pieceBytes)
	}
	if err := b.checkShape(k, o, lanes); err != nil || b.outputs[k].DType.Size() != 0 {
		return err
	}
	return checkOffsets(b.outputs[k].Name, o)
}

// checkLayout makes sure that C can count with it.
func (b *batch) checkLayout(k int, o *backend.Output) error {
	if o.Layout.Pieces < 0 || o.Layout.PieceBytes < 0 || len(o.Shape) > C.BATCH_MAX_RANK {
		return status.Errorf(status.Internal, "output %q: %d pieces of %d bytes and rank %d: want none negative, and a rank of at most %d",
			b.outputs[k].Name, o.Layout.Pieces, o.Layout.PieceBytes, len(o.Shape), C.BATCH_MAX_RANK)
	}
	return nil
}

// checkShape makes sure that the shape agrees with the bytes, of numbers.
func (b *batch) checkShape(k int, o *backend.Output, lanes int) error {
	out := b.outputs[k]
	if o.Batched && len(o.Shape) == 0 || !o.Batched && lanes != 1 {
		return status.Errorf(status.Internal, "output %q: shape %v cannot hold %d lanes", out.Name, o.Shape, lanes)
	}
	if out.DType.Size() == 0 {
		return nil
	}
	want, err := o.Shape.Bytes(out.DType)
	if err != nil {
		return status.Errorf(status.Internal, "output %q: %w", out.Name, err)
	}
	want *= int64(lanes)
	if got := o.Layout.LaneBytes() * int64(lanes); got != want {
		return status.Errorf(status.Internal, "output %q: %d bytes for shape %v of %v: want %d", out.Name, got, o.Shape, out.DType, want)
	}
	return nil
}

// checkOffsets makes sure that the lanes of strings are within their tensor.
func checkOffsets(name string, o *backend.Output) error {
	if o.Offsets == nil {
		return nil // one lane of fixed size, such as an empty string
	}
	if len(o.Offsets) != o.Lanes+1 || !slices.IsSorted(o.Offsets) || o.Offsets[0] < 0 || o.Offsets[o.Lanes] > int64(len(o.Tensor)) {
		return status.Errorf(status.Internal, "output %q: the offsets %v do not split a tensor of %d bytes into %d lanes", name, o.Offsets, len(o.Tensor), o.Lanes)
	}
	return nil
}
