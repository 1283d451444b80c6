package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// Free sequences are those of a model whose scheduler is the dynamic batcher, which knows
// nothing of sequences. What Triton's sequence batcher is told in sequence_batching, parameters
// say here.

// DynamicConfig is dynamic_batching.
type DynamicConfig struct {
	PreferredBatchSizes       []int  `json:"preferred_batch_size"`
	MaxQueueDelayMicroseconds uint64 `json:"max_queue_delay_microseconds"`
	// PriorityLevels, if there are several, have Triton hand over requests in another order
	// than that in which they came.
	PriorityLevels uint64 `json:"priority_levels"`
	// DefaultQueuePolicy is that of all requests without one for their priority.
	DefaultQueuePolicy QueuePolicy `json:"default_queue_policy"`
}

// QueuePolicy is what limits how long requests wait in Triton, as far as it matters here.
type QueuePolicy struct {
	DefaultTimeoutMicroseconds uint64 `json:"default_timeout_microseconds"`
	AllowTimeoutOverride       bool   `json:"allow_timeout_override"`
	MaxQueueSize               uint64 `json:"max_queue_size"`
}

// Prefetches reports whether Triton hands over the next batch while one runs. With priorities or
// a queue policy it waits until an instance is idle, and may notice that half a second late.
func (d *DynamicConfig) Prefetches() bool {
	return d.PriorityLevels == 0 && d.DefaultQueuePolicy == QueuePolicy{}
}

// ResponseCache is response_cache.
type ResponseCache struct {
	Enable bool `json:"enable"`
}

// InstanceGroup is one instance_group.
type InstanceGroup struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	GPUs  []int  `json:"gpus"`
}

// WarmUp is one model_warmup.
type WarmUp struct {
	BatchSize int `json:"batch_size"`
	Count     int `json:"count"` // how often its batch runs; 0 is once
}

// Scheduling says whether requests under the dynamic batcher belong to sequences.
type Scheduling uint8

// The choices of the parameter sequences.
const (
	ScheduleAuto Scheduling = iota // if the model has states
	ScheduleFree                   // yes
)

// Begin says which request begins a free sequence.
type Begin uint8

// The choices of the parameter begin.
const (
	BeginStart    Begin = iota // one with the START flag
	BeginImplicit              // also the first of its ID
)

// Free is what parameters say of free sequences.
type Free struct {
	Scheduling Scheduling
	Begin      Begin
	MaxSlots   int           // max_sequences; 0: see FreeSlots
	Idle       time.Duration // how long a sequence may go without a request; 0 is for ever
}

// defaultFreeSlots are the slots of a model whose configuration does not say how many.
const defaultFreeSlots = 256

const defaultFreeIdle = 60_000 // milliseconds

// FreeNames are the parameters that have an effect on free sequences only.
var FreeNames = [...]string{"begin", "max_sequences", "sequence_idle_ms"}

func (r *paramReader) free() Free {
	return Free{
		Scheduling: oneOf(r, "sequences", ScheduleAuto, choice("auto", ScheduleAuto), choice("free", ScheduleFree)),
		Begin:      oneOf(r, "begin", BeginStart, choice("start", BeginStart), choice("implicit", BeginImplicit)),
		MaxSlots:   r.count("max_sequences", 0, 1<<31-1),
		Idle:       time.Duration(r.count("sequence_idle_ms", defaultFreeIdle, 1<<31-1)) * time.Millisecond,
	}
}

// FreeSlots is how many free sequences there can be at a time.
func (p *Parameters) FreeSlots(c *Config) int {
	if p.Free.MaxSlots > 0 {
		return p.Free.MaxSlots
	}
	return max(defaultFreeSlots, c.MaxBatchSize)
}

// FreeSizing computes the slots for free sequences.
func (p *Parameters) FreeSizing(c *Config) (statebuffer.Sizing, error) {
	sizing, err := statebuffer.NewSizing(p.FreeSlots(c), max(c.MaxBatchSize, 1), 1, p.Lazy)
	if err != nil {
		return sizing, status.Errorf(status.InvalidArg, "the slots for sequences (max_sequences): %w", err)
	}
	return sizing, nil
}

// CheckFree says why free sequences cannot be served as the configuration asks: all instances
// of the model share one table of sequences, which is on one device.
func (c *Config) CheckFree() error {
	devices := map[string]bool{}
	for i := range c.InstanceGroups {
		g := &c.InstanceGroups[i]
		for _, gpu := range g.GPUs {
			devices[fmt.Sprintf("%s %d", g.Kind, gpu)] = true
		}
		if len(g.GPUs) == 0 {
			devices[g.Kind] = true
		}
	}
	if len(devices) > 1 {
		return status.Errorf(status.InvalidArg, "instance_group has %d devices (%s): want one, because Triton hands a request of the dynamic batcher to any instance, and the states are on one: name one device, with any count, or use sequence_batching", len(devices), strings.Join(slices.Sorted(maps.Keys(devices)), ", "))
	}
	return nil
}

// Instances is how many instances of the model there are.
func (c *Config) Instances() (n int) {
	for i := range c.InstanceGroups {
		g := &c.InstanceGroups[i]
		n += max(1, g.Count) * max(1, len(g.GPUs))
	}
	return n
}

// CheckCache says why responses must not be cached of a model whose requests belong to
// sequences.
func (c *Config) CheckCache() error {
	if c.ResponseCache.Enable {
		return status.Errorf(status.InvalidArg, "response_cache is enabled: a response from the cache would skip a step of its sequence: remove response_cache")
	}
	return nil
}

// WarmUpRequests is how many requests of model_warmup an instance gets before those of
// clients.
func (c *Config) WarmUpRequests() (n int) {
	for i := range c.WarmUps {
		n += max(1, c.WarmUps[i].BatchSize) * max(1, c.WarmUps[i].Count)
	}
	return n
}

// FreeConflicts says why the parameter sequences does not fit the scheduler.
func (p *Parameters) FreeConflicts(c *Config) error {
	switch {
	case p.Free.Scheduling != ScheduleFree:
		return nil
	case c.Sequence != nil:
		return status.Errorf(status.InvalidArg, "parameter sequences is free, but the configuration has sequence_batching: remove one of them")
	case c.Dynamic == nil:
		return status.Errorf(status.InvalidArg, "parameter sequences is free, but the configuration has no scheduler: want dynamic_batching { }")
	default:
		return nil
	}
}
