package statebuffer

import "tritonstateful/internal/tensor"

// GatherHost is Memory.Gather for memory that the host can address.
func GatherHost(transfers []Transfer) error {
	for i := range transfers {
		t := &transfers[i]
		stored := t.StoredBytes()
		for lane, row := range t.Rows {
			t.gatherLane(lane, t.source(row, stored))
		}
		for lane := len(t.Rows); lane < t.Lanes; lane++ {
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
		for lane, row := range t.Rows {
			if row != NoRow {
				t.scatterLane(lane, t.source(row, stored))
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

func (t *Transfer) source(row Row, stored int64) []byte {
	if row == InitRow {
		return t.Initial.Bytes
	}
	offset := int64(row.Index) * stored
	return t.Chunks[row.Chunk].Bytes[offset : offset+stored]
}

func (t *Transfer) gatherLane(lane int, row []byte) {
	piece, stride := t.RunBytes, int64(t.Lanes)*t.RunBytes
	at := int64(lane) * piece
	if t.Convert == Half {
		for x := range t.Runs {
			tensor.Widens(t.Tensor.Bytes[at+x*stride:][:piece], row[x*piece/2:])
		}
		return
	}
	for x := range t.Runs {
		copy(t.Tensor.Bytes[at+x*stride:][:piece], row[x*piece:])
	}
}

func (t *Transfer) scatterLane(lane int, row []byte) {
	piece, stride := t.RunBytes, int64(t.Lanes)*t.RunBytes
	at := int64(lane) * piece
	if t.Convert == Half {
		clamped := uint64(0)
		for x := range t.Runs {
			clamped += tensor.Halves(row[x*piece/2:][:piece/2], t.Tensor.Bytes[at+x*stride:])
		}
		if t.Saturated != nil {
			*t.Saturated += clamped
		}
		return
	}
	for x := range t.Runs {
		copy(row[x*piece:(x+1)*piece], t.Tensor.Bytes[at+x*stride:])
	}
}
