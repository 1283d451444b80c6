package load

import (
	"errors"
	"time"
)

// Config says what a load is.
type Config struct {
	URL       string // host:port of the gRPC service
	Model     string
	Sequences int           // concurrent ones, with one request in flight each
	Active    int           // requests in flight, of any sequences; 0: one of each
	Pause     time.Duration // without load after all sequences of Active have started
	Rate      float64       // requests per second, sent at random times; 0: each after the answer to the one before
	Streams   int           // gRPC streams that the sequences are spread over
	Steps     int           // requests of a sequence, the last one with END
	Warmup    time.Duration // of load before the measurement
	Duration  time.Duration // of the measurement
	Inputs    []Input
	Outputs   []string // to ask for; none: all
	StringIDs bool     // correlation IDs are strings
	FirstID   uint64   // of the correlation IDs, which count up
	Verify    bool     // check that answers are sums of the first input
	EmptyEnd  bool     // answers to END are nothing, and not checked
	Wrong     int      // a value that the model refuses, in every element of the first input; -1: none
	WrongFrom int      // the first step that has it
	Samples   string   // file for the start and the latency of each request; empty: none
}

// Input is one input of a request, with its batch axis of size 1.
type Input struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

// Check returns what is wrong with a Config, and bounds Streams. Errors use the names of loadgen's flags.
func (c *Config) Check() error {
	switch {
	case c.Model == "" || len(c.Inputs) == 0 || c.Sequences < 1 || c.Streams < 1 || c.Steps < 1 || c.Duration <= 0 || c.FirstID < 1:
		return errors.New("-model, -inputs, -sequences, -streams, -steps, -duration and -first-id must be given and positive")
	case c.Verify && (len(c.Outputs) == 0 || c.Wrong >= 0):
		return errors.New("-verify needs the name of the summed output in -outputs, and excludes -wrong")
	case c.Active < 0 || c.Active > c.Sequences || c.Pause < 0 || c.Rate < 0:
		return errors.New("-active must be 0 to -sequences, -pause and -rate not negative")
	case c.Rate > 0 && (c.Active > 0 || c.Verify || c.Wrong >= 0):
		return errors.New("-rate excludes -active, -verify and -wrong")
	}
	c.Streams = min(c.Streams, c.Sequences)
	if c.Active > 0 {
		c.Streams = min(c.Streams, c.Active)
	}
	return nil
}
