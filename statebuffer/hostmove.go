package statebuffer

import "tritonstateful/internal/tensor"

// GatherHost is Memory.Gather for memory that the host can address.
func GatherHost(transfers []Transfer) error {
	for i := range transfers {
		t := &transfers[i]
		stored := t.StoredBytes()
		for lane, slot := range t.Slots {
			t.gatherLane(lane, t.source(slot, stored))
		}
		for lane := len(t.Slots); lane < t.Lanes; lane++ {
			t.gatherLane(lane, t.Initial.Bytes)
		}
	}
	return nil
}

// ScatterHost is Memory.Scatter for memory that the host can address.
func ScatterHost(transfers []Transfer) error {
	for i := range transfers {
		t := &transfers[i]
		stored := t.StoredBytes()
		for lane, slot := range t.Slots {
			if slot != NoSlot {
				t.scatterLane(lane, t.source(slot, stored))
			}
		}
	}
	return nil
}

// ClearHost is Memory.Clear for memory that the host can address.
func ClearHost(blocks []Block) {
	for i := range blocks {
		clear(blocks[i].Bytes)
	}
}

func (t *Transfer) source(slot Slot, stored int64) []byte {
	if slot == InitialSlot {
		return t.Initial.Bytes
	}
	offset := int64(slot.Index) * stored
	return t.Chunks[slot.Chunk].Bytes[offset : offset+stored]
}

// gatherLane copies a stored value to a lane of the tensor.
func (t *Transfer) gatherLane(lane int, stored []byte) {
	if t.Convert != Half {
		t.PutLane(t.Tensor.Bytes, t.Lanes, lane, stored)
		return
	}
	for piece := range t.Pieces {
		at := t.Offset(piece, t.Lanes, lane)
		tensor.Widens(t.Tensor.Bytes[at:][:t.PieceBytes], stored[piece*t.PieceBytes/2:])
	}
}

// scatterLane copies a lane of the tensor to a stored value.
func (t *Transfer) scatterLane(lane int, stored []byte) {
	if t.Convert != Half {
		t.TakeLane(stored, t.Tensor.Bytes, t.Lanes, lane)
		return
	}
	clamped := uint64(0)
	for piece := range t.Pieces {
		at := t.Offset(piece, t.Lanes, lane)
		clamped += tensor.Halves(stored[piece*t.PieceBytes/2:][:t.PieceBytes/2], t.Tensor.Bytes[at:])
	}
	if t.Saturated != nil {
		*t.Saturated += clamped
	}
}
