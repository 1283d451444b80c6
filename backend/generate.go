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

// writeGenerated writes the inputs of the run that requests do not bring.
func (e *execution) writeGenerated() error {
	for i := range e.in.plan.Generated {
		g := &e.in.plan.Generated[i]
		var err error
		switch {
		case g.Kind == plan.KindMask:
			err = e.writeMask(i)
		case g.Kind == plan.KindPositions:
			err = e.writePositions(i)
		case g.DType == tensor.Bytes:
			err = e.writeStringIDs(i)
		default:
			e.writeLanes(g, e.ioSet.generated[i].Bytes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeLanes writes the values of all lanes. Padding lanes are starts. Where a value
// depends on the request the model has sequences, and each request has one lane.
func (e *execution) writeLanes(g *plan.Generated, to []byte) {
	if g.Kind == plan.KindConstant {
		if g.Axis == tensor.NoAxis {
			copy(to, g.Value[0])
			return
		}
		for lane := range e.ioSet.lanes {
			g.Layout.PutLane(to, e.ioSet.lanes, lane, g.Value[0])
		}
		return
	}
	lanes := e.ioSet.lanes
	if g.Axis == tensor.NoAxis {
		lanes = 1
	}
	for lane := range lanes {
		var r *Request
		var q *statebuffer.Sequence
		if lane < len(e.lanes) {
			r, q = &e.requests[e.members[lane].req], e.lanes[lane].Sequence
		}
		e.writeLane(g, to[lane*int(g.PieceBytes):], r, q)
	}
}

// writeLane writes the value of one lane; r is nil for padding, q for no sequence.
func (e *execution) writeLane(g *plan.Generated, to []byte, r *Request, q *statebuffer.Sequence) {
	on := false
	switch g.Kind {
	case plan.KindStart:
		on = r == nil || r.begins()
	case plan.KindEnd:
		on = r != nil && r.End
	case plan.KindReady:
		on = r != nil
	case plan.KindID:
		if r != nil {
			tensor.PutInt(to, g.DType, int64(r.Sequence.Number))
		} else {
			tensor.PutInt(to, g.DType, 0)
		}
		return
	default:
		tensor.PutInt(to, g.DType, e.counted(g, q))
		return
	}
	copy(to, g.Flag(on))
}

// writeStringIDs writes a control of strings, which is the correlation ID. A padding
// lane has an empty one.
func (e *execution) writeStringIDs(i int) error {
	const prefix = 4 // the length in front of each string
	size := int64(prefix * e.ioSet.lanes)
	for _, m := range e.members {
		size += int64(e.requests[m.req].Sequence.textBytes())
	}
	block, err := e.in.io.forGenerated(i, size)
	if err != nil {
		return err
	}
	to := block.Bytes
	for lane := range e.ioSet.lanes {
		bytes := 0
		if lane < len(e.members) {
			bytes = len(e.requests[e.members[lane].req].Sequence.appendTo(to[prefix:prefix]))
		}
		binary.NativeEndian.PutUint32(to, uint32(bytes))
		to = to[prefix+bytes:]
	}
	e.ioSet.inputs[e.in.plan.Generated[i].Index].Data = block
	return nil
}

// counted is the number that a lane gets: of steps, or a length.
func (e *execution) counted(g *plan.Generated, q *statebuffer.Sequence) int64 {
	n := g.Plus + countedBefore(g, q)
	if g.Kind == plan.KindLengthAfter {
		n += int64(e.lengths[g.Length])
	}
	return n
}

// countedBefore is what the steps before have counted; nil is a sequence that starts.
func countedBefore(g *plan.Generated, q *statebuffer.Sequence) int64 {
	switch {
	case q == nil:
		return 0
	case g.Kind == plan.KindSteps:
		return int64(q.Steps())
	default:
		return int64(q.Total(g.Length))
	}
}

// sameGenerated reports whether a request gets the same value as the first one of a run,
// whose sequence is leader, where the model has one value for all lanes. q is nil for a
// sequence that starts.
func sameGenerated(g *plan.Generated, r *Request, q *statebuffer.Sequence, first *Request, leader *statebuffer.Sequence) bool {
	if g.Axis != tensor.NoAxis {
		return true
	}
	switch g.Kind {
	case plan.KindStart:
		return r.begins() == first.begins()
	case plan.KindEnd:
		return r.End == first.End
	case plan.KindSteps, plan.KindLengthBefore, plan.KindLengthAfter, plan.KindPositions: // inputs of equal shapes add the same
		return countedBefore(g, q) == countedBefore(g, leader)
	default:
		return true
	}
}

// hashGenerated adds to a hash what sameGenerated compares.
func hashGenerated(g *plan.Generated, h *maphash.Hash, r *Request, q *statebuffer.Sequence) {
	if g.Axis != tensor.NoAxis {
		return
	}
	switch g.Kind {
	case plan.KindStart:
		maphash.WriteComparable(h, r.begins())
	case plan.KindEnd:
		maphash.WriteComparable(h, r.End)
	case plan.KindSteps, plan.KindLengthBefore, plan.KindLengthAfter:
		maphash.WriteComparable(h, countedBefore(g, q))
	}
}

// writePositions writes the positions of a step.
func (e *execution) writePositions(i int) error {
	g := &e.in.plan.Generated[i]
	lanes := int64(1)
	if g.Axis != tensor.NoAxis {
		lanes = int64(e.ioSet.lanes)
	}
	length := int64(e.lengths[g.Length])
	shape := g.Dims.With(g.Axis, lanes).With(g.LengthAxis, length)
	bytes, err := shape.Bytes(g.DType)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the positions: %w", g.Name, err)
	}
	block, err := e.in.io.forGenerated(i, bytes)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the positions: %w", g.Name, err)
	}
	to := block.Bytes
	for lane := range lanes {
		var q *statebuffer.Sequence
		if lane < int64(len(e.lanes)) {
			q = e.lanes[lane].Sequence
		}
		for position := range length {
			tensor.PutInt(to, g.DType, g.Plus+countedBefore(g, q)+position)
			to = to[g.DType.Size():]
		}
	}
	e.ioSet.inputs[g.Index] = onnx.Tensor{Data: block, DType: g.DType, Shape: shape}
	return nil
}

// writeMask writes a mask.
func (e *execution) writeMask(i int) error {
	in := e.in
	g := &in.plan.Generated[i]
	mask := g.Mask
	var longest, step int64
	for i := range e.lanes {
		longest = max(longest, in.store.Length(mask.Covers[0], e.lanes[i].Sequence))
	}
	if mask.Length >= 0 {
		step = int64(e.lengths[mask.Length])
	}
	element := int64(g.DType.Size())
	width := longest + step
	shape := g.Dims.With(g.Axis, int64(e.ioSet.lanes))
	shape[mask.Axis] = width
	bytes, err := shape.Bytes(g.DType)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the mask: %w", g.Name, err)
	}
	block, err := in.io.forGenerated(i, bytes)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the mask: %w", g.Name, err)
	}
	to := block.Bytes
	for lane := range e.ioSet.lanes {
		padding := int64(0) // a padding lane has a whole value
		if lane < len(e.lanes) {
			padding = longest - in.store.Length(mask.Covers[0], e.lanes[lane].Sequence)
		}
		for position := range width {
			copy(to, g.Flag(position >= padding))
			to = to[element:]
		}
	}
	e.ioSet.inputs[g.Index] = onnx.Tensor{Data: block, DType: g.DType, Shape: shape}
	return nil
}

