package backend

import (
	"encoding/binary"
	"hash/maphash"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// writeGenerated writes the inputs that the backend gives by itself.
func (e *execution) writeGenerated() error {
	for i := range e.in.wiring.fills {
		f := &e.in.wiring.fills[i]
		var err error
		switch {
		case f.kind == fillMask:
			err = e.writeMask(i)
		case f.kind == fillPositions:
			err = e.writePositions(i)
		case f.dtype == tensor.Bytes:
			err = e.writeStringIDs(i)
		default:
			e.writeLanes(f, e.ioSet.fills[i].Bytes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeLanes writes the values of all lanes. Padding lanes are starts. Where a value
// depends on the request the model has sequences, and each request has one lane.
func (e *execution) writeLanes(f *fillWire, to []byte) {
	if f.kind == fillConstant {
		if f.axis == tensor.NoAxis {
			copy(to, f.value[0])
			return
		}
		for lane := range e.ioSet.lanes {
			f.Layout.PutLane(to, e.ioSet.lanes, lane, f.value[0])
		}
		return
	}
	lanes := e.ioSet.lanes
	if f.axis == tensor.NoAxis {
		lanes = 1
	}
	for lane := range lanes {
		var r *Request
		var q *statebuffer.Sequence
		if lane < len(e.lanes) {
			r, q = &e.requests[e.members[lane].req], e.lanes[lane].Sequence
		}
		e.writeLane(f, to[lane*int(f.PieceBytes):], r, q)
	}
}

// writeLane writes the value of one lane; r is nil for padding, q for no sequence.
func (e *execution) writeLane(f *fillWire, to []byte, r *Request, q *statebuffer.Sequence) {
	on := false
	switch f.kind {
	case fillStart:
		on = r == nil || q == nil || r.Start
	case fillEnd:
		on = r != nil && r.End
	case fillReady:
		on = r != nil
	case fillID:
		if r != nil {
			putInt(to, f.dtype, int64(r.Sequence.Number))
		} else {
			putInt(to, f.dtype, 0)
		}
		return
	default:
		putInt(to, f.dtype, e.counted(f, q))
		return
	}
	copy(to, f.flag(on))
}

// writeStringIDs writes a control of strings, which is the correlation ID. A padding
// lane has an empty one.
func (e *execution) writeStringIDs(i int) error {
	const prefix = 4 // the length in front of each string
	size := int64(prefix * e.ioSet.lanes)
	for _, m := range e.members {
		size += int64(len(e.requests[m.req].Sequence.Text))
	}
	block, err := e.in.io.forFill(i, size)
	if err != nil {
		return err
	}
	to := block.Bytes
	for lane := range e.ioSet.lanes {
		text := ""
		if lane < len(e.members) {
			text = e.requests[e.members[lane].req].Sequence.Text
		}
		binary.NativeEndian.PutUint32(to, uint32(len(text)))
		to = to[prefix+copy(to[prefix:], text):]
	}
	e.ioSet.inputs[e.in.wiring.fills[i].at].Data = block
	return nil
}

// counted is the derived value of a lane.
func (e *execution) counted(f *fillWire, q *statebuffer.Sequence) int64 {
	n := f.plus + countedBefore(f, q)
	if f.kind == fillAfter {
		n += int64(e.lengths[f.source])
	}
	return n
}

// countedBefore is what the steps before have counted; nil is a sequence that starts.
func countedBefore(f *fillWire, q *statebuffer.Sequence) int64 {
	switch {
	case q == nil:
		return 0
	case f.kind == fillSteps:
		return int64(q.Steps())
	default:
		return int64(q.Total(f.source))
	}
}

// sameGenerated reports whether a request gets the same value as the first one of a run,
// where the model has one for all lanes. q is nil for a sequence that starts.
func sameGenerated(f *fillWire, r *Request, q *statebuffer.Sequence, first *Request, of *statebuffer.Sequence) bool {
	if f.axis != tensor.NoAxis {
		return true
	}
	switch f.kind {
	case fillStart:
		return (q == nil) == (of == nil || first.Start)
	case fillEnd:
		return r.End == first.End
	case fillSteps, fillBefore, fillAfter, fillPositions: // inputs of equal shapes add the same
		return countedBefore(f, q) == countedBefore(f, of)
	default:
		return true
	}
}

// hashGenerated adds what sameGenerated compares.
func hashGenerated(f *fillWire, h *maphash.Hash, r *Request, q *statebuffer.Sequence) {
	if f.axis != tensor.NoAxis {
		return
	}
	switch f.kind {
	case fillStart:
		maphash.WriteComparable(h, q == nil)
	case fillEnd:
		maphash.WriteComparable(h, r.End)
	case fillSteps, fillBefore, fillAfter:
		maphash.WriteComparable(h, countedBefore(f, q))
	}
}

// writePositions writes the positions of a step.
func (e *execution) writePositions(i int) error {
	f := &e.in.wiring.fills[i]
	lanes := int64(1)
	if f.axis != tensor.NoAxis {
		lanes = int64(e.ioSet.lanes)
	}
	length := int64(e.lengths[f.source])
	shape := f.dims.With(f.axis, lanes).With(f.along, length)
	bytes, err := shape.Bytes(f.dtype)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the positions: %w", f.name, err)
	}
	block, err := e.in.io.forFill(i, bytes)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the positions: %w", f.name, err)
	}
	to := block.Bytes
	for lane := range lanes {
		var q *statebuffer.Sequence
		if lane < int64(len(e.lanes)) {
			q = e.lanes[lane].Sequence
		}
		for at := range length {
			putInt(to, f.dtype, f.plus+countedBefore(f, q)+at)
			to = to[f.dtype.Size():]
		}
	}
	e.ioSet.inputs[f.at] = onnx.Tensor{Data: block, DType: f.dtype, Shape: shape}
	return nil
}

// writeMask writes a mask.
func (e *execution) writeMask(i int) error {
	in := e.in
	f := &in.wiring.fills[i]
	m := f.mask
	var longest, step int64
	for _, l := range e.lanes {
		longest = max(longest, in.store.Length(m.covers[0], l.Sequence))
	}
	if m.length >= 0 {
		step = int64(e.lengths[m.length])
	}
	element := int64(f.dtype.Size())
	width := longest + step
	shape := f.dims.With(f.axis, int64(e.ioSet.lanes))
	shape[m.axis] = width
	bytes, err := shape.Bytes(f.dtype)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the mask: %w", f.name, err)
	}
	block, err := in.io.forFill(i, bytes)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the mask: %w", f.name, err)
	}
	to := block.Bytes
	for lane := range e.ioSet.lanes {
		padding := int64(0) // a padding lane has a whole value
		if lane < len(e.lanes) {
			padding = longest - in.store.Length(m.covers[0], e.lanes[lane].Sequence)
		}
		for at := range width {
			copy(to, f.flag(at >= padding))
			to = to[element:]
		}
	}
	e.ioSet.inputs[f.at] = onnx.Tensor{Data: block, DType: f.dtype, Shape: shape}
	return nil
}

// generatedMost bounds the bytes of a mask or of positions for one sequence. How long they are
// follows from what a request says of its shape, which may be anything where it brings no
// data.
const generatedMost = 64 << 20

// checkPositions tells why there can be no positions for a request.
func (in *Instance) checkPositions(r *Request) error {
	for i := range in.wiring.fills {
		f := &in.wiring.fills[i]
		if f.kind != fillPositions {
			continue
		}
		length := in.extent(r, &in.wiring.lengths[f.source])
		if most := generatedMost / int64(f.dtype.Size()); length > most {
			return status.Errorf(status.InvalidArg, "input %q: positions of %d elements of input %q: want at most %d; send less in a request", f.name, length, in.wiring.lengths[f.source].name, most)
		}
	}
	return nil
}

// checkMasks tells why there can be no mask for a request of a sequence; nil is one
// that starts.
func (in *Instance) checkMasks(r *Request, q *statebuffer.Sequence) error {
	for _, i := range in.wiring.masks {
		f := &in.wiring.fills[i]
		held, step := in.store.Length(f.mask.covers[0], q), int64(0)
		for _, state := range f.mask.covers[1:] {
			if other := in.store.Length(state, q); other != held {
				return status.Errorf(status.InvalidArg, "input %q: the states %q and %q are to have one mask, and have the lengths %d and %d: want them equal; give each a mask of its own, or none", f.name, in.wiring.varying[f.mask.covers[0]].input, in.wiring.varying[state].input, held, other)
			}
		}
		if f.mask.length >= 0 {
			step = in.extent(r, &in.wiring.lengths[f.mask.length])
		}
		if most := generatedMost / int64(f.dtype.Size()); step > most-held {
			return status.Errorf(status.InvalidArg, "input %q: a mask of length %d for the states and %d for the request: want at most %d in all; send less in a request, or end the sequence", f.name, held, step, most)
		}
	}
	return nil
}

// extent is the length of an input in a request that was checked.
func (in *Instance) extent(r *Request, l *lengthSource) int64 {
	input := &r.Inputs[l.input]
	if !input.Present {
		return 0
	}
	return modelDims(&in.wiring.inputs[l.input], input.Shape)[l.axis]
}
