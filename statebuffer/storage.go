package statebuffer

import (
	"fmt"
	"slices"

	"tritonstateful/internal/tensor"
)

// State describes one state of a model to a store.
type State struct {
	Name string
	// DType and Shape are of one lane: 1 at the batch axis. They describe the values in a
	// Snapshot; nothing else needs them.
	DType tensor.DType
	Shape tensor.Shape
	// Layout of one lane in the batched tensors of a run.
	Layout
	Convert Conversion
	// Initial is the value that a START reads, Layout.LaneBytes long; nil means
	// all zero bytes.
	Initial []byte
}

// StoredBytes is the size of one sequence's value in the store.
func (s *State) StoredBytes() int64 {
	if s.Convert == Half {
		return s.LaneBytes() / 2
	}
	return s.LaneBytes()
}

// storedDType is the type of its elements in the store.
func (s *State) storedDType() tensor.DType {
	if s.Convert == Half {
		return tensor.FP16
	}
	return s.DType
}

// storage is the memory of a store's states of fixed shape.
type storage struct {
	memory   Memory
	states   []State
	chunks   [][]Block // [state][chunk] has that state's slots
	initial  []Block   // of each state
	in, out  []Block   // batched tensors of maxLanes lanes, of each state
	maxLanes int
}

// allocate makes everything but the chunks.
func (s *storage) allocate() error {
	s.chunks = make([][]Block, len(s.states))
	for i := range s.states {
		st := &s.states[i]
		initial, err := s.alloc(st, "the initial value", st.StoredBytes())
		if err != nil {
			return err
		}
		s.initial = append(s.initial, initial)
		in, err := s.alloc(st, "the batched input", st.BatchBytes(s.maxLanes))
		if err != nil {
			return err
		}
		s.in = append(s.in, in)
		out, err := s.alloc(st, "the batched output", st.BatchBytes(s.maxLanes))
		if err != nil {
			return err
		}
		s.out = append(s.out, out)
		if err := s.writeInitial(i); err != nil {
			return err
		}
	}
	return nil
}

func (s *storage) alloc(st *State, what string, bytes int64) (Block, error) {
	b, err := s.memory.Alloc(bytes)
	if err != nil {
		return b, fmt.Errorf("state %q: %s: %w", st.Name, what, err)
	}
	return b, nil
}

// writeInitial puts the initial value of state i where InitialSlot finds it: it goes
// through a batched tensor of one lane, so that it is converted as any value is.
func (s *storage) writeInitial(i int) error {
	st := &s.states[i]
	if st.Initial == nil {
		return nil
	}
	if int64(len(st.Initial)) != st.LaneBytes() {
		return fmt.Errorf("state %q: the initial value has %d bytes: want %d", st.Name, len(st.Initial), st.LaneBytes())
	}
	if err := write(s.memory, s.in[i], st.Initial); err != nil {
		return fmt.Errorf("state %q: the initial value: %w", st.Name, err)
	}
	return s.memory.Scatter([]Transfer{{
		Layout: st.Layout, Convert: st.Convert, Chunks: s.initial[i : i+1],
		Slots: []Slot{{}}, Tensor: s.in[i], Lanes: 1,
	}})
}

// growChunk allocates a chunk of that many slots for every state, or nothing. It
// returns the block of each state, and is chunk number last.
func (s *storage) growChunk(last, slots int) (chunk []Block, err error) {
	defer func() {
		if chunk == nil { // also after a panic
			s.trim(last)
		}
	}()
	if err := CheckCapacity(s.memory, satMul(slots, s.SlotBytes())); err != nil {
		return nil, fmt.Errorf("a chunk of %d slots of %d bytes: %w", slots, s.SlotBytes(), err)
	}
	blocks := make([]Block, len(s.states))
	for i := range s.states {
		st := &s.states[i]
		blocks[i], err = s.alloc(st, fmt.Sprintf("a chunk of %d slots of %d bytes", slots, st.StoredBytes()), satMul(slots, st.StoredBytes()))
		if err != nil {
			return nil, err
		}
		s.chunks[i] = append(s.chunks[i], blocks[i])
	}
	return blocks, nil
}

// trim frees the chunks after the first ones.
func (s *storage) trim(chunks int) {
	for i := range s.chunks {
		for last := len(s.chunks[i]) - 1; last >= chunks; last-- {
			s.memory.Free(s.chunks[i][last])
			s.chunks[i] = s.chunks[i][:last]
		}
	}
}

// free gives back all memory.
func (s *storage) free() {
	s.trim(0)
	for _, b := range slices.Concat(s.initial, s.in, s.out) {
		s.memory.Free(b)
	}
	s.initial, s.in, s.out = nil, nil, nil
}

// canStayInPlace reports whether values may stay where runs wrote them: in memory that
// the host can copy, where nothing is converted.
func (s *storage) canStayInPlace() bool {
	for i := range s.states {
		if s.states[i].Convert != Same || s.in[i].Size > 0 && s.in[i].Bytes == nil {
			return false
		}
	}
	return true
}

// SlotBytes is what one sequence's values take, without varying states.
func (s *storage) SlotBytes() (n int64) {
	for i := range s.states {
		n += s.states[i].StoredBytes()
	}
	return n
}

// BatchBytes is the memory that the batched tensors take, whatever the number of
// sequences.
func (s *storage) BatchBytes() (n int64) {
	for _, b := range slices.Concat(s.in, s.out) {
		n += b.Size
	}
	return n
}
