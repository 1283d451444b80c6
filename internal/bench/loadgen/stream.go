package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"tritonstateful/internal/bench/kserve"
)

// stream drives some of the sequences over one gRPC stream. One goroutine receives an answer and at once sends the
// next step of the same sequence: no hand-over, no lock. It cannot block itself for good, because the server reads
// requests whether or not we read answers, and at most one answer per sequence waits for us.
type stream struct {
	rpc       grpc.ClientStream
	pacer     *pacer
	sequences []*sequence // a request's ID is the index of its sequence
	response  kserve.Response
	tally     tally
}

// run sends until the pacer says drain and every sequence has ended.
func (s *stream) run() error {
	for _, q := range s.sequences {
		if err := s.send(q, phaseWarmup); err != nil {
			return err
		}
	}
	for open := len(s.sequences); open > 0; {
		if err := s.rpc.RecvMsg(&s.response); err != nil {
			return fmt.Errorf("receive: %w", s.cause(err))
		}
		q, err := s.sequenceOf(&s.response)
		if err != nil {
			return err
		}
		now := s.judge(q)
		if now == phaseDrain && q.ending {
			open--
			continue
		}
		if err := s.send(q, now); err != nil {
			return err
		}
	}
	return s.rpc.CloseSend()
}

func (s *stream) send(q *sequence, now phase) error {
	request := q.prepare(now == phaseDrain)
	q.sentAt = time.Now()
	if err := s.rpc.SendMsg(request); err != nil {
		return fmt.Errorf("send: %w", s.cause(err))
	}
	return nil
}

// cause finds out why a stream broke: sending on a broken stream only says io.EOF, and receiving tells the status. A
// stream that the server ends while answers are missing is an error too.
func (s *stream) cause(err error) error {
	if errors.Is(err, io.EOF) {
		for err = nil; err == nil; {
			err = s.rpc.RecvMsg(&s.response)
		}
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// sequenceOf finds the sequence that an answer belongs to.
func (s *stream) sequenceOf(response *kserve.Response) (*sequence, error) {
	index, err := strconv.Atoi(string(response.ID))
	if err != nil || index < 0 || index >= len(s.sequences) {
		return nil, fmt.Errorf("answer to no request of ours: ID %q, error %q", response.ID, response.Error)
	}
	return s.sequences[index], nil
}

// judge records the answer to a sequence's request and returns the phase that it arrived in.
func (s *stream) judge(q *sequence) phase {
	now := s.pacer.count()
	s.tally.answer(now, time.Since(q.sentAt))
	if len(s.response.Error) > 0 {
		s.tally.fail(now, string(s.response.Error))
		q.abandon()
		return now
	}
	if err := q.check(&s.response); err != nil {
		s.tally.mismatch(err.Error())
	}
	return now
}
