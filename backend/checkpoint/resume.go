package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"tritonstateful/internal/statestore"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// Resumption is what the store says of a sequence that is to go on.
type Resumption struct {
	// Ours: the sequence that is live here still owns its key, and goes on as it is.
	Ours bool
	// Epoch is the new one, if the key was taken; else 0.
	Epoch uint64
	// Saved is nil if nothing is saved.
	Saved *statebuffer.Saved
	// Err is why the state cannot be restored.
	Err error
}

// Wanted is a sequence that is to go on.
type Wanted struct {
	Key string
	// Live is the entry of the sequence if it is live here, or nil.
	Live *Entry
	// AtMost is how many steps its client has the answers of. A state with more is that of a
	// step whose answer was lost; the one before it is better.
	AtMost uint64
	// Begins: if nothing is saved, the sequence begins here. Otherwise whoever has it keeps it then.
	Begins bool
}

// Resume asks the store for the state of a sequence, and has done called with what it says, on
// another goroutine.
func (s *Saver) Resume(w Wanted, done func(Resumption)) {
	began := s.clock()
	go func() {
		err := s.enterStore(began)
		if err != nil {
			done(s.noted(Resumption{Err: err}, began))
			return
		}
		defer func() { <-s.resumes }()
		done(s.noted(s.resume(w), began))
	}()
}

// enterStore waits for its turn to call the store. If the store does not answer meanwhile, for as
// long as a call may take, it gives up: after many calls that all run out of time its own would come
// too late.
func (s *Saver) enterStore(began time.Duration) error {
	timer := time.NewTimer(s.policy.Timeout)
	defer timer.Stop()
	for {
		select {
		case s.resumes <- struct{}{}:
			return nil
		case <-timer.C:
		}
		s.mu.Lock()
		left := max(began, s.answeredAt) + s.policy.Timeout - s.clock()
		s.mu.Unlock()
		if left <= 0 {
			return status.Errorf(status.Unavailable, "asking the store for its state: the store does not answer the requests before it")
		}
		timer.Reset(left)
	}
}

func (s *Saver) resume(w Wanted) (r Resumption) {
	defer func() {
		if p := recover(); p != nil { // it would end the server
			s.log.Error("panic while a state was restored", "panic", p, "stack", string(debug.Stack()))
			r = Resumption{Err: status.Errorf(status.Internal, "internal error of the stateful backend; see the server's log")}
		}
	}()
	err := s.within(func(ctx context.Context) (err error) {
		if w.Live != nil {
			defer s.unfreeze(w.Live)
			if r.Ours, err = s.goesOn(ctx, w); r.Ours || err != nil {
				return err
			}
		}
		if err = s.awaitDrop(ctx, w.Key); err != nil {
			return err
		}
		return s.take(ctx, w, &r)
	})
	if err != nil {
		r.Err = status.Errorf(status.Unavailable, "asking the store for its state: %w", err)
	}
	return r
}

// take makes the sequence ours, and reads what is saved of it. What is damaged counts as never saved.
func (s *Saver) take(ctx context.Context, w Wanted, r *Resumption) (err error) {
	var value []byte
	take := s.store.TakeSaved
	if w.Begins {
		take = s.store.Take
	}
	r.Epoch, value, err = take(ctx, w.Key, w.AtMost, s.policy.TTL)
	if s.noteDamage(w.Key, err) { // a sequence that begins replaces it
		return nil
	}
	if err != nil || value == nil {
		return err
	}
	if r.Saved, err = s.policy.decode(value, s.policy.States); s.noteDamage(w.Key, err) {
		values, failed := s.store.Get(ctx, w.Key)
		if failed != nil || len(values) < 2 {
			return failed
		}
		if r.Saved, err = s.policy.decode(values[1], s.policy.States); s.noteDamage(w.Key, err) {
			return nil
		}
	}
	if err != nil {
		r.Err = status.Errorf(status.InvalidArg, "its saved state does not fit: %w", err)
	}
	return nil
}

// noteDamage reports whether an error is that of a damaged state, and if so logs and counts it.
func (s *Saver) noteDamage(key string, err error) bool {
	damaged := (*damagedError)(nil)
	if !errors.As(err, &damaged) && !errors.Is(err, statestore.ErrDamaged) {
		return false
	}
	s.log.Error("a saved state is damaged, and counts as not there", "key", key, "error", err)
	s.count(func(c *Counters) { c.Damaged++ })
	return true
}

// goesOn reports whether a sequence that is live here goes on as it is: its epoch is still the
// one that the store has, or the store has none, because it lost what it had. One that has more
// steps than its client has answers of goes back if the store has a state that its client can
// repeat them from. It is frozen meanwhile: one more save would push that state out.
func (s *Saver) goesOn(ctx context.Context, w Wanted) (bool, error) {
	var epoch, steps uint64
	known := func() bool {
		epoch, steps = w.Live.epoch, w.Live.steps
		if epoch == 0 || steps > w.AtMost && w.Live.working { // what is under way may be saved yet
			return false
		}
		if steps > w.AtMost {
			w.Live.frozen = true
			w.Live.unlink()
		}
		return true
	}
	if err := s.await(ctx, known); err != nil {
		return false, fmt.Errorf("the store has not answered the call before: %w", err)
	}
	owner, saved, err := s.store.Owner(ctx, w.Key)
	if errors.Is(err, statestore.ErrDamaged) { // lost, too
		return true, nil
	}
	if err != nil || owner > epoch {
		return false, err
	}
	goesBack := steps > w.AtMost && slices.ContainsFunc(saved, func(step uint64) bool { return step <= w.AtMost })
	return !goesBack, nil
}

// unfreeze has an entry saved again.
func (s *Saver) unfreeze(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.frozen {
		e.frozen = false
		s.place(e, s.clock())
		s.Kick()
	}
}

// awaitDrop waits until the store knows that a sequence that has ended here has.
func (s *Saver) awaitDrop(ctx context.Context, key string) error {
	if err := s.await(ctx, func() bool { return !s.dropping(key) }); err != nil {
		return fmt.Errorf("the state of the sequence before is not yet deleted: %w", err)
	}
	return nil
}

// await waits until something is the case, which is asked for under Saver.mu.
func (s *Saver) await(ctx context.Context, is func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock() // else the broadcast may come before the wait
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !is() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.changed.Wait()
	}
	return nil
}

// noted counts what became of a resumption.
func (s *Saver) noted(r Resumption, began time.Duration) Resumption {
	s.count(func(c *Counters) {
		switch {
		case r.Err != nil:
			c.NotRestored++
		case r.Saved != nil:
			c.Restored++
		case !r.Ours:
			c.Missing++
		}
		if r.Err == nil {
			s.answeredAt = s.clock()
		}
		c.observe(s.clock() - began)
	})
	return r
}
