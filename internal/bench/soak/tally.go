package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// tally is what came of requests.
type tally struct {
	kinds     [kinds]int
	latencies []time.Duration
	faults    []string
}

// maxFaults is how many faults are shown: enough to see what is wrong, not enough to flood.
const maxFaults = 10

func (t *tally) add(more *tally) {
	for k, n := range more.kinds {
		t.kinds[k] += n
	}
	t.latencies = append(t.latencies, more.latencies...)
	t.faults = append(t.faults, more.faults[:min(len(more.faults), maxFaults-len(t.faults))]...)
}

// counter is the tally of a stream, which the reporter takes away from time to time.
type counter struct {
	mu    sync.Mutex
	tally tally
}

func (c *counter) took(latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.latencies = append(c.tally.latencies, latency)
}

func (c *counter) count(k kind, model string, id uint64, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.kinds[k]++
	if text != "" && len(c.tally.faults) < maxFaults {
		c.tally.faults = append(c.tally.faults, fmt.Sprintf("%s, sequence %d: %s: %s", model, id, kindNames[k], text))
	}
}

// takeAway is what was counted since it was called last.
func (c *counter) takeAway() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tally
	c.tally = tally{}
	return t
}

func (t *tally) total() (n int) {
	for _, count := range t.kinds {
		n += count
	}
	return n
}

// percentile is the smallest latency that at least percent of all are not above; 0 if there are none.
func (t *tally) percentile(percent int) time.Duration {
	if len(t.latencies) == 0 {
		return 0
	}
	slices.Sort(t.latencies)
	rank := (len(t.latencies)*percent + 99) / 100
	return t.latencies[max(rank, 1)-1]
}
