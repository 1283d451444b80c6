package statebuffer

import (
	"fmt"

	"tritonstateful/internal/tensor"
)

// Varying describes a state whose extents differ from sequence to sequence and
// from step to step, such as a cache that grows. Each sequence has memory of its
// own for it, which it gives back when it ends.
type Varying struct {
	Name  string
	DType tensor.DType
	// Axis is the batch axis, or negative for a state that has none; every run
	// has one lane then.
	Axis int
	// InitialShape and Initial are the value that a START reads: the shape of
	// one lane, so with extent 1 at Axis, and its bytes; nil means zero bytes.
	InitialShape tensor.Shape
	Initial      []byte
	// MaxBytes bounds the value of one sequence.
	MaxBytes int64
	// Update is what becomes of a run's output, and AppendAxis where Append puts it;
	// that is not the batch axis.
	Update     Update
	AppendAxis int
	// LeftPadded: sequences whose values differ in length, which is the extent at
	// PadAxis, can share a run. Such a state is one that runs Replace.
	LeftPadded bool
	PadAxis    int
}

// layout is that of a lane of the given shape.
func (v *Varying) layout(shape tensor.Shape) (Layout, error) {
	return LayoutOf(shape, v.Axis, v.DType)
}

// fits reports whether a run of that many lanes can have written such a tensor.
func (v *Varying) fits(io *VaryingIO, lanes int) bool {
	return len(io.OutShape) == len(v.InitialShape) && (v.Axis < 0 || io.OutShape[v.Axis] == int64(lanes) || v.unchanged(io))
}

// value is what one sequence holds of a varying state.
type value struct {
	block Block // its capacity, at least as much as the shape needs
	shape tensor.Shape
}

// VaryingIO is a varying state in a step.
type VaryingIO struct {
	// In and InShape are the batched tensor to bind.
	In      Block
	InShape tensor.Shape
	// Out and OutShape are set by the caller after the run, before Commit: the
	// batched tensor that the model wrote.
	Out      Block
	OutShape tensor.Shape
	// Uneven: the lanes differ in length, so that the shorter ones are padded. Their new
	// values are right if OutShape is longer than InShape, at PadAxis, by what each of
	// them would have got alone. Only the caller can know that.
	Uneven bool
}

// varyingStore is the part of a Store for varying states: each value has a block of its
// own, which grows by powers of two.
type varyingStore struct {
	memory  Memory
	states  []Varying
	initial []Block
	inputs  []Scratch // batched inputs
	io      []VaryingIO
	slots   []Slot
	chunks  []Block
	value   Scratch // one lane of a padded state
	bytes   int64   // held by sequences
}

func (s *varyingStore) allocate() error {
	s.io = make([]VaryingIO, len(s.states))
	s.inputs = make([]Scratch, len(s.states))
	for i := range s.states {
		v := &s.states[i]
		layout, err := v.layout(v.InitialShape)
		if err != nil {
			return fmt.Errorf("state %q: the initial value: %w", v.Name, err)
		}
		if v.Initial != nil && int64(len(v.Initial)) != layout.LaneBytes() {
			return fmt.Errorf("state %q: the initial value has %d bytes: want %d for shape %v", v.Name, len(v.Initial), layout.LaneBytes(), v.InitialShape)
		}
		b, err := s.memory.Alloc(layout.LaneBytes())
		if err != nil {
			return fmt.Errorf("state %q: the initial value: %w", v.Name, err)
		}
		s.initial = append(s.initial, b)
		if err := write(s.memory, b, v.Initial); err != nil {
			return fmt.Errorf("state %q: the initial value: %w", v.Name, err)
		}
	}
	return nil
}

func (s *varyingStore) close() {
	for _, b := range s.initial {
		s.free(b)
	}
	for i := range s.inputs {
		s.inputs[i].Free(s.memory)
	}
	s.value.Free(s.memory)
	s.initial, s.inputs = nil, nil
}

func (s *varyingStore) free(b Block) {
	if b.Size > 0 {
		s.memory.Free(b)
	}
}

// release gives back what a sequence holds.
func (s *varyingStore) release(q *Sequence) {
	for i := range q.values {
		s.bytes -= q.values[i].block.Size
		s.free(q.values[i].block)
	}
	if len(q.values) > 0 {
		clear(q.values)
		q.values = q.values[:0]
	}
}

// shape is that of the value which the next step of q reads.
func (s *varyingStore) shape(i int, q *Sequence) tensor.Shape {
	if q == nil || q.fresh {
		return s.states[i].InitialShape
	}
	return q.values[i].shape
}

