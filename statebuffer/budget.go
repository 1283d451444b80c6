package statebuffer

import (
	"fmt"
	"time"
)

// BudgetError says that the varying states of a sequence would take the store
// beyond its limit.
type BudgetError struct {
	// Held is what the store has, More what the sequence asks for, Most the limit.
	Held, More, Most int64
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("the states take %d bytes and would grow by %d: at most %d bytes are allowed (max_state_memory_bytes); try again later, end sequences that are done, or raise the limit", e.Held, e.More, e.Most)
}

// FirstChunkError says that not even the first chunk is within the limit.
type FirstChunkError struct {
	Slots      int
	Each, Most int64  // bytes of a slot, and of all
	Field      string // see Limits
}

func (e *FirstChunkError) Error() string {
	return fmt.Sprintf("the first %d slots of %d bytes each are more than %d bytes (max_state_memory_bytes): lower initial_buffer_size or %s, or raise the limit", e.Slots, e.Each, e.Most, e.Field)
}

// held is what the sequences' states take, or could take in free slots.
func (s *Store) held() int64 {
	return int64(s.alive()+s.slots.free)*s.SlotBytes() + s.varying.bytes
}

// fits reports whether so many more bytes are within the limit.
func (s *Store) fits(more int64) bool {
	most := s.limits.Bytes
	return most == 0 || more <= most-s.held()
}

// nextChunk is the size of a further chunk.
func (s *Store) nextChunk() int64 { return int64(s.sizing.Subsequent) * s.SlotBytes() }

// checkBudget makes sure that the first chunk, which is never freed, is within
// the limit.
func (s *Store) checkBudget() error {
	most, each := s.limits.Bytes, s.SlotBytes()
	if most > 0 && each > 0 && int64(s.sizing.Initial) > most/each {
		return &FirstChunkError{Slots: s.sizing.Initial, Each: each, Most: most, Field: s.limits.Field}
	}
	return nil
}

// growthBound is the limit of memory if that, not the number of slots, keeps the
// store from growing, otherwise 0.
func (s *Store) growthBound() int64 {
	if len(s.slots.chunks) < s.sizing.MaxChunks && !s.fits(s.nextChunk()) {
		return s.limits.Bytes
	}
	return 0
}

// ration grants the varying states of a run what memory there is, lane by lane, and
// refuses the lanes that would exceed the limit.
func (s *Store) ration(step *Step, now time.Duration) error {
	granted := int64(0)
	for i := range step.lanes {
		more, err := s.varying.growth(step.lanes[i:i+1], step.padded)
		if err != nil {
			return err
		}
		if more > 0 && !s.afford(step.lanes, granted+more, now) {
			step.lanes[i].Refused = &BudgetError{Held: s.held() + granted, More: more, Most: s.limits.Bytes}
			continue
		}
		granted += more
	}
	return nil
}

// afford makes room for so many more bytes of a run's varying states, if it can:
// sequences whose ID has begun anew go first, then those that have idled too long, then
// with EvictLRU those that were used least recently and not at this moment. None goes if
// that is not enough.
func (s *Store) afford(lanes []Lane, more int64, now time.Duration) bool {
	stays := s.held() - s.varying.bytes + s.varying.heldBy(lanes)
	possible := more <= s.limits.Bytes-stays
	for !s.fits(more) {
		if !possible || !s.makeRoom(s.limits.Bytes, now) {
			return false
		}
	}
	return true
}

// prepare checks the outputs of a run and makes room for those that are within the
// limit, so that keeping them cannot fail. Nothing that the run's sequences have
// changes.
func (s *Store) prepare(step *Step, now time.Duration) error {
	more, err := s.varying.growth(step.lanes, step.padded)
	if err != nil {
		return err
	}
	if !s.fits(more) {
		if err := s.ration(step, now); err != nil {
			return err
		}
	}
	return s.varying.prepare(step.lanes, step.padded)
}

// vacate overwrites the slot of a sequence that is about to lose it, so that no
// byte of it is there when the slot is given to another, and frees its varying
// states. Memory that is allocated anew is zero.
func (s *Store) vacate(q *Sequence) {
	s.varying.release(q)
	if s.roamer != nil {
		q.leave(true)
		return
	}
	s.left = s.left[:0]
	for i := range s.states {
		bytes := s.states[i].StoredBytes()
		s.left = append(s.left, s.chunks[i][q.slot.Chunk].At(int64(q.slot.Index)*bytes, bytes))
	}
	s.memory.Clear(s.left)
}
