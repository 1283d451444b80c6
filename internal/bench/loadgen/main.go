package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

// config is what the command line says.
type config struct {
	url       string
	model     string
	sequences int
	active    int // requests in flight; 0: one of each sequence
	pause     time.Duration
	rate      float64 // requests per second, sent at random times; 0: when the one before is answered
	streams   int
	steps     int
	warmup    time.Duration
	duration  time.Duration
	inputs    []inputSpec
	outputs   []string
	stringIDs bool
	firstID   uint64
	verify    bool
	emptyEnd  bool
	wrong     int // -1: no value is wrong
	wrongFrom int
	samples   string
}

// inputSpec describes one input of a request, with its batch axis of size 1.
type inputSpec struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

func parseConfig(args []string) (c config, err error) {
	flags := flag.NewFlagSet("loadgen", flag.ContinueOnError)
	flags.StringVar(&c.url, "url", "127.0.0.1:8001", "`host:port` of the server's gRPC service")
	flags.StringVar(&c.model, "model", "", "`name` of the model")
	flags.IntVar(&c.sequences, "sequences", 64, "concurrent sequences, one request in flight each")
	flags.IntVar(&c.active, "active", 0, "requests in flight, of any sequences; all are started first (0: one request of each sequence)")
	flags.DurationVar(&c.pause, "pause", 500*time.Millisecond, "time without load after the sequences of -active have started")
	flags.Float64Var(&c.rate, "rate", 0, "requests per `second`, sent at random times whether or not earlier ones were answered (0: each after an answer)")
	flags.IntVar(&c.streams, "streams", 4, "gRPC streams that the sequences are spread over")
	flags.IntVar(&c.steps, "steps", 100, "requests of a sequence, the last one with END")
	flags.DurationVar(&c.warmup, "warmup", time.Second, "time of load before the measurement")
	flags.DurationVar(&c.duration, "duration", 5*time.Second, "time of the measurement")
	inputs := flags.String("inputs", "", `inputs as JSON: [{"name":"Input","datatype":"FP32","shape":[1,4,1,5]}]`)
	outputs := flags.String("outputs", "", "comma-separated `names` of the outputs to ask for (empty: all)")
	flags.BoolVar(&c.stringIDs, "string-ids", false, "use strings as correlation IDs")
	flags.Uint64Var(&c.firstID, "first-id", 1, "first correlation `ID`; later ones count up")
	flags.BoolVar(&c.verify, "verify", false, "check every answer: the running sum of the rows of the first input, "+
		"added to that input, is the first of -outputs")
	flags.BoolVar(&c.emptyEnd, "empty-end", false, "requests with END are answered by nothing (infer_end_requests=0): do not check them")
	flags.IntVar(&c.wrong, "wrong", -1, "a `value` up to 255 that the model refuses, sent in every element of the first input")
	flags.IntVar(&c.wrongFrom, "wrong-from", 1, "first `step` of a sequence that has the wrong value; 0 is START, so that no sequence begins")
	flags.StringVar(&c.samples, "samples", "", "`file` for a line with the start and the latency of each request, in nanoseconds")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if *outputs != "" {
		c.outputs = strings.Split(*outputs, ",")
	}
	if err := json.Unmarshal([]byte(*inputs), &c.inputs); err != nil {
		return config{}, fmt.Errorf("-inputs %q is not a JSON list of name, datatype and shape: %w", *inputs, err)
	}
	switch {
	case c.model == "" || len(c.inputs) == 0 || c.sequences < 1 || c.streams < 1 || c.steps < 1 || c.duration <= 0 || c.firstID < 1:
		return config{}, errors.New("-model, -inputs, -sequences, -streams, -steps, -duration and -first-id must be given and positive")
	case c.verify && (len(c.outputs) == 0 || c.wrong >= 0):
		return config{}, errors.New("-verify needs the name of the summed output in -outputs, and excludes -wrong")
	case c.active < 0 || c.active > c.sequences || c.pause < 0 || c.rate < 0:
		return config{}, errors.New("-active must be 0 to -sequences, -pause and -rate not negative")
	case c.rate > 0 && (c.active > 0 || c.verify || c.wrong >= 0):
		return config{}, errors.New("-rate excludes -active, -verify and -wrong")
	}
	c.streams = min(c.streams, c.sequences)
	if c.active > 0 {
		c.streams = min(c.streams, c.active)
	}
	return c, nil
}

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}

// run loads the server as the arguments say and writes the result. A failed request or a wrong answer makes it fail
// after the result is written.
func run(args []string, out io.Writer) error {
	config, err := parseConfig(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	result, err := measure(ctx, config, out)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(result); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	if result.Errors > 0 || result.Mismatches > 0 {
		return fmt.Errorf("%d requests failed, %d answers were wrong", result.Errors, result.Mismatches)
	}
	return nil
}
