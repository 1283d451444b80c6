package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"tritonstateful/internal/statestore"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// job calls the store for one entry: for it to begin, to save a snapshot, to drop what is
// saved. It is used again for other entries.
type job struct {
	entry *Entry
	epoch uint64 // 0: begins
	began time.Duration
	saves bool
	// end is how the sequence had ended when the job began, and made how many steps it had made.
	end   ending
	made  uint64
	steps uint64 // of the snapshot
	bytes int64  // of the snapshot
	took  time.Duration

	values  statebuffer.Snapshot
	totals  []uint64
	clamped uint64 // elements that did not fit
}

func (s *Saver) newJob(e *Entry) *job {
	j := &job{}
	if last := len(s.unused) - 1; last >= 0 {
		j, s.unused = s.unused[last], s.unused[:last]
	}
	j.entry, j.epoch, j.began, j.end, j.made, j.saves, j.steps, j.bytes = e, e.epoch, e.began, e.end, e.steps, false, 0, 0
	return j
}

// snapshot takes the values that the sequence has now.
func (j *job) snapshot(from Source) error {
	q := j.entry.sequence
	if err := from.Snapshot(q, &j.values); err != nil {
		return err
	}
	j.totals = append(j.totals[:0], q.Totals()...)
	j.saves, j.steps, j.bytes = true, j.entry.steps, j.values.Bytes()
	return nil
}

// release gives up the snapshot of an entry that pauses, if it has one.
func (s *Saver) release(e *Entry) {
	if j := e.taken; j != nil {
		j.values.Release()
		e.taken = nil
		s.unused = append(s.unused, j)
	}
}

// jobOf returns the job of an entry. It has the snapshot already if that was taken when the
// sequence paused, and it has made no step since.
func (s *Saver) jobOf(e *Entry) *job {
	j := e.taken
	if j == nil || e.lost || e.end != pauses || j.steps != e.steps {
		s.release(e)
		return s.newJob(e)
	}
	e.taken = nil
	j.epoch, j.began = e.epoch, e.began
	return j
}

// forget ends a sequence that is saved and is to go on elsewhere, or later. Before the answer to
// its END, because its slot is needed then. The lock of the instance is held.
func (s *Saver) forget(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := j.entry; j.paused() && e.alive() {
		s.source.Forget(e.sequence)
	}
}

// paused reports whether the job has saved what is to go on elsewhere: the sequence may have
// gone on here since.
func (j *job) paused() bool {
	return j.end == pauses && j.entry.end == pauses && j.entry.steps == j.steps
}

func (s *Saver) call(j *job, c *encoder) (err error) {
	defer func() {
		if p := recover(); p != nil { // it would end the server
			s.log.Error("panic while a state was saved", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	began := s.clock()
	defer func() { j.took = s.clock() - began }()
	var value []byte
	defer func() {
		if j.saves && value == nil { // else encode has released it
			j.values.Release()
		}
	}()
	key, begins := j.entry.key, j.epoch == 0
	if begins {
		if err := s.within(func(ctx context.Context) (err error) {
			j.epoch, err = s.store.Begin(ctx, key, s.clock()-j.began, s.policy.TTL)
			return err
		}); err != nil {
			return err
		}
	}
	if j.saves {
		if value, err = c.encode(&s.policy, j); err != nil {
			return err
		}
		err := s.within(func(ctx context.Context) error { return s.store.Save(ctx, key, j.epoch, value, s.policy.TTL) })
		if err != nil { // the value may be on its way still
			c.writer = statestore.Writer{}
		}
		return err
	}
	if j.end == drops && !begins { // else there is nothing any more
		return s.within(func(ctx context.Context) error { return s.store.End(ctx, key, j.epoch, j.made) })
	}
	return nil
}

// within calls the store, for the time that the policy allows.
func (s *Saver) within(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.context, s.policy.Timeout)
	defer cancel()
	return call(ctx)
}

// end notes how a job ended, and returns who is to be told.
func (s *Saver) end(j *job, err error) []told {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	e, now := j.entry, s.clock()
	e.epoch = j.epoch
	s.over(j)
	fenced, steps, refusal := (*statestore.FencedError)(nil), uint64(math.MaxUint64), error(nil)
	switch {
	case err == nil:
		s.succeeded(j)
		if j.saves {
			e.saved, e.since, e.written = j.steps, now, now
		}
		if j.end == drops {
			e.saved = e.steps
		}
		if j.end == drops || j.paused() { // nothing follows
			e.lost = true
		}
		steps = e.saved
	case errors.As(err, &fenced):
		s.counters.Fenced++
		s.log.Warn("a sequence was taken over by another server", "key", e.key, "error", err)
		s.lose(e, statebuffer.TakenOver)
		refusal = status.Errorf(status.Unavailable, "sequence was taken over by another server (epoch %d is later than %d): send its requests there", fenced.Owner, fenced.Epoch)
	default:
		s.failed(err, now)
		refusal = status.Errorf(status.Unavailable, "the state was not saved: %w", err)
		s.unsaved(e)
	}
	all := e.takeWaiters(nil, steps, refusal)
	s.place(e, now)
	return all
}

// over notes that a job is not under way any more. Its entry is to be placed.
func (s *Saver) over(j *job) {
	j.entry.working = false
	s.jobs--
	s.bytes -= j.bytes
	s.unused = append(s.unused, j)
}

// unsaved has the sequence of an entry lose its state if every step is to be saved and one
// was not: its client cannot know whether it was made.
func (s *Saver) unsaved(e *Entry) {
	if s.EveryStep() {
		s.lose(e, statebuffer.Unsaved)
	}
}

// lose has the sequence of an entry lose its state here.
func (s *Saver) lose(e *Entry, reason statebuffer.LossReason) {
	if !e.lost {
		e.lost = true
		s.lost = append(s.lost, lostEntry{e, reason})
	}
}

func (s *Saver) succeeded(j *job) {
	if s.failures > 0 {
		s.log.Info("the state store works again", "failures", s.failures)
	}
	s.failures, s.retryAt = 0, 0
	s.counters.observe(j.took)
	if j.saves {
		s.counters.Saved++
		s.counters.SavedBytes += uint64(j.bytes)
		s.counters.Saturated += j.clamped
	}
}

// failed notes that the store could not be reached, or refused.
func (s *Saver) failed(err error, now time.Duration) {
	if s.failures == 0 {
		s.log.Warn("the state store fails; sequences are served all the same, and saved when it works again", "error", err)
	}
	s.counters.Failed++
	s.retryAt = now + min(firstBackoff<<min(s.failures, 10), maxBackoff)
	s.failures++
	s.unqueue(now)
}
