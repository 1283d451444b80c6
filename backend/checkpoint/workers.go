package checkpoint

import (
	"slices"
	"time"
)

// A job needs a goroutine, and memory for the value that it saves. Large values take turns: a
// burst of them goes through the memory of two or three, which stays in the processor's cache, and
// through as many goroutines. Those that somebody waits for do not take turns.

// run gives a job to a goroutine, or has it wait for one. s.mu is held.
func (s *Saver) run(j *job) {
	if e := j.entry; !s.fits(j) && len(e.waiters) == 0 && e.end == goesOn {
		s.queue = append(s.queue, j)
		return
	}
	s.encoding += j.bytes
	c := &encoder{}
	if last := len(s.encoders) - 1; last >= 0 {
		c, s.encoders = s.encoders[last], s.encoders[:last]
	}
	go s.work(j, c)
}

// fits reports whether a job need not wait for others.
func (s *Saver) fits(j *job) bool {
	return j.bytes == 0 || s.encoding == 0 || s.encoding+j.bytes <= maxEncoding
}

// work is a goroutine that does one job after the other.
func (s *Saver) work(j *job, c *encoder) {
	for j != nil {
		err, bytes := s.call(j, c), j.bytes
		if err == nil && j.end == pauses {
			s.source.Locked(func() { s.forget(j) })
		}
		tell(s.end(j, err))
		j = s.next(c, bytes)
		s.Kick()
	}
}

// next returns a job for a goroutine whose last one had that many bytes; nil: it is to end.
func (s *Saver) next(c *encoder, bytes int64) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.encoding -= bytes
	if len(s.queue) == 0 || !s.fits(s.queue[0]) {
		s.encoders = append(s.encoders, c)
		return nil
	}
	j := s.queue[0]
	s.queue = slices.Delete(s.queue, 0, 1)
	s.encoding += j.bytes
	return j
}

// unqueue gives up the jobs that wait: the store fails, and each would wait for that by itself.
func (s *Saver) unqueue(now time.Duration) {
	for _, j := range s.queue {
		j.values.Release()
		s.over(j)
		s.place(j.entry, now)
	}
	clear(s.queue)
	s.queue = s.queue[:0]
}
