package statebuffer

import "time"

// held is what the sequences' states take, or could take in free slots.
func (s *Store) held() int64 {
	return int64(s.liveCount()+s.slots.free)*s.SlotBytes() + s.varying.bytes
}

// fits reports whether that many more bytes are within the limit.
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
		return &FirstChunkError{Slots: s.sizing.Initial, Each: each, Most: most, Lazy: s.sizing.Lazy(), Field: s.limits.Field}
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

// allocateBudget gives the varying states of a run what memory there is, lane by lane, and
// refuses the lanes that would exceed the limit.
func (s *Store) allocateBudget(step *Step, now time.Duration) error {
	granted := int64(0)
	for i := range step.lanes {
		more, err := s.varying.growth(step.lanes[i:i+1], step.width)
		if err != nil {
			return err
		}
		if more > 0 && !s.fitsAfterEviction(step.lanes, granted+more, now) {
			step.lanes[i].Refused = &BudgetError{Held: s.held() + granted, More: more, Most: s.limits.Bytes}
			continue
		}
		granted += more
	}
	return nil
}

// fitsAfterEviction reports whether that many more bytes of a run's varying states are
// within the limit, after evicting others if it must: sequences whose ID has begun again
// first, then those that have idled too long, then with EvictLRU those that were used
// least recently and not at this moment. It evicts none if that is not enough.
func (s *Store) fitsAfterEviction(lanes []Lane, more int64, now time.Duration) bool {
	stays := s.held() - s.varying.bytes + s.varying.heldBy(lanes)
	possible := more <= s.limits.Bytes-stays
	for !s.fits(more) {
		if !possible || !s.evictOne(s.limits.Bytes, now) {
			return false
		}
	}
	return true
}
