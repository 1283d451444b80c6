package backend

import (
	"encoding/binary"
	"hash/maphash"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// writeGenerated writes the inputs that the backend gives by itself.
func (e *execution) writeGenerated() error {
	for i := range e.in.plan.Generated {
		f := &e.in.plan.Generated[i]
		var err error
		switch {
		case f.Kind == plan.KindMask:
			err = e.writeMask(i)
		case f.Kind == plan.KindPositions:
			err = e.writePositions(i)
		case f.DType == tensor.Bytes:
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
func (e *execution) writeLanes(f *plan.Generated, to []byte) {
	if f.Kind == plan.KindConstant {
		if f.Axis == tensor.NoAxis {
			copy(to, f.Value[0])
			return
		}
		for lane := range e.ioSet.lanes {
			f.Layout.PutLane(to, e.ioSet.lanes, lane, f.Value[0])
		}
		return
	}
	lanes := e.ioSet.lanes
	if f.Axis == tensor.NoAxis {
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
func (e *execution) writeLane(f *plan.Generated, to []byte, r *Request, q *statebuffer.Sequence) {
	on := false
	switch f.Kind {
	case plan.KindStart:
		on = r == nil || q == nil || r.Start
	case plan.KindEnd:
		on = r != nil && r.End
	case plan.KindReady:
		on = r != nil
	case plan.KindID:
		if r != nil {
			tensor.PutInt(to, f.DType, int64(r.Sequence.Number))
		} else {
			tensor.PutInt(to, f.DType, 0)
		}
		return
	default:
		tensor.PutInt(to, f.DType, e.counted(f, q))
		return
	}
	copy(to, f.Flag(on))
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
	e.ioSet.inputs[e.in.plan.Generated[i].Index].Data = block
	return nil
}

// counted is the derived value of a lane.
func (e *execution) counted(f *plan.Generated, q *statebuffer.Sequence) int64 {
	n := f.Plus + countedBefore(f, q)
	if f.Kind == plan.KindLengthAfter {
		n += int64(e.lengths[f.Length])
	}
	return n
}

// countedBefore is what the steps before have counted; nil is a sequence that starts.
func countedBefore(f *plan.Generated, q *statebuffer.Sequence) int64 {
	switch {
	case q == nil:
		return 0
	case f.Kind == plan.KindSteps:
		return int64(q.Steps())
	default:
		return int64(q.Total(f.Length))
	}
}

// sameGenerated reports whether a request gets the same value as the first one of a run,
// where the model has one for all lanes. q is nil for a sequence that starts.
func sameGenerated(f *plan.Generated, r *Request, q *statebuffer.Sequence, first *Request, of *statebuffer.Sequence) bool {
	if f.Axis != tensor.NoAxis {
		return true
	}
	switch f.Kind {
	case plan.KindStart:
		return (q == nil) == (of == nil || first.Start)
	case plan.KindEnd:
		return r.End == first.End
	case plan.KindSteps, plan.KindLengthBefore, plan.KindLengthAfter, plan.KindPositions: // inputs of equal shapes add the same
		return countedBefore(f, q) == countedBefore(f, of)
	default:
		return true
	}
}

// hashGenerated adds what sameGenerated compares.
func hashGenerated(f *plan.Generated, h *maphash.Hash, r *Request, q *statebuffer.Sequence) {
	if f.Axis != tensor.NoAxis {
		return
	}
	switch f.Kind {
	case plan.KindStart:
		maphash.WriteComparable(h, q == nil)
	case plan.KindEnd:
		maphash.WriteComparable(h, r.End)
	case plan.KindSteps, plan.KindLengthBefore, plan.KindLengthAfter:
		maphash.WriteComparable(h, countedBefore(f, q))
	}
}

// writePositions writes the positions of a step.
func (e *execution) writePositions(i int) error {
	f := &e.in.plan.Generated[i]
	lanes := int64(1)
	if f.Axis != tensor.NoAxis {
		lanes = int64(e.ioSet.lanes)
	}
	length := int64(e.lengths[f.Length])
	shape := f.Dims.With(f.Axis, lanes).With(f.LengthAxis, length)
	bytes, err := shape.Bytes(f.DType)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the positions: %w", f.Name, err)
	}
	block, err := e.in.io.forFill(i, bytes)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the positions: %w", f.Name, err)
	}
	to := block.Bytes
	for lane := range lanes {
		var q *statebuffer.Sequence
		if lane < int64(len(e.lanes)) {
			q = e.lanes[lane].Sequence
		}
		for at := range length {
			tensor.PutInt(to, f.DType, f.Plus+countedBefore(f, q)+at)
			to = to[f.DType.Size():]
		}
	}
	e.ioSet.inputs[f.Index] = onnx.Tensor{Data: block, DType: f.DType, Shape: shape}
	return nil
}

// writeMask writes a mask.
func (e *execution) writeMask(i int) error {
	in := e.in
	f := &in.plan.Generated[i]
	m := f.Mask
	var longest, step int64
	for _, l := range e.lanes {
		longest = max(longest, in.store.Length(m.Covers[0], l.Sequence))
	}
	if m.Length >= 0 {
		step = int64(e.lengths[m.Length])
	}
	element := int64(f.DType.Size())
	width := longest + step
	shape := f.Dims.With(f.Axis, int64(e.ioSet.lanes))
	shape[m.Axis] = width
	bytes, err := shape.Bytes(f.DType)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the mask: %w", f.Name, err)
	}
	block, err := in.io.forFill(i, bytes)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the mask: %w", f.Name, err)
	}
	to := block.Bytes
	for lane := range e.ioSet.lanes {
		padding := int64(0) // a padding lane has a whole value
		if lane < len(e.lanes) {
			padding = longest - in.store.Length(m.Covers[0], e.lanes[lane].Sequence)
		}
		for at := range width {
			copy(to, f.Flag(at >= padding))
			to = to[element:]
		}
	}
	e.ioSet.inputs[f.Index] = onnx.Tensor{Data: block, DType: f.DType, Shape: shape}
	return nil
}

// generatedMost bounds the bytes of a mask or of positions for one sequence. How long they are
// follows from what a request says of its shape, which may be anything where it brings no
// data.
const generatedMost = 64 << 20

// checkPositions tells why there can be no positions for a request.
func (in *Instance) checkPositions(r *Request) error {
	for i := range in.plan.Generated {
		f := &in.plan.Generated[i]
		if f.Kind != plan.KindPositions {
			continue
		}
		length := in.extent(r, &in.plan.Lengths[f.Length])
		if most := generatedMost / int64(f.DType.Size()); length > most {
			return status.Errorf(status.InvalidArg, "input %q: positions of %d elements of input %q: want at most %d; send less in a request", f.Name, length, in.plan.Lengths[f.Length].Name, most)
		}
	}
	return nil
}

// checkMasks tells why there can be no mask for a request of a sequence; nil is one
// that starts.
func (in *Instance) checkMasks(r *Request, q *statebuffer.Sequence) error {
	for _, i := range in.plan.Masks {
		f := &in.plan.Generated[i]
		held, step := in.store.Length(f.Mask.Covers[0], q), int64(0)
		for _, state := range f.Mask.Covers[1:] {
			if other := in.store.Length(state, q); other != held {
				return status.Errorf(status.InvalidArg, "input %q: the states %q and %q are to have one mask, and have the lengths %d and %d: want them equal; give each a mask of its own, or none", f.Name, in.plan.Varying[f.Mask.Covers[0]].Input, in.plan.Varying[state].Input, held, other)
			}
		}
		if f.Mask.Length >= 0 {
			step = in.extent(r, &in.plan.Lengths[f.Mask.Length])
		}
		if most := generatedMost / int64(f.DType.Size()); step > most-held {
			return status.Errorf(status.InvalidArg, "input %q: a mask of length %d for the states and %d for the request: want at most %d in all; send less in a request, or end the sequence", f.Name, held, step, most)
		}
	}
	return nil
}

// extent is the length of an input in a request that was checked.
func (in *Instance) extent(r *Request, l *plan.Length) int64 {
	input := &r.Inputs[l.Input]
	if !input.Present {
		return 0
	}
	return modelDims(&in.plan.Inputs[l.Input], input.Shape)[l.Axis]
}