// gather lays out the states of lanes that are Compatible.
func (s *varyingStore) gather(lanes []Lane, width int) error {
	s.value.Begin(s.memory)
	for i := range s.states {
		v, io := &s.states[i], &s.io[i]
		shape, uneven := s.longest(i, lanes)
		layout, err := v.layout(shape)
		if err != nil {
			return err
		}
		*io = VaryingIO{InShape: shape.With(v.Axis, int64(width)), Uneven: uneven}
		s.inputs[i].Begin(s.memory)
		if err := s.inputs[i].Reserve(s.memory, int64(width)*layout.LaneBytes()); err != nil {
			return fmt.Errorf("state %q: the batched input: %w", v.Name, err)
		}
		io.In = s.inputs[i].At(0, int64(width)*layout.LaneBytes())
		s.chunks, s.slots = s.chunks[:0], s.slots[:0]
		for lane, l := range lanes {
			s.slots, s.chunks = append(s.slots, Slot{Chunk: int32(lane)}), append(s.chunks, s.source(i, l.Sequence))
		}
		pad := s.initial[i]
		if width > len(lanes) && !shape.Equal(v.InitialShape) {
			pad = s.chunks[0] // what a padding lane computes is discarded; only its shape matters
		}
		t := Transfer{Layout: layout, Chunks: s.chunks, Initial: pad, Slots: s.slots, Tensor: io.In, Lanes: width}
		if uneven {
			err = s.gatherPadded(i, &t, lanes, shape)
		} else {
			err = s.memory.Gather([]Transfer{t})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// source is what the next step of a sequence reads.
func (s *varyingStore) source(i int, q *Sequence) Block {
	if q == nil || q.fresh {
		return s.initial[i]
	}
	return q.values[i].block
}

// GrewError says that a state of a sequence would exceed its bound.
type GrewError struct {
	State       string
	Shape       tensor.Shape
	Bytes, Most int64
}

func (e *GrewError) Error() string {
	return fmt.Sprintf("state %q would grow to %d bytes with shape %v: at most %d bytes are allowed (max_state_bytes); end the sequence, or raise the limit", e.State, e.Bytes, e.Shape, e.Most)
}

// growth checks the outputs of a run and returns how much more memory the lanes'
// sequences need for them.
func (s *varyingStore) growth(lanes []Lane, width int) (more int64, err error) {
	for i := range s.states {
		bytes, err := s.written(i, width)
		if err != nil {
			return 0, err
		}
		for _, l := range lanes {
			own := s.ownBytes(i, l.Sequence, bytes)
			if has := s.capacity(i, l.Sequence); l.commits() && has < own {
				more += Capacity(own) - has
			}
		}
	}
	return more, nil
}

// written is the size of a lane's value after what the model wrote.
func (s *varyingStore) written(i, width int) (int64, error) {
	v, io := &s.states[i], &s.io[i]
	if !v.fits(io, width) {
		return 0, v.misfit(io, width)
	}
	if err := v.checkPadded(io); err != nil {
		return 0, err
	}
	shape, err := v.next(io)
	if err != nil {
		return 0, err
	}
	layout, err := v.layout(shape)
	if err != nil {
		return 0, fmt.Errorf("state %q: %w", v.Name, err)
	}
	if v.MaxBytes > 0 && layout.LaneBytes() > v.MaxBytes {
		return 0, &GrewError{State: v.Name, Shape: shape, Bytes: layout.LaneBytes(), Most: v.MaxBytes}
	}
	return layout.LaneBytes(), nil
}

// capacity is how much a sequence has for a state.
func (s *varyingStore) capacity(i int, q *Sequence) int64 {
	if q == nil || i >= len(q.values) {
		return 0
	}
	return q.values[i].block.Size
}

// heldBy is what a run's sequences have for all states.
func (s *varyingStore) heldBy(lanes []Lane) (bytes int64) {
	for _, l := range lanes {
		for i := range s.states {
			bytes += s.capacity(i, l.Sequence)
		}
	}
	return bytes
}

// reserve allocates what the outputs of a run need, which growth has checked.
func (s *varyingStore) reserve(lanes []Lane, width int) error {
	for i := range s.states {
		bytes, err := s.written(i, width)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			if err := s.reserveValue(l, i, s.ownBytes(i, l.Sequence, bytes)); err != nil {
				return fmt.Errorf("state %q: %w", s.states[i].Name, err)
			}
		}
		if err := s.reservePadded(i); err != nil {
			return err
		}
	}
	return nil
}

// reserveValue makes sure that the block of a lane's sequence can take a value of that
// size. The old value stays in it until commit.
func (s *varyingStore) reserveValue(l Lane, i int, bytes int64) error {
	q := l.Sequence
	if !l.commits() {
		return nil
	}
	own := q.own()
	if own.values == nil {
		own.values = make([]value, 0, len(s.states))
	}
	for len(own.values) <= i {
		own.values = append(own.values, value{})
	}
	old := &own.values[i].block
	if old.Size >= bytes {
		return nil
	}
	grown, err := s.memory.Alloc(Capacity(bytes))
	if err != nil {
		return err
	}
	move := Transfer{Layout: Layout{Pieces: 1, PieceBytes: old.Size}, Chunks: []Block{*old}, Slots: []Slot{{}}, Tensor: grown, Lanes: 1}
	if err := s.memory.Gather([]Transfer{move}); err != nil {
		s.memory.Free(grown)
		return err
	}
	s.bytes += grown.Size - old.Size
	s.free(*old)
	*old = grown
	return nil
}

// commit stores the outputs that reserve has made room for.
func (s *varyingStore) commit(lanes []Lane, width int) error {
	for i := range s.states {
		v, io := &s.states[i], &s.io[i]
		shape, err := v.next(io)
		if err != nil {
			return err
		}
		switch {
		case io.Uneven:
			err = s.commitPadded(i, lanes, width)
		case v.unchanged(io):
			err = s.commitOld(i, lanes, width, shape)
		case v.Update == Append && io.InShape[v.AppendAxis] > 0:
			err = s.commitAppended(i, lanes, width, shape)
		default:
			err = s.commitNew(i, lanes, width, shape)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commitNew stores outputs of one shape as they are.
func (s *varyingStore) commitNew(i int, lanes []Lane, width int, shape tensor.Shape) error {
	layout, err := s.states[i].layout(shape)
	if err != nil {
		return err
	}
	s.destinations(i, lanes, func(*Sequence) bool { return true })
	setShapes(i, lanes, shape)
	return s.memory.Scatter([]Transfer{{Layout: layout, Chunks: s.chunks, Slots: s.slots, Tensor: s.io[i].Out, Lanes: width}})
}
