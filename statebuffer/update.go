package statebuffer

import (
	"fmt"
	"slices"

	"tritonstateful/internal/tensor"
)

// Update is how what a run writes becomes the value of a varying state.
type Update uint8

const (
	// Replace means that it is the new value.
	Replace Update = iota
	// Append means that it is put after the old value, along Varying.AppendAxis.
	Append
	// KeepIfEmpty means that it is the new value, unless it has no elements; then the
	// old value stays. Models write such outputs where they have nothing new, even
	// without a lane for each lane.
	KeepIfEmpty
)

// unchanged reports whether a run leaves the values as they are.
func (v *Varying) unchanged(io *VaryingIO) bool {
	return v.Update == KeepIfEmpty && slices.Contains(io.OutShape, 0)
}

// misfit is why a run of that many lanes cannot have written what it has.
func (v *Varying) misfit(io *VaryingIO, lanes int) error {
	batch, remedy := "", ""
	if v.Axis >= 0 {
		batch = fmt.Sprintf(" with the batch at axis %d", v.Axis)
	}
	if v.Update != KeepIfEmpty && slices.Contains(io.OutShape, 0) {
		remedy = fmt.Sprintf("; if the model writes nothing to keep the old value, as merged decoders do, write parameters { key: \"state_updates\" value { string_value: \"%s = keep\" } }, where * in the name matches any text", v.Name)
	}
	return fmt.Errorf("state %q: the model wrote shape %v for %d lanes: want rank %d%s%s", v.Name, io.OutShape, lanes, len(v.InitialShape), batch, remedy)
}

// next is the shape of a lane's value after a run that has written OutShape.
func (v *Varying) next(io *VaryingIO) (tensor.Shape, error) {
	old, wrote := io.InShape.With(v.Axis, 1), io.OutShape.With(v.Axis, 1)
	axis := v.AppendAxis
	switch {
	case v.unchanged(io):
		return old, nil
	case v.Update != Append || old[axis] == 0: // also where other extents were not known at the start
		return wrote, nil
	case !wrote.With(axis, 0).Equal(old.With(axis, 0)):
		return nil, fmt.Errorf("state %q: the model wrote shape %v to be appended at axis %d to a value of shape %v: all other extents must be equal", v.Name, wrote, axis, old)
	}
	return old.With(axis, old[axis]+wrote[axis]), nil
}

// commitOld stores what the lanes have read, for those whose sequences have no value
// of their own yet.
func (s *varyingStore) commitOld(i int, lanes []Lane, width int, shape tensor.Shape) error {
	layout, err := s.states[i].layout(shape)
	if err != nil {
		return err
	}
	s.destinations(i, lanes, func(q *Sequence) bool { return q.fresh })
	setShapes(i, lanes, shape)
	return s.memory.Scatter([]Transfer{{Layout: layout, Chunks: s.chunks, Slots: s.slots, Tensor: s.io[i].In, Lanes: width}})
}

// destinations names for each lane the block of its sequence, if the lane commits
// and the sequence is wanted.
func (s *varyingStore) destinations(i int, lanes []Lane, wanted func(*Sequence) bool) {
	s.chunks, s.slots = s.chunks[:0], s.slots[:0]
	for lane, l := range lanes {
		slot, block := NoSlot, Block{}
		if l.commits() && wanted(l.Sequence) {
			slot, block = Slot{Chunk: int32(lane)}, l.Sequence.values[i].block
		}
		s.slots, s.chunks = append(s.slots, slot), append(s.chunks, block)
	}
}

func setShapes(i int, lanes []Lane, shape tensor.Shape) {
	for _, l := range lanes {
		if l.commits() {
			l.Sequence.values[i].shape = shape
		}
	}
}

// commitAppended stores the lanes' values with what the run wrote after them. The
// batched input still holds the old values, so nothing is moved onto itself.
func (s *varyingStore) commitAppended(i int, lanes []Lane, width int, joined tensor.Shape) error {
	v, io := &s.states[i], &s.io[i]
	old := io.InShape[v.AppendAxis]
	before, err := v.strip(io.InShape, 0, joined)
	if err != nil {
		return err
	}
	after, err := v.strip(io.OutShape, old, joined)
	if err != nil {
		return err
	}
	// A value in one piece that is there already only gets longer.
	there := before.pieces*before.parts == 1
	var transfers []Transfer
	s.destinations(i, lanes, func(q *Sequence) bool { return q.fresh || !there })
	transfers = before.transfers(transfers, io.In, width, s.slots, s.chunks)
	s.destinations(i, lanes, func(*Sequence) bool { return true })
	transfers = after.transfers(transfers, io.Out, width, s.slots, s.chunks)
	setShapes(i, lanes, joined)
	return s.memory.Scatter(transfers)
}

// strip is a batched tensor as a part of longer values: some extents of the axis
// along which they grow. What lies outside of that axis cuts it into pieces, one
// after the other in a value. Where the batch is among it, the extents outside of
// the batch count as pieces, and those between the two as parts of each.
type strip struct {
	pieces, parts int64
	layout        Layout // of one part of one piece in the batched tensor
	first, stride int64  // where they are in the longer value, in bytes
}

// strip returns where a tensor of that shape is in values of the joined shape, from
// an extent of the append axis on.
func (v *Varying) strip(shape tensor.Shape, from int64, joined tensor.Shape) (strip, error) {
	axis := v.AppendAxis
	lane := shape.With(v.Axis, 1)
	bytes, err := lane.Bytes(v.DType)
	if bytes == 0 || err != nil { // there may be very many pieces of nothing
		return strip{}, err
	}
	pieces, parts := elements(lane[:axis]), int64(1)
	if v.Axis < axis {
		pieces, parts = elements(lane[:max(v.Axis, 0)]), elements(lane[v.Axis+1:axis])
	}
	piece := bytes / (pieces * parts)
	unit := piece / shape[axis]
	st := strip{pieces: pieces, parts: parts, layout: Layout{Pieces: 1, PieceBytes: piece}, first: from * unit, stride: joined[axis] * unit}
	if axis < v.Axis {
		st.layout, err = LayoutOf(lane[axis:], v.Axis-axis, v.DType)
	}
	return st, err
}

// elements is their product; the tensor that they are of has a size.
func elements(extents tensor.Shape) (n int64) {
	n = 1
	for _, d := range extents {
		n *= d
	}
	return n
}

// transfers adds what brings a strip to the lanes' values, which are the slots of
// that many chunks.
func (st *strip) transfers(to []Transfer, from Block, width int, slots []Slot, values []Block) []Transfer {
	piece := st.layout.LaneBytes()
	group := int64(width) * st.parts * piece
	for p := range st.pieces {
		given := len(slots) * int(st.parts)
		t := Transfer{
			Layout: st.layout, Tensor: from.At(p*group, group), Lanes: width * int(st.parts),
			Slots: make([]Slot, 0, given), Chunks: make([]Block, 0, given),
		}
		for lane := range slots {
			for part := range st.parts {
				slot, block := NoSlot, Block{}
				if slots[lane] != NoSlot {
					slot, block = Slot{Chunk: int32(len(t.Chunks))}, values[lane].At(st.first+(p*st.parts+part)*st.stride, piece)
				}
				t.Slots, t.Chunks = append(t.Slots, slot), append(t.Chunks, block)
			}
		}
		to = append(to, t)
	}
	return to
}
