package load

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"tritonstateful/clients/go/kserve"
	"tritonstateful/clients/go/stateful"
)

// Paced is a load of sequences that each send their steps at regular times, whether or not the server keeps up; a step waits
// for the answer to the one before it, and its latency counts from when it was due.
type Paced struct {
	URLs      []string // host:port of one or more servers with the same model
	Model     string
	Sequences int
	Rate      float64       // steps per second of each sequence
	Steps     int           // of a sequence, the last one with END; another sequence follows
	Warmup    time.Duration // of load before the measurement
	Duration  time.Duration // of the measurement
	// Resume: sequences continue when their server was lost, as those of package stateful do. Else a failure ends the
	// sequence, and another one begins.
	Resume bool
	// Stream: each sequence sends its steps over a gRPC stream of its own. It excludes Resume.
	Stream bool
	Inputs []Input
	// Piece, if not nil, returns the bytes of an input at a step of a sequence; nil for small whole numbers. Several
	// goroutines call it at a time.
	Piece func(input, sequence, step int) []byte
	// Progress, if not nil, is called about once a second.
	Progress func(Progress)
	// Answered, if not nil, is called for each step that was answered and was due in the measurement, one at a time.
	Answered func(due time.Time, took time.Duration)
}

// Progress is what happened since the last call, and until now.
type Progress struct {
	Elapsed time.Duration // of Warmup and Duration
	Rate    float64       // steps per second, since the last call
	P99     time.Duration // since the last call
	Failed  int           // until now
	Resumed int           // until now: how often sequences were continued
}

// Pacing is what a Paced found.
type Pacing struct {
	Latencies []time.Duration // of the steps that were due in the measurement, answered or unsent, sorted
	Unsent    int             // steps that were due, but waited for another answer until the end; Latencies has that wait
	Took      time.Duration   // the time of the measurement
	Failed    int             // steps that were not answered, of all phases
	Resumed   int             // how often sequences were continued
	Texts     []string        // the first few different failures
}

// Percentile returns the smallest latency that at least percent of all are not above; 0 if there are none.
func (p *Pacing) Percentile(percent float64) time.Duration { return nearest(p.Latencies, percent) }

func nearest(sorted []time.Duration, percent float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(float64(len(sorted))*percent/100 + 0.999999)
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// attempt bounds how long a step may take, and thus how long the load may take to end.
const attempt = 30 * time.Second

// Pace runs a load until its time is over, and ends all sequences. If ctx ends before, it ends earlier, and in the same order. It
// fails if it cannot begin; failures of steps are counted.
func Pace(ctx context.Context, p Paced) (*Pacing, error) {
	if _, err := makeInputs(p.Inputs, 0); err != nil {
		return nil, err
	}
	if p.Stream && p.Resume {
		return nil, errors.New("sequences over streams cannot be resumed")
	}
	conns, err := stateful.Dial(p.URLs...)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()
	began := time.Now()
	r := &pacing{Paced: &p, conns: conns, from: began.Add(p.Warmup), ids: &idSource{}}
	r.until = r.from.Add(p.Duration)
	r.ids.last.Store(rand.Uint64() >> 2) // another load may run on the server
	ending, end := context.WithDeadline(ctx, r.until)
	defer end()
	stop := r.watch(ending, began)
	var running sync.WaitGroup
	for index := range p.Sequences {
		running.Go(func() { r.run(ctx, index) })
	}
	running.Wait()
	stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.found.Latencies)
	r.found.Took = max(min(time.Since(r.from), p.Duration), 0)
	r.found.Resumed = int(r.resumed.Load())
	return &r.found, nil
}

// pacing is a Paced that runs.
type pacing struct {
	*Paced
	conns       []*grpc.ClientConn
	ids         *idSource
	from, until time.Time
	resumed     atomic.Int64

	mu     sync.Mutex
	found  Pacing
	window []time.Duration // latencies since the last Progress
}

// run sends the steps of one sequence after the other until no more are due or ctx ends.
func (r *pacing) run(ctx context.Context, index int) {
	inputs, _ := makeInputs(r.Inputs, index) // Pace has checked it
	interval := time.Duration(float64(time.Second) / r.Rate)
	due := time.Now().Add(time.Duration(rand.Int64N(int64(interval)))) // not all at once
	var s *paced
	for step := 0; ; step++ {
		waited := due.Before(time.Now()) // for the answer to the step before
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Until(due), time.Until(r.until))):
		}
		over := ctx.Err() != nil || !due.Before(r.until) || waited && !time.Now().Before(r.until)
		if over {
			due = r.noteUnsent(due, interval)
		}
		if over && s == nil {
			return
		}
		if s == nil {
			s, step = r.begin(index), 0
		}
		last := over || step == r.Steps-1
		r.fill(inputs, index, step)
		err := s.send(context.WithoutCancel(ctx), inputs, last)
		r.note(due, err, over)
		due = due.Add(interval)
		if err != nil || last {
			s = nil
		}
	}
}

// fill writes what a step sends.
func (r *pacing) fill(inputs []kserve.Tensor, index, step int) {
	for i := range inputs {
		if r.Piece != nil {
			if piece := r.Piece(i, index, step); piece != nil {
				inputs[i].Data = piece
				continue
			}
		}
		codecs[inputs[i].Datatype].fill(inputs[i].Data, func(element int) uint8 { return valueAt(index, step, element) })
	}
}

