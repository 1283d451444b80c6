package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"tritonstateful/internal/bench/kserve"
)

// stream drives some of the sequences over one gRPC stream. One goroutine receives an answer and at once sends the
// next step of the same sequence: no hand-over, no lock. It cannot block itself for good, because the server reads
// requests whether or not we read answers, and at most one answer per sequence waits for us.
type stream struct {
	rpc       *kserve.Stream
	phase     *atomic.Int32
	sequences []*sequence // a request's ID is the index of its sequence
	response  kserve.ModelStreamInferResponse

	// What it saw; only the stream touches it until it has ended.
	latencies  []time.Duration // of the measurement, errors included
	errors     int
	mismatches int
	texts      []string
}

// run sends until it is time to drain and every sequence has ended.
func (s *stream) run() error {
	for _, q := range s.sequences {
		if err := s.send(q, phaseWarmup); err != nil {
			return err
		}
	}
	for open := len(s.sequences); open > 0; {
		if err := s.rpc.Receive(&s.response); errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		q, err := s.sequenceOf(&s.response)
		if err != nil {
			return err
		}
		now := phase(s.phase.Load()) // in which the answer counts
		s.note(q, now)
		if now == phaseDrain && q.ending {
			open--
			continue
		}
		if err := s.send(q, now); err != nil {
			return err
		}
	}
	return s.rpc.Close()
}

func (s *stream) send(q *sequence, now phase) error {
	request := q.prepare(now == phaseDrain)
	q.sentAt = time.Now()
	return s.rpc.Send(request)
}

// sequenceOf finds the sequence that an answer belongs to.
func (s *stream) sequenceOf(response *kserve.ModelStreamInferResponse) (*sequence, error) {
	id := response.GetInferResponse().GetId()
	index, err := strconv.Atoi(id)
	if err != nil || index < 0 || index >= len(s.sequences) {
		return nil, fmt.Errorf("answer to no request of ours: ID %q, error %q", id, response.GetErrorMessage())
	}
	return s.sequences[index], nil
}

// note records the answer to a sequence's request.
func (s *stream) note(q *sequence, now phase) {
	if now == phaseMeasure {
		s.latencies = append(s.latencies, time.Since(q.sentAt))
	}
	if text := s.response.GetErrorMessage(); text != "" {
		s.errors++
		s.texts = keepNew(s.texts, text)
		q.abandon()
		return
	}
	if err := q.check(&s.response); err != nil {
		s.mismatches++
		s.texts = keepNew(s.texts, err.Error())
	}
}
