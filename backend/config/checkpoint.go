package config

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Checkpoint is where and when the states of sequences are saved, so that they outlive the
// server. docs/sequences-outlive-the-server.md describes it.
type Checkpoint struct {
	Store     string // URL of the store; empty: none
	Namespace string // first part of the keys; empty: that of the model and version
	When      When
	Steps     uint64        // for EverySteps
	Interval  time.Duration // for EveryInterval
	Rate      int64         // bytes per second, of an instance; 0 is no bound
	TTL       time.Duration // how long a saved state is kept; 0: see SavedFor
	Precision Precision
	// AdoptLayout: a state that another model saved is restored if it has the same layout.
	AdoptLayout bool
	// Timeout bounds each call to the store.
	Timeout time.Duration
	Resume  Resume
}

// Resume says which requests have the store asked for the state of their sequence.
type Resume uint8

// The choices of the parameter resume.
const (
	ResumeAuto      Resume = iota // OnMiss for free sequences, else OnRequest
	ResumeOnRequest               // those with stateful_resume
	ResumeOnMiss                  // also those of free sequences that have no state here
	ResumeOff
)

// When says which steps make the state of a sequence due to be saved.
type When uint8

// The choices of the parameter checkpoint.
const (
	EveryInterval When = iota
	EverySteps
	OnRequest // only those that a request asks for
	EveryStep // all, before their answers are sent
	Never
)

// Precision is how elements of states of type FP32 are saved.
type Precision uint8

// The choices of the parameter checkpoint_precision.
const (
	SaveExact Precision = iota
	SaveFP16
	SaveBF16
)

// checkpointDefaults are the parameters that have no effect without state_store.
var checkpointDefaults = [...][2]string{
	{"state_namespace", ""}, {"checkpoint", "interval=1000"}, {"checkpoint_rate", "0"}, {"checkpoint_ttl", "0"},
	{"checkpoint_precision", "exact"}, {"adopt", "same_model"}, {"store_timeout", "1000"},
	{"resume", "auto"},
}

// defaultInterval bounds what a sequence loses with its server.
const defaultInterval = 1000 * time.Millisecond

func (r *paramReader) checkpoint() Checkpoint {
	c := Checkpoint{
		Store:     r.store(),
		Namespace: r.text("state_namespace", ""),
		Rate:      int64(r.count("checkpoint_rate", 0, math.MaxInt)),
		TTL:       time.Duration(r.count("checkpoint_ttl", 0, math.MaxInt32)) * time.Second,
		Precision: oneOf(r, "checkpoint_precision", SaveExact,
			choice("exact", SaveExact), choice("fp16", SaveFP16), choice("bf16", SaveBF16)),
		AdoptLayout: oneOf(r, "adopt", false, choice("same_model", false), choice("same_layout", true)),
		Timeout:     time.Duration(r.count("store_timeout", 1000, 3600_000)) * time.Millisecond,
		Resume: oneOf(r, "resume", ResumeAuto, choice("auto", ResumeAuto),
			choice("on_request", ResumeOnRequest), choice("on_miss", ResumeOnMiss), choice("off", ResumeOff)),
	}
	r.when(&c)
	if c.Timeout == 0 {
		r.fault("store_timeout", "0", "milliseconds, 1 or more")
	}
	if strings.ContainsAny(c.Namespace, "{}\x00\n") {
		r.fault("state_namespace", c.Namespace, "a name without braces and line ends")
	}
	if c.Store != "" || r.faulty["state_store"] {
		return c
	}
	for _, of := range checkpointDefaults {
		if text, given := r.value(of[0]); given && text != of[1] {
			r.warnings = append(r.warnings, fmt.Sprintf("parameter %s has no effect without state_store", of[0]))
		}
	}
	return c
}

// store is the URL of the store, or empty. A password has no place in a model repository, nor
// in the log.
func (r *paramReader) store() string {
	const name = "state_store"
	text := r.text(name, "")
	switch at, err := url.Parse(text); {
	case err != nil: // which quotes a part of it
		r.reject(name, fmt.Errorf("parameter %s: the URL cannot be parsed: want one such as valkey://localhost:6379/0 or file:/FOLDER", name))
		return ""
	case at.User != nil:
		r.reject(name, fmt.Errorf("parameter %s: the URL has a user or a password: want them in the environment, as STATEFUL_STORE_USER and STATEFUL_STORE_PASSWORD", name))
		return ""
	}
	if text == "none" {
		return ""
	}
	return text
}

// when reads the parameter checkpoint.
func (r *paramReader) when(c *Checkpoint) {
	const name = "checkpoint"
	c.Interval = defaultInterval
	text, given := r.value(name)
	if !given {
		byDefault(r, name, fmt.Sprintf("interval=%d", defaultInterval.Milliseconds()))
		return
	}
	word, number, numbered := strings.Cut(text, "=")
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 31)
	numbered = numbered && err == nil && n > 0
	switch word = strings.TrimSpace(word); {
	case word == "steps" && numbered:
		c.When, c.Steps = EverySteps, n
	case word == "interval" && numbered:
		c.When, c.Interval = EveryInterval, time.Duration(n)*time.Millisecond
	case text == "request":
		c.When = OnRequest
	case text == "sync":
		c.When = EveryStep
	case text == "off":
		c.When = Never
	default:
		r.fault(name, text, "steps=N, interval=MS (milliseconds), request, sync or off")
	}
}

// SavedFor is how long a saved state is kept after it was last written: as long as the
// sequence may idle, twice, and not less than a minute. Where sequences may idle for ever it
// is a day.
func (c *Checkpoint) SavedFor(idle time.Duration) time.Duration {
	switch {
	case c.TTL > 0:
		return c.TTL
	case idle == 0:
		return 24 * time.Hour
	default:
		return max(2*idle, time.Minute)
	}
}
