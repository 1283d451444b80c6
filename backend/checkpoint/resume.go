package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// Resumption is what the store says of a sequence that is to go on.
type Resumption struct {
	// Ours: the sequence that is live here still owns its key, and goes on as it is.
	Ours bool
	// Epoch is the new one, if the key was taken.
	Epoch uint64
	// Saved is nil if nothing is saved.
	Saved *statebuffer.Saved
	// Err is why the state cannot be restored.
	Err error
}

// Resume asks the store for the state of a sequence, and has done called with what it says, on
// another goroutine. live is the entry of the sequence if it is live here, or nil.
func (s *Saver) Resume(key string, live *Entry, done func(Resumption)) {
	began := s.clock()
	go func() {
		err := s.enterStore(began)
		if err != nil {
			done(s.noted(Resumption{Err: err}, began))
			return
		}
		defer func() { <-s.resumes }()
		done(s.noted(s.resume(key, live), began))
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

func (s *Saver) resume(key string, live *Entry) (r Resumption) {
	defer func() {
		if p := recover(); p != nil { // it would end the server
			s.log.Error("panic while a state was restored", "panic", p, "stack", string(debug.Stack()))
			r = Resumption{Err: status.Errorf(status.Internal, "internal error of the stateful backend; see the server's log")}
		}
	}()
	var value []byte
	err := s.within(func(ctx context.Context) (err error) {
		if live != nil {
			if r.Ours, err = s.owns(ctx, live); r.Ours || err != nil {
				return err
			}
		}
		if err = s.awaitDrop(ctx, key); err != nil {
			return err
		}
		r.Epoch, value, err = s.store.Take(ctx, key, s.policy.TTL)
		return err
	})
	switch {
	case err != nil:
		r.Err = status.Errorf(status.Unavailable, "asking the store for its state: %w", err)
	case value != nil:
		r.Saved, err = s.policy.decode(value, s.policy.States)
		if damaged := (*damagedError)(nil); errors.As(err, &damaged) {
			s.log.Error("a saved state is damaged, and counts as not there", "key", key, "error", err)
			s.count(func(c *Counters) { c.Damaged++ })
		} else if err != nil {
			r.Err = status.Errorf(status.InvalidArg, "its saved state does not fit: %w", err)
		}
	}
	return r
}

// owns reports whether the epoch of an entry is still the one that the store has, or the store
// has none, because it lost what it had.
func (s *Saver) owns(ctx context.Context, e *Entry) (bool, error) {
	epoch, err := s.epochOf(ctx, e)
	if err != nil {
		return false, err
	}
	owner, err := s.store.Owner(ctx, e.key)
	return err == nil && owner <= epoch, err
}

// epochOf waits until the store knows that a sequence has begun.
func (s *Saver) epochOf(ctx context.Context, e *Entry) (epoch uint64, err error) {
	if err := s.await(ctx, func() bool { epoch = e.epoch; return epoch != 0 }); err != nil {
		return 0, fmt.Errorf("the store does not know yet that it began: %w", err)
	}
	return epoch, nil
}

// awaitDrop waits until what a sequence that has ended here has saved is deleted.
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
