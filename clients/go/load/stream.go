package load

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"tritonstateful/clients/go/kserve"
)

// stream drives some of the sequences over one gRPC stream. One goroutine receives an answer and at once sends the
// next step of the same sequence: no hand-over, no lock. It cannot block itself for good, because the server reads
// requests whether or not we read answers, and at most one answer per sequence waits for us.
type stream struct {
	rpc       *kserve.Stream
	phase     *atomic.Int32
	samples   bool
	sequences []*sequence // a request's ID is the index of its sequence
	idle      []*sequence // those without a request in flight
	response  kserve.ModelStreamInferResponse

	// What it saw; only the stream touches it until it has ended.
	latencies  []time.Duration // of the measurement, errors included
	from       []int64         // when each of these began, in nanoseconds since 1970; only for -samples
	late       []time.Duration // how late requests of -rate were sent in the measurement
	errors     int
	mismatches int
	texts      []string
}

// run keeps as many requests in flight as active says, of different sequences, until it is time to drain; then it ends all
// sequences.
func (s *stream) run(active int) error {
	s.idle = slices.Clone(s.sequences[active:])
	for _, q := range s.sequences[:active] {
		if err := s.send(q, phaseWarmup); err != nil {
			return err
		}
	}
	for inFlight := active; inFlight > 0; {
		q, now, err := s.answered()
		if err != nil {
			return err
		}
		if q = s.next(q, now); q == nil {
			inFlight--
			continue
		}
		if err := s.send(q, now); err != nil {
			return err
		}
	}
	return s.rpc.Close()
}

// startAll starts all sequences, as many at a time as active says, and waits for the answers.
func (s *stream) startAll(active int) error {
	for i, q := range s.sequences {
		if i >= active {
			if _, _, err := s.answered(); err != nil {
				return err
			}
		}
		if err := s.send(q, phaseWarmup); err != nil {
			return err
		}
	}
	for range min(active, len(s.sequences)) {
		if _, _, err := s.answered(); err != nil {
			return err
		}
	}
	return nil
}

// answered waits for an answer and records it. It returns whose it is and in which phase it counts.
func (s *stream) answered() (*sequence, phase, error) {
	if err := s.receive(); errors.Is(err, io.EOF) {
		return nil, 0, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, 0, err
	}
	q, err := s.sequenceOf(&s.response)
	if err != nil {
		return nil, 0, err
	}
	now := phase(s.phase.Load())
	s.note(q, q.sentAt, now)
	return q, now, nil
}

// next chooses whose request follows the answer to q's: that of any idle sequence, or of q if there is none. When it is
// time to drain, only those that have not ended count, and nil says that there are no more.
func (s *stream) next(q *sequence, now phase) *sequence {
	if len(s.idle) > 0 && now != phaseDrain {
		i := rand.IntN(len(s.idle))
		q, s.idle[i] = s.idle[i], q
		return q
	}
	for now == phaseDrain && q.ending {
		if len(s.idle) == 0 {
			return nil
		}
		last := len(s.idle) - 1
		q, s.idle = s.idle[last], s.idle[:last]
	}
	return q
}

// receive waits for the next answer; io.EOF says that there are no more.
func (s *stream) receive() error {
	err := s.rpc.Receive(&s.response)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("receive: %w", err)
	}
	return err
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

// note records the answer to a request of a sequence, whose latency counts from a time.
func (s *stream) note(q *sequence, from time.Time, now phase) {
	if now == phaseMeasure {
		s.latencies = append(s.latencies, time.Since(from))
		q.answered++
		if s.samples {
			s.from = append(s.from, from.UnixNano())
		}
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
