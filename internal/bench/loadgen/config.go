package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"
)

// config is what the command line says.
type config struct {
	url       string
	model     string
	sequences int
	streams   int
	steps     int
	warmup    time.Duration
	duration  time.Duration
	requests  int64 // 0: as many as the duration allows
	inputs    []inputSpec
	outputs   []string
	stringIDs bool
	firstID   uint64
	verify    string
	endAnswer string
	wrong     int // -1: no value is wrong
	wrongFrom int
	serverPID int
	asJSON    bool
}

// inputSpec describes one input of a request, with its batch axis of size 1.
type inputSpec struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

// Values of -verify and -end-answer.
const (
	verifyAccumulate = "accumulate"
	endComputed      = "computed"
	endEmpty         = "empty"
)

func parseConfig(args []string) (config, error) {
	var c config
	var inputs, outputs string
	flags := flag.NewFlagSet("loadgen", flag.ContinueOnError)
	flags.StringVar(&c.url, "url", "127.0.0.1:8001", "`host:port` of the server's gRPC service")
	flags.StringVar(&c.model, "model", "", "`name` of the model")
	flags.IntVar(&c.sequences, "sequences", 64, "concurrent sequences, one request in flight each")
	flags.IntVar(&c.streams, "streams", 4, "gRPC streams that the sequences are spread over")
	flags.IntVar(&c.steps, "steps", 100, "requests of a sequence, the last one with END")
	flags.DurationVar(&c.warmup, "warmup", time.Second, "time of load before the measurement")
	flags.DurationVar(&c.duration, "duration", 5*time.Second, "time of the measurement")
	flags.Int64Var(&c.requests, "requests", 0, "end the measurement after so many requests, if that is earlier (0: never)")
	flags.StringVar(&inputs, "inputs", "", `inputs as JSON: [{"name":"Input","datatype":"FP32","shape":[1,4,1,5]}]`)
	flags.StringVar(&outputs, "outputs", "", "comma-separated `names` of the outputs to ask for (empty: all)")
	flags.BoolVar(&c.stringIDs, "string-ids", false, "use texts as correlation IDs")
	flags.Uint64Var(&c.firstID, "first-id", 1, "first correlation `ID`; later ones count up")
	flags.StringVar(&c.verify, "verify", "", "check every answer; `kind` accumulate: "+
		"the running sum of the rows of the first input, added to that input, is the first of -outputs")
	flags.StringVar(&c.endAnswer, "end-answer", endComputed,
		"what answers a request with END: computed (like any other) or empty (infer_end_requests=0; not checked)")
	flags.IntVar(&c.wrong, "wrong", -1, "a `value` up to 255 that the model refuses, sent in every element of the first input")
	flags.IntVar(&c.wrongFrom, "wrong-from", 1, "first `step` of a sequence that has the wrong value; 0 is START, so that no sequence begins")
	flags.IntVar(&c.serverPID, "server-pid", 0, "process `ID` of the server, to report its CPU time and memory")
	flags.BoolVar(&c.asJSON, "json", false, "write the result as JSON")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if outputs != "" {
		c.outputs = strings.Split(outputs, ",")
	}
	if inputs != "" {
		if err := json.Unmarshal([]byte(inputs), &c.inputs); err != nil {
			return config{}, fmt.Errorf("-inputs %q is not a JSON list of name, datatype and shape: %w", inputs, err)
		}
	}
	return c, c.validate()
}

// validate reports all faults at once.
func (c config) validate() error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(c.model == "", "-model is missing")
	fault(len(c.inputs) == 0, "-inputs is empty")
	fault(c.sequences < 1, "-sequences must be at least 1")
	fault(c.streams < 1, "-streams must be at least 1")
	fault(c.steps < 1, "-steps must be at least 1")
	fault(c.duration <= 0, "-duration must be positive")
	fault(c.firstID == 0, "-first-id 0 means no sequence to Triton; use 1 or more")
	fault(c.wrong < -1 || c.wrong > 255, "-wrong must be at most 255")
	fault(c.wrong >= smallValues && len(c.inputs) > 0 && c.inputs[0].Datatype == "FP16", "-wrong: FP16 has values up to %d", smallValues-1)
	fault(c.wrongFrom < 0, "-wrong-from must be at least 0")
	fault(c.wrong >= 0 && c.verify != "", "-wrong and -verify exclude each other")
	fault(c.endAnswer != endComputed && c.endAnswer != endEmpty, "-end-answer %q: want computed or empty", c.endAnswer)
	switch c.verify {
	case "":
	case verifyAccumulate:
		fault(len(c.outputs) == 0, "-verify accumulate needs the summed output's name in -outputs")
	default:
		fault(true, "-verify %q: only %q is known", c.verify, verifyAccumulate)
	}
	return errors.Join(faults...)
}
