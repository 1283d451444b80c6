// Soak lets thousands of sequences do as their clients please on a running server, and writes what became of every
// request to its standard output, a record each (see appendRecord). The models' states say whose they are, so that one
// foreign value shows. It checks nothing: scripts/soak.py, which makes the models and starts the server, reads the
// records and holds each against a model of what the sequence's state must be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tritonstateful/clients/go/kserve"
)

// config is what the command line says.
type config struct {
	url      string
	models   []string
	idle     time.Duration
	clients  int
	streams  int
	steps    int64
	duration time.Duration
	breaks   time.Duration
	seed     uint64
}

func parseConfig(args []string) (c config, err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.StringVar(&c.url, "url", "127.0.0.1:8001", "`host:port` of the server's gRPC service")
	flags.Func("models", "`names` of the models, with commas between them; a record has the number of its model among them", func(names string) error {
		c.models = strings.Split(names, ",")
		return nil
	})
	flags.DurationVar(&c.idle, "idle", 2*time.Second, "max_sequence_idle_microseconds of the models; clients pause for up to twice as long")
	flags.IntVar(&c.clients, "clients", 1000, "clients of each model, each with a correlation ID of its own")
	flags.IntVar(&c.streams, "streams", 4, "gRPC streams that the clients are spread over")
	flags.Int64Var(&c.steps, "steps", 0, "end after this `number` of requests (0: only by time)")
	flags.DurationVar(&c.duration, "duration", time.Minute, "end after this time")
	flags.DurationVar(&c.breaks, "breaks", 0, "mean time after which a stream is broken off with its requests on the way (0: never)")
	flags.Uint64Var(&c.seed, "seed", 1, "random seed")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if len(c.models) == 0 || c.clients < 1 || c.streams < 1 || c.idle <= 0 || c.breaks < 0 {
		return c, errors.New("-models, -idle, -clients and -streams must be given and positive, -breaks not negative")
	}
	return c, nil
}

// soak is what the streams share.
type soak struct {
	config  config
	records *recorder
	steps   atomic.Int64
	ended   atomic.Bool
}

// over reports that no more requests are to be sent.
func (s *soak) over() bool {
	return s.ended.Load() || s.config.steps > 0 && s.steps.Load() >= s.config.steps
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
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
	s.records = newRecorder(out)
	err = s.drive(ctx, streams)
	return errors.Join(err, s.records.close())
}

// open makes the clients and deals them out to streams, where they stay.
func (s *soak) open() ([]*stream, error) {
	streams := make([]*stream, s.config.streams)
	for i := range streams {
		conn, err := kserve.Dial(s.config.url)
		if err != nil {
			return nil, err
		}
		streams[i] = &stream{soak: s, conn: conn, rng: rand.New(rand.NewPCG(s.config.seed, uint64(i)))}
	}
	for m, name := range s.config.models {
		for id := range s.config.clients {
			to := streams[id%len(streams)]
			to.clients = append(to.clients, newClient(m, name, uint64(id+1), len(to.clients)))
		}
	}
	return streams, nil
}

// drainTime is how long the last answers and the ends of the streams may take; a server that takes longer has lost a
// request, or has never released one.
const drainTime = 30 * time.Second

// drive runs the streams until all have ended, which they do when it is time.
func (s *soak) drive(ctx context.Context, streams []*stream) error {
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
	late := time.AfterFunc(s.config.duration+drainTime, func() {
		cancel(fmt.Errorf("the last answers, or the ends of the streams, did not come within %v", drainTime))
	})
	end := time.AfterFunc(s.config.duration, func() { s.ended.Store(true) })
	running.Wait()
	end.Stop()
	late.Stop()
	return context.Cause(ctx)
}
