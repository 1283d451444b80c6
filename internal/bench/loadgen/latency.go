package main

import (
	"slices"
	"time"
)

// Latency sums up how long answers took, in microseconds. The percentiles are exact: every answer is kept and sorted,
// 8 bytes each, which is less than a histogram costs in explanation.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// summarize sorts the latencies in place.
func summarize(latencies []time.Duration) Latency {
	if len(latencies) == 0 {
		return Latency{}
	}
	slices.Sort(latencies)
	var sum time.Duration
	for _, latency := range latencies {
		sum += latency
	}
	return Latency{
		Mean: microseconds(sum) / float64(len(latencies)),
		P50:  microseconds(percentile(latencies, 50)),
		P90:  microseconds(percentile(latencies, 90)),
		P99:  microseconds(percentile(latencies, 99)),
		Max:  microseconds(latencies[len(latencies)-1]),
	}
}

// percentile is the smallest latency that at least percent of all are not above (nearest rank). The slice is sorted
// and not empty.
func percentile(sorted []time.Duration, percent int) time.Duration {
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