// generatedMost bounds the bytes of a mask or of positions for one sequence. Their length
// follows from the shape in a request, which may be anything if the request brings no data.
const generatedMost = 64 << 20

// checkPositions says why there can be no positions for a request.
func (in *Instance) checkPositions(r *Request) error {
	for i := range in.plan.Generated {
		g := &in.plan.Generated[i]
		if g.Kind != plan.KindPositions {
			continue
		}
		length := in.extent(r, &in.plan.Lengths[g.Length])
		if most := generatedMost / int64(g.DType.Size()); length > most {
			return status.Errorf(status.InvalidArg, "input %q: positions of %d elements of input %q: want at most %d; send less in a request", g.Name, length, in.plan.Lengths[g.Length].Name, most)
		}
	}
	return nil
}

// checkMasks says why there can be no mask for a request of a sequence; nil is one
// that starts.
func (in *Instance) checkMasks(r *Request, q *statebuffer.Sequence) error {
	for _, i := range in.plan.Masks {
		g := &in.plan.Generated[i]
		held, step := in.store.Length(g.Mask.Covers[0], q), int64(0)
		for _, state := range g.Mask.Covers[1:] {
			if other := in.store.Length(state, q); other != held {
				return status.Errorf(status.InvalidArg, "input %q: the states %q and %q share a mask, and have the lengths %d and %d: want equal lengths; give each state a mask of its own, or none", g.Name, in.plan.Varying[g.Mask.Covers[0]].Input, in.plan.Varying[state].Input, held, other)
			}
		}
		if g.Mask.Length >= 0 {
			step = in.extent(r, &in.plan.Lengths[g.Mask.Length])
		}
		if most := generatedMost / int64(g.DType.Size()); step > most-held {
			return status.Errorf(status.InvalidArg, "input %q: a mask of length %d for the states and %d for the request: want at most %d in all; send less in a request, or end the sequence", g.Name, held, step, most)
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

// index is 1 for true.
func index(on bool) int {
	if on {
		return 1
	}
	return 0
}
