package statebuffer

import "fmt"

// copiedValues is the placement in which each value stays in its sequence's slot. A step
// copies the values to the batched inputs, and what the run wrote back to the slots. It
// works in any Memory.
type copiedValues struct {
	*storage
	saturated *uint64 // counts elements that did not fit into FP16
	slots     []Slot  // of the lanes of the step
	transfers []Transfer
	slot      []Block // of one sequence, of each state
}

func newCopiedValues(st *storage, saturated *uint64) *copiedValues {
	return &copiedValues{
		storage: st, saturated: saturated, slots: make([]Slot, 0, st.maxLanes),
		transfers: make([]Transfer, len(st.states)), slot: make([]Block, len(st.states)),
	}
}

func (c *copiedValues) arrange([]Lane) []int { return nil }

func (c *copiedValues) disarrange() {}

func (c *copiedValues) gather(step *Step) error {
	copy(step.In, c.in)
	copy(step.Out, c.out)
	c.slots = c.slots[:0]
	for _, l := range step.lanes {
		slot := InitialSlot
		if q := l.Sequence; q != nil && !q.fresh {
			slot = q.slot
		}
		c.slots = append(c.slots, slot)
	}
	return c.memory.Gather(c.transfersOf(c.in, step.width))
}

func (c *copiedValues) commit(step *Step) error {
	for i := range step.lanes {
		c.slots[i] = NoSlot
		if l := &step.lanes[i]; l.commits() {
			c.slots[i] = l.Sequence.slot
		}
	}
	return c.memory.Scatter(c.transfersOf(c.out, step.width))
}

// transfersOf are those between the lanes' slots and batched tensors.
func (c *copiedValues) transfersOf(tensors []Block, width int) []Transfer {
	for i := range c.states {
		st := &c.states[i]
		c.transfers[i] = Transfer{
			Layout:    st.Layout,
			Convert:   st.Convert,
			Chunks:    c.chunks[i],
			Initial:   c.initial[i],
			Slots:     c.slots,
			Tensor:    tensors[i],
			Lanes:     width,
			Saturated: c.saturated,
		}
	}
	return c.transfers
}

func (c *copiedValues) abort() {}

func (c *copiedValues) release(q *Sequence) { c.memory.Clear(c.slotOf(q)) }

func (c *copiedValues) read(q *Sequence, to []byte) error { return read(c.memory, to, c.slotOf(q)) }

func (c *copiedValues) write(q *Sequence, values [][]byte) error {
	for i, block := range c.slotOf(q) {
		if err := write(c.memory, block, values[i]); err != nil {
			return fmt.Errorf("state %q: %w", c.states[i].Name, err)
		}
	}
	return nil
}

func (c *copiedValues) pin(*Sequence) *pin { return nil }

func (c *copiedValues) collect() {}

func (c *copiedValues) close() {}

// slotOf is the slot of a sequence, of each state; it is valid until the next call.
func (c *copiedValues) slotOf(q *Sequence) []Block {
	for i := range c.states {
		bytes := c.states[i].StoredBytes()
		c.slot[i] = c.chunks[i][q.slot.Chunk].At(int64(q.slot.Index)*bytes, bytes)
	}
	return c.slot
}

func (c *copiedValues) grow([]Block, int) {}

func (c *copiedValues) drain() (empty bool) { return true }

func (c *copiedValues) undrain() {}

func (c *copiedValues) shrink() {}
