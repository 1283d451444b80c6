// Soak lets thousands of sequences do as their clients please on a running server, and holds every answer against the
// clients' own accounts. The models' states say whose they are, so that one foreign value shows. It prints what it sees
// over time and ends with a verdict, which is also its exit code. scripts/soak.py makes the models and starts the
// server.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tritonstateful/internal/bench/procstat"
)

// config is what the command line says.
type config struct {
	url      string
	models   []rules
	clients  int
	streams  int
	steps    int64
	duration time.Duration
	every    time.Duration
	breaks   time.Duration
	seed     uint64
	pid      int
}

func parseConfig(args []string) (c config, err error) {
	var models string
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.StringVar(&c.url, "url", "127.0.0.1:8001", "`host:port` of the server's gRPC service")
	flags.StringVar(&models, "models", "", `models and their rules as JSON: [{"model":"m","evicts":true,"budget":false,"end_silent":false,"idle":1000000000}]`)
	flags.IntVar(&c.clients, "clients", 500, "clients of each model, each with a correlation ID of its own")
	flags.IntVar(&c.streams, "streams", 4, "gRPC streams that the clients are spread over")
	flags.Int64Var(&c.steps, "steps", 0, "end after so many requests (0: only by time)")
	flags.DurationVar(&c.duration, "duration", time.Minute, "end after this time")
	flags.DurationVar(&c.every, "every", 5*time.Second, "time between lines of the report")
	flags.DurationVar(&c.breaks, "breaks", 0, "mean time after which a stream is broken off with its requests on the way (0: never; the memory is not judged else)")
	flags.Uint64Var(&c.seed, "seed", 1, "seed of the dice")
	flags.IntVar(&c.pid, "server-pid", 0, "process `ID` of the server, to report its memory")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(models), &c.models); err != nil {
		return c, fmt.Errorf("-models %q: %w", models, err)
	}
	if len(c.models) == 0 || c.clients < 1 || c.streams < 1 || c.breaks < 0 || c.every <= 0 {
		return c, errors.New("-models, -clients, -streams and -every must be given and positive, -breaks not negative")
	}
	for _, m := range c.models {
		if m.Model == "" || m.Idle < time.Second {
			return c, fmt.Errorf("-models: %+v needs a name and an idle limit of a second at least", m)
		}
	}
	return c, nil
}

// soak is what the streams share.
type soak struct {
	config config
	steps  atomic.Int64
	ended  atomic.Bool
}

// over tells that no more requests are to be sent.
func (s *soak) over() bool {
	return s.ended.Load() || s.config.steps > 0 && s.steps.Load() >= s.config.steps
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
	fmt.Println("PASSED")
}

func run(ctx context.Context, args []string, out io.Writer) error {
	c, err := parseConfig(args)
	if err != nil {
		return err
	}
	s := &soak{config: c}
	streams, err := s.open()
	if err != nil {
		return err
	}
	return s.drive(ctx, streams, &report{out: out, breaks: c.breaks > 0})
}

// open makes the clients and deals them out to streams, where they stay.
func (s *soak) open() ([]*stream, error) {
	streams := make([]*stream, s.config.streams)
	for i := range streams {
		conn, err := grpc.NewClient(s.config.url, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", s.config.url, err)
		}
		streams[i] = &stream{soak: s, conn: conn, rng: rand.New(rand.NewPCG(s.config.seed, uint64(i)))}
	}
	for m := range s.config.models {
		for id := range s.config.clients {
			to := streams[id%len(streams)]
			to.clients = append(to.clients, newClient(&s.config.models[m], uint64(id+1), len(to.clients)))
		}
	}
	return streams, nil
}

// drive runs the streams and reports until all have ended.
func (s *soak) drive(ctx context.Context, streams []*stream, r *report) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for i, one := range streams {
		running.Go(func() {
			if err := one.run(ctx); err != nil {
				cancel(fmt.Errorf("stream %d: %w", i, err))
			}
			one.conn.Close()
		})
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	err := s.watch(streams, r, done)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	return r.verdict()
}

// drainTime is how long the last answers may take; a server that takes longer has lost a request.
const drainTime = 30 * time.Second

// watch reports until the streams have ended, and ends them when it is time.
func (s *soak) watch(streams []*stream, r *report, done <-chan struct{}) error {
	start := time.Now()
	last := start
	end := time.After(s.config.duration)
	var late <-chan time.Time
	tick := time.NewTicker(s.config.every)
	defer tick.Stop()
	r.header()
	for {
		finished := false
		select {
		case <-tick.C:
		case <-end:
			s.ended.Store(true)
			late = time.After(drainTime)
			continue
		case <-late:
			return fmt.Errorf("the last answers did not come within %v", drainTime)
		case <-done:
			finished = true
		}
		now := time.Now()
		one := sample{at: now.Sub(start), took: now.Sub(last)}
		last = now
		for _, from := range streams {
			t := from.counter.takeAway()
			one.tally.add(&t)
		}
		if s.config.pid != 0 {
			var err error
			if one.process, err = procstat.ReadStatus(s.config.pid); err != nil {
				return err
			}
		}
		r.add(one)
		if finished {
			return nil
		}
	}
}