// note records the answer to a step, or a failure.
func (r *pacing) note(due time.Time, err error, over bool) {
	took := time.Since(due)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.found.Failed++
		r.found.Texts = keepNew(r.found.Texts, err.Error())
	case over:
	default:
		r.window = append(r.window, took)
		if !due.Before(r.from) {
			r.found.Latencies = append(r.found.Latencies, took)
			if r.Answered != nil {
				r.Answered(due, took)
			}
		}
	}
}

// noteUnsent records the steps of a sequence that were due before the end, and had to wait for the answer to another one: a
// server that stands still at the end is slow for them, too. How long they would have waited is not known, so they count with
// how long they did. It returns when the next step is due.
func (r *pacing) noteUnsent(due time.Time, interval time.Duration) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	for now := time.Now(); due.Before(r.until) && due.Before(now); due = due.Add(interval) {
		if !due.Before(r.from) {
			r.found.Unsent++
			r.found.Latencies = append(r.found.Latencies, now.Sub(due))
		}
	}
	return due
}

// watch reports the progress until ending ends or the function that it returns is called.
func (r *pacing) watch(ending context.Context, began time.Time) (stop func()) {
	if r.Progress == nil {
		return func() {}
	}
	tick := time.NewTicker(time.Second)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for last := began; ; {
			select {
			case <-done:
				return
			case <-ending.Done():
				return
			case now := <-tick.C:
				r.Progress(r.progress(now.Sub(began), now.Sub(last)))
				last = now
			}
		}
	}()
	return func() {
		tick.Stop()
		close(done)
		<-stopped
	}
}

func (r *pacing) progress(elapsed, window time.Duration) Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.window)
	p := Progress{
		Elapsed: elapsed, Rate: float64(len(r.window)) / window.Seconds(), P99: nearest(r.window, 99),
		Failed: r.found.Failed, Resumed: int(r.resumed.Load()),
	}
	r.window = r.window[:0]
	return p
}

// paced is one sequence.
type paced struct {
	r    *pacing
	conn *grpc.ClientConn
	id   kserve.SequenceID
	step int

	resuming *stateful.Sequence // with Resume
	counted  int                // of its recoveries

	stream *kserve.Stream // with Stream; nil before the first step
	close  func()         // ends the stream
}

func (r *pacing) begin(index int) *paced {
	if r.Resume {
		return &paced{r: r, resuming: stateful.New(r.conns, r.Model, stateful.Options{AttemptTimeout: attempt})}
	}
	return &paced{r: r, conn: r.conns[index%len(r.conns)], id: r.ids.next()}
}

// send sends a step and waits for its answer.
func (s *paced) send(ctx context.Context, inputs []kserve.Tensor, last bool) error {
	if s.resuming != nil {
		var err error
		if last {
			_, err = s.resuming.End(ctx, inputs)
		} else {
			_, err = s.resuming.Infer(ctx, inputs)
		}
		s.r.resumed.Add(s.resumed())
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	request := kserve.NewRequest(s.r.Model, "", inputs)
	request.SetStep(s.id, s.step == 0, last)
	s.step++
	if s.r.Stream {
		return s.overStream(ctx, request, last)
	}
	_, err := kserve.Infer(ctx, s.conn, request)
	return err
}

// overStream sends a step over the stream of the sequence, which the first one opens, and the last one or an error ends.
func (s *paced) overStream(ctx context.Context, request *kserve.ModelInferRequest, last bool) (err error) {
	if s.stream == nil {
		whole, end := context.WithCancel(context.Background()) // a stream outlives the step that opens it
		if s.stream, err = kserve.OpenStream(whole, s.conn); err != nil {
			end()
			return err
		}
		s.close = end
	}
	stop := context.AfterFunc(ctx, s.close)
	defer func() {
		if stop(); err != nil || last {
			s.close()
		}
	}()
	if err := s.stream.Send(request); err != nil {
		return err
	}
	response := &kserve.ModelStreamInferResponse{}
	if err := s.stream.Receive(response); errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	if text := response.GetErrorMessage(); text != "" {
		return errors.New(text)
	}
	if last {
		return s.stream.Close()
	}
	return nil
}

// resumed returns how often the sequence was continued since the last call.
func (s *paced) resumed() int64 {
	if s.resuming == nil {
		return 0
	}
	more := s.resuming.Recoveries() - s.counted
	s.counted += more
	return int64(more)
}

// Describe asks a server for the inputs of a model. The batch axis and other axes of any extent are -1.
func Describe(ctx context.Context, url, model string) ([]Input, error) {
	conn, err := kserve.Dial(url)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	metadata, err := kserve.Metadata(ctx, conn, model)
	if err != nil {
		return nil, err
	}
	if len(metadata.GetInputs()) == 0 {
		return nil, errors.New("the model has no inputs")
	}
	var inputs []Input
	for _, in := range metadata.GetInputs() {
		inputs = append(inputs, Input{Name: in.GetName(), Datatype: in.GetDatatype(), Shape: in.GetShape()})
	}
	return inputs, nil
}
