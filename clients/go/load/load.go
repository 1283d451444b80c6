package load

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"tritonstateful/clients/go/kserve"
)

// drainTime and drainEach are how long the sequences may take to end after the measurement, together and each; a server
// that takes longer hangs.
const (
	drainTime = 20 * time.Second
	drainEach = 20 * time.Millisecond
)

// phase is a part of a run.
type phase int32

const (
	phaseWarmup phase = iota
	phaseMeasure
	phaseDrain // sequences end and are not replaced
)

// Result is what a run found. Rate and latencies are those of the measurement; errors and mismatches count over all
// phases, because a wrong answer is one whenever it comes.
type Result struct {
	Requests int     `json:"requests"` // of the measurement
	Rate     float64 `json:"requests_per_second"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	Sent     int     `json:"sent"`        // requests of -rate in the measurement
	Late     float64 `json:"late_p99_us"` // how late they were sent, which their latencies include
	// Slowest is how many answers the sequence with the fewest got in the measurement, over the median, and Jain is Jain's index of
	// these numbers: 1 where all are equal, 1/n where one of n gets all. A sequence counts with those that take its place.
	Slowest    float64  `json:"slowest_over_median"`
	Jain       float64  `json:"jain_index"`
	Errors     int      `json:"errors"`
	Mismatches int      `json:"mismatches"`
	Texts      []string `json:"texts"` // the first few different ones of both
}

// load is a running load: streams in goroutines of their own.
type load struct {
	config  Config
	phase   atomic.Int32
	conns   []*grpc.ClientConn
	streams []*stream
	running sync.WaitGroup
	opening sync.WaitGroup          // streams whose sequences have not all started, with -active
	opened  chan struct{}           // closed when they have, and the pause is over
	cancel  context.CancelCauseFunc // ends all streams because one of them failed
}

// Run runs the three phases of a load and sums them up: it warms up, measures, and ends all sequences. It calls phase with
// "measuring" and "measured" at both ends of the measurement; with Active, before that with "opened" when all sequences have
// started.
func Run(ctx context.Context, c Config, phase func(name string)) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &load{config: c, opened: make(chan struct{}), cancel: cancel}
	defer l.close()
	if err := l.open(ctx); err != nil {
		return Result{}, err
	}
	l.start(ctx)
	if c.Active > 0 {
		l.opening.Wait()
		phase("opened")
		sleep(ctx, c.Pause)
		close(l.opened)
	}
	sleep(ctx, c.Warmup)
	phase("measuring")
	began := time.Now()
	l.phase.Store(int32(phaseMeasure))
	sleep(ctx, c.Duration)
	l.phase.Store(int32(phaseDrain))
	took := time.Since(began)
	phase("measured")
	patience := drainTime + time.Duration(c.Sequences)*drainEach
	late := time.AfterFunc(patience, func() { cancel(fmt.Errorf("the last answers did not come within %v", patience)) })
	defer late.Stop()
	l.running.Wait()
	if c.Samples != "" {
		if err := l.writeSamples(c.Samples); err != nil {
			return Result{}, err
		}
	}
	return l.result(took), context.Cause(ctx)
}

// writeSamples writes a line for each request of the measurement: when it began, in nanoseconds since 1970, and its latency
// in nanoseconds.
func (l *load) writeSamples(path string) error {
	var text []byte
	for _, s := range l.streams {
		for i, from := range s.from {
			text = fmt.Appendf(text, "%d %d\n", from, s.latencies[i])
		}
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write the samples: %w", err)
	}
	return nil
}

// open makes the connections and streams, and deals the sequences out to the streams, where they stay for good.
func (l *load) open(ctx context.Context) error {
	ids := &idSource{text: l.config.StringIDs}
	ids.last.Store(l.config.FirstID - 1)
	for range l.config.Streams {
		conn, err := kserve.Dial(l.config.URL)
		if err != nil {
			return err
		}
		l.conns = append(l.conns, conn)
		rpc, err := kserve.OpenStream(ctx, conn)
		if err != nil {
			return err
		}
		l.streams = append(l.streams, &stream{rpc: rpc, phase: &l.phase, samples: l.config.Samples != ""})
	}
	for index := range l.config.Sequences {
		s := l.streams[index%len(l.streams)]
		q, err := newSequence(l.config, ids, index, len(s.sequences))
		if err != nil {
			return err
		}
		s.sequences = append(s.sequences, q)
	}
	return nil
}

// start runs every stream in a goroutine of its own. Each gets its part of the requests in flight, or of the rate.
func (l *load) start(ctx context.Context) {
	for i, s := range l.streams {
		run := func() error { return s.run(len(s.sequences)) }
		switch {
		case l.config.Rate > 0:
			rate := l.config.Rate / float64(len(l.streams))
			run = func() error { return s.runArrivals(ctx, rate, uint64(i)) }
		case l.config.Active > 0:
			active := (l.config.Active + i) / len(l.streams) // rounded so that they add up
			l.opening.Add(1)
			opened := sync.OnceFunc(l.opening.Done)
			run = func() error {
				defer opened()
				if err := s.startAll(active); err != nil {
					return err
				}
				opened()
				<-l.opened
				return s.run(active)
			}
		}
		l.running.Go(func() {
			if err := run(); err != nil {
				l.cancel(fmt.Errorf("stream %d: %w", i, err))
			}
		})
	}
}

// sleep waits for a time, or for the end of the context.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (l *load) close() {
	for _, conn := range l.conns {
		conn.Close()
	}
}

// result sums up what the streams saw.
func (l *load) result(took time.Duration) (r Result) {
	var latencies, late []time.Duration
	var answered []int
	for _, s := range l.streams {
		for _, q := range s.sequences {
			answered = append(answered, q.answered)
		}
		latencies = append(latencies, s.latencies...)
		late = append(late, s.late...)
		r.Errors += s.errors
		r.Mismatches += s.mismatches
		for _, text := range s.texts {
			r.Texts = keepNew(r.Texts, text)
		}
	}
	slices.Sort(latencies)
	slices.Sort(late)
	r.Requests, r.Rate = len(latencies), float64(len(latencies))/took.Seconds()
	r.P50, r.P99 = percentile(latencies, 50), percentile(latencies, 99)
	r.Sent, r.Late = len(late), percentile(late, 99)
	r.Slowest, r.Jain = fairness(answered)
	return r
}

// fairness says how equal numbers are; see Result. It sorts them.
func fairness(numbers []int) (slowest, jain float64) {
	slices.Sort(numbers)
	sum, squares := 0.0, 0.0
	for _, n := range numbers {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0, 0
	}
	if median := numbers[len(numbers)/2]; median > 0 {
		slowest = float64(numbers[0]) / float64(median)
	}
	return slowest, sum * sum / (float64(len(numbers)) * squares)
}

// percentile is, in microseconds, the smallest latency that at least percent of all are not above (nearest rank).
func percentile(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*percent + 99) / 100
	return float64(sorted[max(rank, 1)-1]) / float64(time.Microsecond)
}

// keepNew adds a text that is new, as long as there are few.
func keepNew(texts []string, text string) []string {
	if len(texts) >= 5 || slices.Contains(texts, text) {
		return texts
	}
	return append(texts, text)
}
