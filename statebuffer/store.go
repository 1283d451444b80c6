package statebuffer

import (
	"cmp"
	"slices"
	"time"
)

// Store keeps the states of an instance's sequences. For each batch it is told BeginBatch,
// then of each request Begin (a START) or Continue, which give its Sequence, then of each
// run Gather and Commit or Abort, and at last EndBatch and Maintain. One goroutine uses it.
// Times are durations since any fixed moment, by a clock that never goes back.
type Store struct {
	table
	storage
	placement placement // of the states of fixed shape
	varying   varyingStore
	sizing    Sizing
	step      Step
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
	// inPlaceFrom is the size of a slot, in bytes, from which values stay where runs
	// wrote them, so that a step copies each of them once or not at all. Smaller
	// ones are copied from their slots and back, which costs less than keeping track
	// of where they are. 0 is the default; with a negative size all are copied.
	inPlaceFrom int64
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

// defaultInPlaceFrom is where BenchmarkInPlace sees the two ways cost the same.
const defaultInPlaceFrom = 4 << 10

// NewStore allocates the first chunk and the batched tensors. Close frees them.
func NewStore(o Options) (*Store, error) {
	s := &Store{
		table:   table{index: newIndex(), limits: o.Limits, total: o.Sizing.Total()},
		storage: storage{memory: o.Memory, states: o.States, maxLanes: o.MaxLanes},
		varying: varyingStore{memory: o.Memory, states: padable(o.Varying, o.Memory)},
		sizing:  o.Sizing,
	}
	s.step.In, s.step.Out = make([]Block, len(o.States)), make([]Block, len(o.States))
	s.release, s.bound = s.releaseValues, s.growthBound
	if err := s.checkBudget(); err != nil {
		return nil, err
	}
	if err := s.allocate(cmp.Or(o.inPlaceFrom, defaultInPlaceFrom)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) allocate(inPlaceFrom int64) error {
	if err := s.storage.allocate(); err != nil {
		return err
	}
	if err := s.varying.allocate(); err != nil {
		return err
	}
	s.placement = newPlacement(&s.storage, inPlaceFrom, &s.counters.Saturated)
	return s.grow(s.sizing.Initial)
}

// Close frees all memory. The store must not be used afterwards. Snapshots that have not
// been released can still be read.
func (s *Store) Close() {
	if s.placement != nil {
		s.placement.close()
	}
	for _, list := range []sequenceList{s.live, s.older} {
		for q := list.first; q != nil; q = q.next {
			s.varying.release(q)
		}
	}
	s.varying.close()
	s.storage.free()
}

// Begin is the START of a sequence: its next step reads the initial values. A live
// sequence of the same key begins again in its slot; nothing reads its old values any
// more, also after Undo, and the memory of those that vary is given back. One of the
// same ID with another token stays, for requests of it that are on their way, until its
// END or until its slot is needed. The error is a *FullError.
func (s *Store) Begin(k Key, now time.Duration) (*Sequence, error) {
	return s.BeginSettingAside(k, 0, now)
}

// BeginSettingAside is Begin after SetAside, if the token is not 0. What was set aside
// loses its slot if there is no other, even where it is in use: all its requests of this
// batch must have run.
func (s *Store) BeginSettingAside(k Key, token uint64, now time.Duration) (*Sequence, error) {
	q, err := s.begin(k, token, now)
	if err == nil {
		s.varying.release(q)
	}
	return q, err
}

// releaseValues overwrites the values of a sequence that is about to lose its slot, so
// that no byte of them is there when the slot is given to another, and frees its varying
// states. Memory that is newly allocated is zero.
func (s *Store) releaseValues(q *Sequence) {
	s.varying.release(q)
	s.placement.release(q)
}

// Lose takes the state of a sequence for a reason of the caller's, which the error of
// Continue says from then on. Of a sequence without a state it changes nothing. No step
// may be open.
func (s *Store) Lose(q *Sequence, reason LossReason, now time.Duration) {
	if q.Generation() != 0 {
		s.placement.disarrange()
		s.revoke(q, reason, 0, now)
	}
}

// Discard gives the memory of batched tensors and slots back to the system where the Memory
// can, until they are written again. It is for the end of the warm-up, whose batches are
// large: no sequence may have a state, and no step may be open.
func (s *Store) Discard() {
	discarder, ok := s.memory.(Discarder)
	if !ok {
		return
	}
	for _, blocks := range append(slices.Clone(s.chunks), s.in, s.out) {
		for _, b := range blocks {
			discarder.Discard(b)
		}
	}
}

// Sizing returns when chunks come and go.
func (s *Store) Sizing() Sizing { return s.sizing }

// Counters returns what has happened so far.
func (s *Store) Counters() Counters { return s.counters }

// Usage is what a store holds at a moment.
type Usage struct {
	Live, Free, Slots, Total, Chunks int
	Bytes                            int64 // of the chunks and of varying states
}

// Usage returns what the store holds now.
func (s *Store) Usage() Usage {
	u := Usage{Live: s.liveCount(), Free: s.slots.free, Slots: s.liveCount() + s.slots.free, Total: s.total, Chunks: len(s.slots.chunks)}
	u.Bytes = int64(u.Slots)*s.SlotBytes() + s.varying.bytes
	return u
}
