package statebuffer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// State describes one state of a model to a store.
type State struct {
	Name string
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

// Store keeps the states of an instance's sequences. One goroutine uses it.
type Store struct {
	table
	varying varyingStore
	memory  Memory
	states  []State
	sizing  Sizing
	// chunks[state][chunk] holds that state's slots.
	chunks   [][]Block
	initial  []Block
	in, out  []Block // batched tensors of maxLanes lanes, per state
	maxLanes int

	roamer *roamer // nil: values lie in their slots

	step      Step
	transfers []Transfer
	left      []Block       // the slot that a sequence leaves behind, of each state
	retryAt   time.Duration // when a failed chunk allocation may be tried again
	backoff   time.Duration
}

// Options are what a Store is made of.
type Options struct {
	Memory Memory
	States []State
	// Varying are the states that no slot can hold.
	Varying []Varying
	Sizing  Sizing
	Limits  Limits
	// MaxLanes is the largest batch.
	MaxLanes int
	// InPlaceFrom is the size of a slot, in bytes, from which values stay where runs
	// wrote them, so that a step copies each of them once or not at all. Smaller
	// ones are copied from their slots and back, which costs less than knowing
	// where they are. 0 is the default; what is negative never roams.
	InPlaceFrom int64
}

// Bytes is what NewStore takes of the memory: the initial values, the batched
// tensors and the first chunk. Sequences may take more, later.
func (o *Options) Bytes() (n int64) {
	for i := range o.States {
		st := &o.States[i]
		n = SatAdd(n, st.StoredBytes(), satMul(o.Sizing.Initial, st.StoredBytes()), satMul(2, st.BatchBytes(o.MaxLanes)))
	}
	for i := range o.Varying {
		if layout, err := o.Varying[i].layout(o.Varying[i].InitialShape); err == nil {
			n = SatAdd(n, layout.LaneBytes())
		}
	}
	return n
}

// defaultInPlaceFrom is where BenchmarkRoam sees the two ways cost the same.
const defaultInPlaceFrom = 4 << 10

// NewStore allocates the first chunk and the batched tensors. Close frees them.
func NewStore(o Options) (*Store, error) {
	s := &Store{
		table:    table{index: newIndex(), limits: o.Limits, total: o.Sizing.Total()},
		memory:   o.Memory,
		states:   o.States,
		sizing:   o.Sizing,
		chunks:   make([][]Block, len(o.States)),
		maxLanes: o.MaxLanes,
	}
	s.transfers = make([]Transfer, len(o.States))
	s.step.slots = make([]Slot, 0, o.MaxLanes)
	s.step.In, s.step.Out = make([]Block, len(o.States)), make([]Block, len(o.States))
	s.varying = varyingStore{memory: o.Memory, states: padable(o.Varying, o.Memory)}
	s.release, s.bound = s.vacate, s.growthBound
	if err := s.checkBudget(); err != nil {
		return nil, err
	}
	if err := s.allocate(cmp.Or(o.InPlaceFrom, defaultInPlaceFrom)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) allocate(inPlaceFrom int64) error {
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
	if err := s.varying.allocate(); err != nil {
		return err
	}
	if inPlaceFrom > 0 && s.SlotBytes() >= inPlaceFrom && s.canStayInPlace() {
		s.roamer = newRoamer(s.states, s.initial, [2][]Block{s.in, s.out}, s.maxLanes)
	}
	return s.grow(s.sizing.Initial)
}

// canStayInPlace reports whether values may stay where runs wrote them: in memory that
// the host can copy, where nothing is converted.
func (s *Store) canStayInPlace() bool {
	for i := range s.states {
		if s.states[i].Convert != Same || s.in[i].Size > 0 && s.in[i].Bytes == nil {
			return false
		}
	}
	return true
}

func (s *Store) alloc(st *State, what string, bytes int64) (Block, error) {
	b, err := s.memory.Alloc(bytes)
	if err != nil {
		return b, fmt.Errorf("state %q: %s: %w", st.Name, what, err)
	}
	return b, nil
}

// writeInitial puts the initial value of state i where InitialSlot finds it: it goes
// through a batched tensor of one lane, so that it is converted as any slot is.
func (s *Store) writeInitial(i int) error {
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

// grow allocates one chunk of that many slots for every state, or nothing.
func (s *Store) grow(slots int) error {
	whole := false
	defer func() {
		if !whole {
			s.trim(len(s.slots.chunks))
		}
	}()
	if err := CheckCapacity(s.memory, satMul(slots, s.SlotBytes())); err != nil {
		return fmt.Errorf("a chunk of %d slots of %d bytes: %w", slots, s.SlotBytes(), err)
	}
	for i := range s.states {
		st := &s.states[i]
		b, err := s.alloc(st, fmt.Sprintf("a chunk of %d slots of %d bytes", slots, st.StoredBytes()), satMul(slots, st.StoredBytes()))
		if err != nil {
			return err
		}
		s.chunks[i] = append(s.chunks[i], b)
	}
	s.slots.grow(slots)
	if s.roamer != nil {
		s.roamer.grow(s.lastChunk(), slots)
	}
	whole = true
	return nil
}

// lastChunk is the block of each state in the last chunk.
func (s *Store) lastChunk() []Block {
	blocks := make([]Block, len(s.chunks))
	for i, chunks := range s.chunks {
		blocks[i] = chunks[len(chunks)-1]
	}
	return blocks
}

// trim frees the chunks behind the first so many.
func (s *Store) trim(chunks int) {
	for i := range s.chunks {
		for last := len(s.chunks[i]) - 1; last >= chunks; last-- {
			s.memory.Free(s.chunks[i][last])
			s.chunks[i] = s.chunks[i][:last]
		}
	}
}

// shrink frees the last chunk, all of whose slots must be free and whose area empty.
func (s *Store) shrink() {
	if s.roamer != nil {
		s.roamer.shrink()
	}
	s.slots.shrink()
	s.trim(len(s.slots.chunks))
}

// Close frees all memory. The store must not be used afterwards.
func (s *Store) Close() {
	for _, list := range []sequenceList{s.live, s.older} {
		for q := list.first; q != nil; q = q.next {
			s.varying.release(q)
		}
	}
	s.varying.close()
	for _, blocks := range append(s.chunks, s.initial, s.in, s.out) {
		for _, b := range blocks {
			s.memory.Free(b)
		}
	}
	s.chunks, s.initial, s.in, s.out = nil, nil, nil, nil
}

// Touch finds a live sequence that a request names and notes that it is in use,
// so that it is not expired or evicted for others. It is nil when the sequence
// has no state.
func (s *Store) Touch(k Key, now time.Duration) *Sequence {
	q := s.Live(k)
	if q != nil {
		s.touch(q, now)
	}
	return q
}

// Answered notes that the START of a sequence was answered only after its batch, so that
// it idles from then on. It counts as asked for now, but is not in use.
func (s *Store) Answered(k Key, now time.Duration) {
	if q := s.Touch(k, now); q != nil {
		q.lastUse = s.ended
	}
}

// Live is Touch without noting anything.
func (s *Store) Live(k Key) *Sequence {
	if q := s.find(k); q != nil && q.loss == NotLost {
		return q
	}
	return nil
}

// Begin is the START of a sequence: its next step reads the initial values. A
// live sequence of the same key begins anew in its slot; nothing reads its old values
// any more, also after Undo, and the memory of those that vary is given back. One of the
// same ID with another token stays, for requests of it that are on their way, until its
// END or until its slot is needed. The error is a *FullError.
func (s *Store) Begin(k Key, now time.Duration) (*Sequence, error) {
	return s.BeginSettingAside(k, 0, now)
}

// BeginSettingAside is Begin after SetAside, if the token is not 0. What was set aside loses its
// slot if there is no other, even where it is in use: all its requests of this batch must
// have run.
func (s *Store) BeginSettingAside(k Key, token uint64, now time.Duration) (*Sequence, error) {
	q, err := s.begin(k, token, now)
	if err == nil {
		s.varying.release(q)
	}
	return q, err
}

// SetAside gives what is known of a sequence without a token that token, so that the key
// is free for one that begins. If it is live it stays, for requests of it that are on
// their way.
func (s *Store) SetAside(k Key, token uint64, now time.Duration) { s.setAside(k, token, now) }

// Knows reports whether there is anything under a key: a live sequence, or one that is
// remembered because it lost its state.
func (s *Store) Knows(k Key) bool { return s.find(k) != nil }

// Forget forgets whatever is known of a sequence that is over.
func (s *Store) Forget(k Key) { s.forget(k) }

// Continue finds the sequence of a request without START. The error is a
// *LostError.
func (s *Store) Continue(k Key, now time.Duration) (*Sequence, error) { return s.proceed(k, now) }

// Refuse is a START that cannot be served, for a reason of the caller's.
func (s *Store) Refuse(k Key, now time.Duration) { s.refuse(k, now) }

// Compatible reports whether two sequences can share a run: their varying states have
// equal shapes. A nil sequence is one that starts.
func (s *Store) Compatible(a, b *Sequence) bool { return s.varying.compatible(a, b) }

// End forgets a sequence, and nothing else if there is none.
func (s *Store) End(k Key) {
	if q := s.find(k); q != nil && q.loss == NotLost {
		s.finish(q)
	}
}

// Usage is what a store holds at a moment.
type Usage struct {
	Live, Free, Slots, Total, Chunks int
	Bytes                            int64 // of the chunks and of varying states
}

// Usage tells what the store holds now.
func (s *Store) Usage() Usage {
	u := Usage{Live: s.alive(), Free: s.slots.free, Slots: s.alive() + s.slots.free, Total: s.total, Chunks: len(s.slots.chunks)}
	u.Bytes = int64(u.Slots)*s.SlotBytes() + s.varying.bytes
	return u
}

// Sizing tells when chunks come and go.
func (s *Store) Sizing() Sizing { return s.sizing }

// SlotBytes is what one sequence takes in the store.
func (s *Store) SlotBytes() (n int64) {
	for i := range s.states {
		n += s.states[i].StoredBytes()
	}
	return n
}

// BatchBytes is the memory that the batched tensors take, whatever the number of
// sequences.
func (s *Store) BatchBytes() (n int64) {
	for _, b := range slices.Concat(s.in, s.out) {
		n += b.Size
	}
	return n
}

// Counters tells what has happened so far.
func (s *Store) Counters() Counters { return s.counters }

// Change is what Maintain did.
type Change struct {
	Grown, Shrunk bool
	Took          time.Duration
}

// Waits between attempts to allocate a chunk.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
)

// Maintain allocates a chunk when free slots run out, or frees the last one when
// many are free; at most one chunk a call. It is called after each batch. Values that
// live in the chunk to be freed are moved first, some of them in each call. After a
// failed allocation it waits, longer each time; sequences go on.
func (s *Store) Maintain(now func() time.Duration) (Change, error) {
	if !s.sizing.Lazy() {
		return Change{}, nil
	}
	chunks := len(s.slots.chunks)
	grows := chunks < s.sizing.MaxChunks && s.slots.free < s.sizing.AllocBelow && s.fits(s.nextChunk())
	shrinks := !grows && chunks > 1 && s.slots.free > s.sizing.DeallocAbove && s.slots.chunks[chunks-1].free == s.sizing.Subsequent
	if s.roamer != nil && !shrinks {
		s.roamer.reopen()
	}
	switch {
	case grows:
		start := now()
		if start < s.retryAt {
			return Change{}, nil
		}
		if err := s.grow(s.sizing.Subsequent); err != nil {
			s.backoff = min(max(2*s.backoff, firstBackoff), lastBackoff)
			s.retryAt = start + s.backoff
			return Change{}, err
		}
		s.backoff = 0
		return Change{Grown: true, Took: now() - start}, nil
	case shrinks:
		start := now()
		empty := s.roamer == nil || s.roamer.drain()
		if empty {
			s.shrink()
		}
		return Change{Shrunk: empty, Took: now() - start}, nil
	}
	return Change{}, nil
}

// errStepOpen is a mistake of the caller.
var errStepOpen = errors.New("statebuffer: a step was begun before the last one was committed or aborted")
