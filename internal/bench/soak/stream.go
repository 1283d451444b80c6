package main

import (
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"tritonstateful/clients/go/kserve"
)

// answer is an answer as the goroutine that receives it hands it over.
type answer struct {
	generation int // of the connection that it came by
	request    int // number of the request on its stream
	at         time.Time
	err        string
	values     [3]int64
	empty      bool
	broken     error // the connection is over
}

// stream drives some of the clients over one gRPC stream, which it breaks off at times: then it is unknown what became
// of the requests on the way.
type stream struct {
	soak     *soak
	conn     *grpc.ClientConn
	clients  []*client
	rng      *rand.Rand
	rpc      *kserve.Stream
	cancel   context.CancelFunc
	answers  chan answer // room for every request that can be on the way
	sleepers sleepers
	breakAt  time.Time
	open     int // clients that wait for answers

	generation int
}

// never is longer than any soak.
const never = 1000 * time.Hour

// afterBreak is how long clients wait after their stream was broken off, so that the server has seen it.
const afterBreak = 500 * time.Millisecond

func (s *stream) run(ctx context.Context) error {
	s.answers = make(chan answer, 4*len(s.clients)+1)
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer func() { s.cancel() }()
	for _, c := range s.clients {
		if err := s.act(c); err != nil {
			return err
		}
	}
	for s.open > 0 || !s.soak.over() {
		select {
		case a := <-s.answers:
			if err := s.take(&a); err != nil {
				return err
			}
		case <-time.After(s.untilWake()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.wake(ctx); err != nil {
			return err
		}
	}
	return s.finish(ctx)
}

// finish half-closes the stream and waits until the server has ended it, too, which it does when every request of the
// stream was released. tritonserver 2.51 can no longer unload the models of a stream that is cancelled instead.
func (s *stream) finish(ctx context.Context) error {
	if err := s.rpc.Close(); err != nil {
		return fmt.Errorf("close the stream: %w", err)
	}
	for {
		select {
		case a := <-s.answers:
			switch {
			case a.generation != s.generation: // of a stream that we broke off
			case errors.Is(a.broken, io.EOF):
				return nil
			case a.broken != nil:
				return fmt.Errorf("end the stream: %w", a.broken)
			default:
				return fmt.Errorf("an answer to request %d, after all had theirs", a.request)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *stream) connect(ctx context.Context) (err error) {
	ctx, s.cancel = context.WithCancel(ctx)
	if s.rpc, err = kserve.OpenStream(ctx, s.conn); err != nil {
		return err
	}
	s.generation++
	s.breakAt = time.Now().Add(never)
	if breaks := s.soak.config.breaks; breaks > 0 {
		s.breakAt = time.Now().Add(breaks/2 + time.Duration(s.rng.Int64N(int64(breaks))))
	}
	go receive(s.rpc, s.generation, s.answers)
	return nil
}

// receive hands answers over until the stream is over. The channel has room for all that can come.
func receive(rpc *kserve.Stream, generation int, answers chan<- answer) {
	var r kserve.ModelStreamInferResponse
	for {
		a := answer{generation: generation}
		if err := rpc.Receive(&r); err != nil {
			a.broken = err
			answers <- a
			return
		}
		a.at, a.err, a.empty = time.Now(), r.GetErrorMessage(), true
		id := r.GetInferResponse().GetId()
		if a.request, a.broken = strconv.Atoi(id); a.broken != nil {
			a.broken = fmt.Errorf("an answer to no request of ours: ID %q, error %q", id, a.err)
		}
		if data, found := r.Output("Y"); found && len(data) == 8*len(a.values) {
			a.empty = false
			for i := range a.values {
				a.values[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
			}
		}
		answers <- a
	}
}

// act lets a client send what it decides to.
func (s *stream) act(c *client) error {
	if s.soak.over() {
		return nil
	}
	c.decide(s.rng)
	for i := range c.pending {
		if err := s.rpc.Send(c.prepare(i, time.Now())); err != nil {
			return err
		}
	}
	s.soak.steps.Add(int64(len(c.pending)))
	s.open++
	return nil
}

// take notes an answer, and when it was the last that its client waits for, lets it go on.
func (s *stream) take(a *answer) error {
	switch {
	case a.generation != s.generation:
		return nil // of a stream that we broke off
	case a.broken != nil:
		return fmt.Errorf("receive: %w", a.broken)
	case a.request < 0 || a.request >= 2*len(s.clients) || a.request%2 >= len(s.clients[a.request/2].pending):
		return fmt.Errorf("an answer to request %d, which was not sent", a.request)
	}
	c := s.clients[a.request/2]
	x := &c.pending[a.request%2]
	if x.done {
		return errors.New("a request was answered twice")
	}
	if !c.note(a.request%2, a) {
		return nil
	}
	s.settle(c)
	if pause := pause(s.rng, s.soak.config.idle); pause > 0 {
		s.sleep(c, pause)
		return nil
	}
	return s.act(c)
}

// settle records what the client sent, in its order: what has no answer by now gets none.
func (s *stream) settle(c *client) {
	for i := range c.pending {
		x := &c.pending[i]
		s.soak.records.put(c.model, c.id.Number, x)
		c.learn(x)
	}
	c.pending = c.pending[:0]
	s.open--
}

// wake lets those act whose pause is over, and breaks the stream off when it is time.
func (s *stream) wake(ctx context.Context) error {
	now := time.Now()
	if now.After(s.breakAt) && !s.soak.over() {
		return s.breakOff(ctx)
	}
	for len(s.sleepers) > 0 && now.After(s.sleepers[0].until) {
		if err := s.act(heap.Pop(&s.sleepers).(sleeper).client); err != nil {
			return err
		}
	}
	return nil
}

// breakOff cancels everything that is on the way.
func (s *stream) breakOff(ctx context.Context) error {
	s.cancel()
	for _, c := range s.clients {
		if len(c.pending) == 0 {
			continue
		}
		s.settle(c)
		s.sleep(c, afterBreak)
	}
	return s.connect(ctx)
}

func (s *stream) sleep(c *client, pause time.Duration) {
	heap.Push(&s.sleepers, sleeper{c, time.Now().Add(pause)})
}

// untilWake is how long the stream may wait for an answer.
func (s *stream) untilWake() time.Duration {
	const longest = 100 * time.Millisecond
	if len(s.sleepers) == 0 {
		return longest
	}
	return min(longest, max(0, time.Until(s.sleepers[0].until)))
}

// sleepers are clients that pause, those to wake next first.
type sleepers []sleeper

type sleeper struct {
	client *client
	until  time.Time
}

func (s sleepers) Len() int           { return len(s) }
func (s sleepers) Less(i, j int) bool { return s[i].until.Before(s[j].until) }
func (s sleepers) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *sleepers) Push(x any)        { *s = append(*s, x.(sleeper)) }
func (s *sleepers) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
