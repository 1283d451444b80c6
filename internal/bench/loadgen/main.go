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

	"tritonstateful/clients/go/load"
)

func parseConfig(args []string) (c load.Config, err error) {
	flags := flag.NewFlagSet("loadgen", flag.ContinueOnError)
	flags.StringVar(&c.URL, "url", "127.0.0.1:8001", "`host:port` of the server's gRPC service")
	flags.StringVar(&c.Model, "model", "", "`name` of the model")
	flags.IntVar(&c.Sequences, "sequences", 64, "concurrent sequences, one request in flight each")
	flags.IntVar(&c.Active, "active", 0, "requests in flight, of any sequences; all are started first (0: one request of each sequence)")
	flags.DurationVar(&c.Pause, "pause", 500*time.Millisecond, "time without load after the sequences of -active have started")
	flags.Float64Var(&c.Rate, "rate", 0, "requests per `second`, sent at random times whether or not earlier ones were answered (0: each after an answer)")
	flags.IntVar(&c.Streams, "streams", 4, "gRPC streams that the sequences are spread over")
	flags.IntVar(&c.Steps, "steps", 100, "requests of a sequence, the last one with END")
	flags.DurationVar(&c.Warmup, "warmup", time.Second, "time of load before the measurement")
	flags.DurationVar(&c.Duration, "duration", 5*time.Second, "time of the measurement")
	inputs := flags.String("inputs", "", `inputs as JSON: [{"name":"Input","datatype":"FP32","shape":[1,4,1,5]}]`)
	outputs := flags.String("outputs", "", "comma-separated `names` of the outputs to ask for (empty: all)")
	flags.BoolVar(&c.StringIDs, "string-ids", false, "use strings as correlation IDs")
	flags.Uint64Var(&c.FirstID, "first-id", 1, "first correlation `ID`; later ones count up")
	flags.BoolVar(&c.Verify, "verify", false, "check every answer: the running sum of the rows of the first input, "+
		"added to that input, is the first of -outputs")
	flags.BoolVar(&c.EmptyEnd, "empty-end", false, "requests with END are answered by nothing (infer_end_requests=0): do not check them")
	flags.IntVar(&c.Wrong, "wrong", -1, "a `value` up to 255 that the model refuses, sent in every element of the first input")
	flags.IntVar(&c.WrongFrom, "wrong-from", 1, "first `step` of a sequence that has the wrong value; 0 is START, so that no sequence begins")
	flags.StringVar(&c.Samples, "samples", "", "`file` for a line with the start and the latency of each request, in nanoseconds")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if *outputs != "" {
		c.Outputs = strings.Split(*outputs, ",")
	}
	if err := json.Unmarshal([]byte(*inputs), &c.Inputs); err != nil {
		return c, fmt.Errorf("-inputs %q is not a JSON list of name, datatype and shape: %w", *inputs, err)
	}
	return c, c.Check()
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
	result, err := load.Run(ctx, config, func(phase string) { fmt.Fprintln(out, phase) })
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
