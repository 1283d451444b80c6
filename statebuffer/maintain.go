package statebuffer

import "time"

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
// are in the chunk to be freed are moved first, some of them in each call. After a
// failed allocation it waits, longer each time; sequences go on. It takes back what released
// Snapshots have pinned.
func (s *Store) Maintain(now func() time.Duration) (Change, error) {
	s.placement.collect()
	if !s.sizing.Lazy() {
		return Change{}, nil
	}
	grows := s.growsNow()
	shrinks := !grows && s.shrinksNow()
	if !shrinks {
		s.placement.undrain()
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
		empty := s.placement.drain()
		if empty {
			s.shrink()
		}
		return Change{Shrunk: empty, Took: now() - start}, nil
	}
	return Change{}, nil
}

func (s *Store) growsNow() bool {
	return len(s.slots.chunks) < s.sizing.MaxChunks && s.slots.free < s.sizing.AllocBelow && s.fits(s.nextChunk())
}

func (s *Store) shrinksNow() bool {
	last := len(s.slots.chunks) - 1
	return last > 0 && s.slots.free > s.sizing.DeallocAbove && s.slots.chunks[last].free == s.sizing.Subsequent
}

// grow allocates a chunk of that many slots.
func (s *Store) grow(slots int) error {
	chunk, err := s.growChunk(len(s.slots.chunks), slots)
	if err != nil {
		return err
	}
	s.slots.grow(slots)
	s.placement.grow(chunk, slots)
	return nil
}

// shrink frees the last chunk, all of whose slots are free, and which has no values.
func (s *Store) shrink() {
	s.placement.shrink()
	s.slots.shrink()
	s.trim(len(s.slots.chunks))
}
