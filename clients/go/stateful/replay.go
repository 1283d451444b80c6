package stateful

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tritonstateful/clients/go/kserve"
)

// longestPause bounds the pauses between attempts.
const longestPause = time.Second

// recover continues from a saved state, or from the beginning, until the request has its answer.
func (s *Sequence) recover(ctx context.Context, r *request, err error) (*kserve.ModelInferResponse, error) {
	for {
		if s.ended || ctx.Err() != nil {
			return nil, err
		}
		k, _ := classify(err)
		if k == ofRequest {
			return nil, err
		}
		if err := s.pause(ctx, k, err); err != nil {
			return nil, err
		}
		var response *kserve.ModelInferResponse
		if response, err = s.replay(ctx, r); err == nil {
			s.recoveries++
			return response, nil
		}
	}
}

// pause goes to the next server if this one is lost, and waits once all were tried.
func (s *Sequence) pause(ctx context.Context, k kind, cause error) error {
	s.failures++
	if s.failures >= s.options.Attempts {
		return fmt.Errorf("%w in %d attempts: %w", ErrServersLost, s.failures, cause)
	}
	tried := s.failures - 1 // a server that answers can be asked at once
	if k == ofServer {
		s.server = (s.server + 1) % len(s.conns)
		tried = s.failures - (len(s.conns) - 1)
	}
	if tried <= 0 {
		return nil
	}
	wait := min(longestPause, s.options.Delay<<min(tried-1, 20))
	wait -= time.Duration(rand.Int64N(int64(wait)/2 + 1))
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replay begins with the step that the server can continue at. It returns the answer to the request, or the first error.
func (s *Sequence) replay(ctx context.Context, r *request) (*kserve.ModelInferResponse, error) {
	at, resume := r, r.step > 0
	var response *kserve.ModelInferResponse
	var err error
	for range 3 { // the step that we hope for, the one that it has, and the beginning
		response, err = s.call(ctx, at, true, resume)
		k, expected := classify(err)
		if err == nil || k != ofStep {
			break
		}
		if at, err = s.from(expected, r); err != nil {
			return nil, err
		}
		resume = expected > 0 && expected <= r.step
		err = &WrongStepError{Done: expected, Want: at.step} // if the server changes its mind each time
	}
	for err == nil && at != r {
		if err := s.check(at, response); err != nil {
			return nil, err
		}
		at = s.request(at.step+1, r)
		response, err = s.call(ctx, at, false, false)
	}
	return response, err
}

// from returns the request to begin with at a server that expects that step.
func (s *Sequence) from(expected int64, r *request) (*request, error) {
	first := r.step
	if len(s.kept) > 0 {
		first = s.kept[0].step
	}
	switch {
	case first <= expected && expected <= r.step:
		return s.request(expected, r), nil
	case first == 0: // all is kept, so it can begin anew
		return s.request(0, r), nil
	case expected < first:
		s.ended = true
		return nil, &StateLostError{Resumed: expected, Kept: first}
	case expected > r.step+1:
		s.ended = true
		return nil, &WrongStepError{Done: expected, Want: r.step + 1}
	}
	// The answer is gone, and what the request did is not.
	s.keep(r)
	s.steps = expected
	return nil, &AnswerLostError{Step: r.step}
}

func (s *Sequence) request(step int64, last *request) *request {
	if step == last.step {
		return last
	}
	return s.kept[step-s.kept[0].step]
}

// check checks that an answer is that of the request's step.
func (s *Sequence) check(r *request, response *kserve.ModelInferResponse) error {
	done, found := response.GetParameters()["stateful_step"]
	if !found {
		return ErrUnsupported
	}
	if done.GetInt64Param() != r.step+1 {
		s.ended = true
		return &WrongStepError{Done: done.GetInt64Param(), Want: r.step + 1}
	}
	if saved, found := response.GetParameters()["stateful_saved_step"]; found {
		s.noteSaved(saved.GetInt64Param())
	}
	return nil
}

// noteSaved takes in how many steps are saved. The answer to the last of them can be lost, so those since the save before are
// kept.
func (s *Sequence) noteSaved(steps int64) {
	if steps > s.saved {
		s.before = s.saved
	}
	s.before = min(s.before, steps)
	s.saved = steps
}

func (s *Sequence) keep(r *request) {
	s.kept = append(s.kept, r)
	s.keptBytes += r.bytes
}

// forget drops the requests that no saved state can need, and the oldest of those that are too large together.
func (s *Sequence) forget() {
	n := 0
	for n < len(s.kept) && (s.kept[n].step < s.before || s.keptBytes > s.options.KeepBytes) {
		s.keptBytes -= s.kept[n].bytes
		n++
	}
	s.kept = slices.Delete(s.kept, 0, n)
}
