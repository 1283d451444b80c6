package devicememory

import (
	"errors"

	"tritonstateful/statebuffer"
)

// copies does what move does, without kernels: one copy for each piece of each lane.
// It is slow: some microseconds a copy.
func (m *Memory) copies(transfers []statebuffer.Transfer, gather bool) error {
	for i := range transfers {
		t := &transfers[i]
		do := m.copyLanes
		if t.Convert == statebuffer.Half {
			do = m.convertOnHost
		}
		if err := do(t, gather); err != nil {
			return err
		}
	}
	return nil
}

// storedAt returns the slot that a lane reads or writes, or a block without address.
func storedAt(t *statebuffer.Transfer, lane int, gather bool) statebuffer.Block {
	stored := t.StoredBytes()
	if lane < len(t.Slots) && t.Slots[lane].Chunk >= 0 {
		slot := t.Slots[lane]
		return t.Chunks[slot.Chunk].At(int64(slot.Index)*stored, stored)
	}
	if gather {
		return t.Initial
	}
	return statebuffer.Block{}
}

func lanesOf(t *statebuffer.Transfer, gather bool) int {
	if gather {
		return t.Lanes
	}
	return len(t.Slots)
}

func (m *Memory) copyLanes(t *statebuffer.Transfer, gather bool) error {
	for lane := range lanesOf(t, gather) {
		slot := storedAt(t, lane, gather)
		if slot.Addr == 0 {
			continue
		}
		for x := range t.Pieces {
			inSlot := slot.Addr + uint64(x*t.PieceBytes)
			inTensor := t.Tensor.Addr + uint64(t.Offset(x, t.Lanes, lane))
			to, from := inTensor, inSlot
			if !gather {
				to, from = inSlot, inTensor
			}
			if err := m.stream.Copy(to, from, t.PieceBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// convertOnHost moves a state that is stored in another precision: it copies slots
// and tensor to the host, where the conversion is.
func (m *Memory) convertOnHost(t *statebuffer.Transfer, gather bool) error {
	stored, lanes := t.StoredBytes(), lanesOf(t, gather)
	heap := &statebuffer.Heap{}
	slots, err := heap.Alloc(int64(lanes) * stored)
	if err != nil {
		return err
	}
	tensor, err := heap.Alloc(int64(t.Lanes) * t.LaneBytes())
	if err != nil {
		return err
	}
	onHost := *t
	onHost.Chunks, onHost.Initial, onHost.Tensor = []statebuffer.Block{slots}, slots, tensor
	onHost.Slots = make([]statebuffer.Slot, lanes)
	for lane := range lanes {
		onHost.Slots[lane] = statebuffer.Slot{Index: int32(lane)}
		slot := storedAt(t, lane, gather)
		if slot.Addr == 0 {
			onHost.Slots[lane] = statebuffer.NoSlot
		} else if gather {
			err = errors.Join(err, m.Download(slots.At(int64(lane)*stored, stored).Bytes, slot))
		}
	}
	if err != nil {
		return err
	}
	if gather {
		if err := statebuffer.GatherHost([]statebuffer.Transfer{onHost}); err != nil {
			return err
		}
		return m.Upload(t.Tensor, tensor.Bytes)
	}
	if err := m.Download(tensor.Bytes, t.Tensor); err != nil {
		return err
	}
	if err := statebuffer.ScatterHost([]statebuffer.Transfer{onHost}); err != nil {
		return err
	}
	for lane := range lanes {
		if slot := storedAt(t, lane, gather); slot.Addr != 0 {
			err = errors.Join(err, m.Upload(slot, slots.At(int64(lane)*stored, stored).Bytes))
		}
	}
	return err
}
