package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// longestSleep is how long a stream without arrivals takes to notice that it is time to drain.
const longestSleep = 20 * time.Millisecond

// arrivals drives the sequences of a stream at the times of a Poisson process, in turns. One goroutine sends and another
// one receives, so several requests of a sequence can be in flight.
type arrivals struct {
	*stream
	mu  sync.Mutex    // guards due and the sequences, which both goroutines step
	due [][]time.Time // of the requests in flight, by sequence; the server answers those of a sequence in their order
}

// runArrivals sends rate requests per second until it is time to drain, then ends the sequences and waits for all answers.
func (s *stream) runArrivals(ctx context.Context, rate float64, seed uint64) error {
	a := &arrivals{stream: s, due: make([][]time.Time, len(s.sequences))}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		err := a.sendAll(ctx, rate, rand.New(rand.NewPCG(seed, 0)))
		sent <- errors.Join(err, a.rpc.Close()) // the server ends the stream after the last answer
	}()
	received := a.receiveAll()
	cancel() // the sender of a broken stream would not notice
	return errors.Join(received, <-sent)
}

func (a *arrivals) sendAll(ctx context.Context, rate float64, random *rand.Rand) error {
	runtime.LockOSThread() // for the timer slack; the thread ends with this goroutine, because it is never unlocked
	sharpenTimers()
	due := time.Now()
	for turn := 0; ; turn++ {
		due = due.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		for left := time.Until(due); left > 0 && !a.drains(ctx); left = time.Until(due) {
			// Not time.Sleep, which is up to a millisecond late.
			nap := syscall.NsecToTimespec(int64(min(left, longestSleep)))
			_ = syscall.Nanosleep(&nap, nil) // a signal may end it early
		}
		if a.drains(ctx) {
			break
		}
		if err := a.arrive(turn%len(a.sequences), due, phase(a.phase.Load())); err != nil {
			return err
		}
	}
	for index, q := range a.sequences {
		a.mu.Lock()
		ended := q.ending
		a.mu.Unlock()
		if !ended && ctx.Err() == nil {
			if err := a.arrive(index, time.Now(), phaseDrain); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *arrivals) drains(ctx context.Context) bool {
	return phase(a.phase.Load()) == phaseDrain || ctx.Err() != nil
}

// arrive sends the next request of a sequence, which was due at a time.
func (a *arrivals) arrive(index int, due time.Time, now phase) error {
	a.mu.Lock()
	request := a.sequences[index].prepare(now == phaseDrain)
	a.due[index] = append(a.due[index], due)
	a.mu.Unlock()
	if now == phaseMeasure {
		a.late = append(a.late, time.Since(due))
	}
	return a.rpc.Send(request)
}

func (a *arrivals) receiveAll() error {
	for {
		if err := a.receive(); errors.Is(err, io.EOF) {
			return a.complete()
		} else if err != nil {
			return err
		}
		q, err := a.sequenceOf(&a.response)
		if err != nil {
			return err
		}
		if err := a.take(q); err != nil {
			return err
		}
	}
}

// take records an answer.
func (a *arrivals) take(q *sequence) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := &a.due[q.local]
	if len(*due) == 0 {
		return fmt.Errorf("one answer too many for sequence %d of the stream", q.local)
	}
	a.note(q, (*due)[0], phase(a.phase.Load()))
	*due = slices.Delete(*due, 0, 1)
	return nil
}

// complete returns an error if the stream has ended without all answers.
func (a *arrivals) complete() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for index, due := range a.due {
		if len(due) > 0 {
			return fmt.Errorf("the stream ended without the last %d answers of its sequence %d", len(due), index)
		}
	}
	return nil
}

// sharpenTimers lets the calling thread wake a microsecond after it should, not 50.
func sharpenTimers() {
	const setTimerSlack = 29
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, uintptr(time.Microsecond), 0) // at worst it is later
}
