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

func (t *Transfer) gatherLane(lane int, slot []byte) {
	piece, stride := t.PieceBytes, int64(t.Lanes)*t.PieceBytes
	at := int64(lane) * piece
	if t.Convert == Half {
		for x := range t.Pieces {
			tensor.Widens(t.Tensor.Bytes[at+x*stride:][:piece], slot[x*piece/2:])
		}
		return
	}
	for x := range t.Pieces {
		copy(t.Tensor.Bytes[at+x*stride:][:piece], slot[x*piece:])
	}
}

func (t *Transfer) scatterLane(lane int, slot []byte) {
	piece, stride := t.PieceBytes, int64(t.Lanes)*t.PieceBytes
	at := int64(lane) * piece
	if t.Convert == Half {
		clamped := uint64(0)
		for x := range t.Pieces {
			clamped += tensor.Halves(slot[x*piece/2:][:piece/2], t.Tensor.Bytes[at+x*stride:])
		}
		if t.Saturated != nil {
			*t.Saturated += clamped
		}
		return
	}
	for x := range t.Pieces {
		copy(slot[x*piece:(x+1)*piece], t.Tensor.Bytes[at+x*stride:])
	}
}
