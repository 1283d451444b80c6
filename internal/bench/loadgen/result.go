package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is what a run found. Rates and percentiles are those of the measurement; errors and mismatches count over all
// phases, because a wrong answer is one whenever it comes.
type Result struct {
	Model      string           `json:"model"`
	Sequences  int              `json:"sequences"`
	Streams    int              `json:"streams"`
	Phases     map[string]Phase `json:"phases"`  // warmup, measure, drain
	Seconds    float64          `json:"seconds"` // of the measurement
	Rate       float64          `json:"requests_per_second"`
	Errors     int              `json:"errors"`
	ErrorTexts []string         `json:"error_texts,omitempty"` // the first few different ones
	Checked    bool             `json:"checked"`
	Mismatches int              `json:"mismatches"`
	WrongTexts []string         `json:"mismatch_texts,omitempty"`
	Server     Server           `json:"server"`
	Process    *Process         `json:"process,omitempty"` // only with a server's process ID
}

// Phase counts the answers that arrived in one phase.
type Phase struct {
	Requests int     `json:"requests"`
	Errors   int     `json:"errors"`
	Latency  Latency `json:"latency_us"`
}

// Server is what Triton's own statistics say of the measurement; times in microseconds per successful request.
type Server struct {
	Inferences    uint64  `json:"inference_count"`
	Executions    uint64  `json:"execution_count"`
	MeanBatch     float64 `json:"mean_batch"`
	Queue         float64 `json:"queue_us"`
	ComputeInput  float64 `json:"compute_input_us"`
	ComputeInfer  float64 `json:"compute_infer_us"`
	ComputeOutput float64 `json:"compute_output_us"`
}

// Process is what the server's processes used in the measurement.
type Process struct {
	CPUPerRequest float64 `json:"cpu_us_per_request"`
	CPUs          float64 `json:"cpus"`      // mean number of busy processors
	RSSBytes      uint64  `json:"rss_bytes"` // at the end
}

func newResult(c config, sum *tally, begin, end reading) Result {
	r := Result{
		Model: c.model, Sequences: c.sequences, Streams: min(c.streams, c.sequences),
		Phases:     make(map[string]Phase, phaseCount),
		Seconds:    end.at.Sub(begin.at).Seconds(),
		ErrorTexts: sum.errorTexts,
		Checked:    c.verify != "", Mismatches: sum.mismatches, WrongTexts: sum.wrongTexts,
	}
	for p := range phaseCount {
		r.Errors += sum.errors[p]
		r.Phases[p.String()] = Phase{
			Requests: len(sum.latencies[p]), Errors: sum.errors[p], Latency: summarize(sum.latencies[p]),
		}
	}
	measured := len(sum.latencies[phaseMeasure])
	r.Rate = float64(measured) / r.Seconds
	r.Server = newServer(begin, end)
	if c.serverPID != 0 && measured > 0 {
		cpu := end.usage.CPU - begin.usage.CPU
		r.Process = &Process{
			CPUPerRequest: microseconds(cpu) / float64(measured),
			CPUs:          cpu.Seconds() / r.Seconds,
			RSSBytes:      end.usage.RSSBytes,
		}
	}
	return r
}

func newServer(begin, end reading) Server {
	added := end.statistics.Since(begin.statistics)
	each := func(total time.Duration) float64 {
		return microseconds(total) / float64(max(added.Successes, 1))
	}
	return Server{
		Inferences: added.Inferences, Executions: added.Executions, MeanBatch: added.MeanBatch(),
		Queue: each(added.Queue), ComputeInput: each(added.ComputeInput),
		ComputeInfer: each(added.ComputeInfer), ComputeOutput: each(added.ComputeOutput),
	}
}

// String is the result for people.
func (r Result) String() string {
	var b strings.Builder
	measured := r.Phases[phaseMeasure.String()]
	latency := measured.Latency
	fmt.Fprintf(&b, "%s: %d sequences on %d streams, %.1f s\n", r.Model, r.Sequences, r.Streams, r.Seconds)
	fmt.Fprintf(&b, "  %.0f requests/s (%d), latency µs: p50 %.0f, p90 %.0f, p99 %.0f, max %.0f\n",
		r.Rate, measured.Requests, latency.P50, latency.P90, latency.P99, latency.Max)
	fmt.Fprintf(&b, "  mean batch %.1f; server µs/request: queue %.0f, input %.0f, infer %.0f, output %.0f\n",
		r.Server.MeanBatch, r.Server.Queue, r.Server.ComputeInput, r.Server.ComputeInfer, r.Server.ComputeOutput)
	if r.Process != nil {
		fmt.Fprintf(&b, "  server CPU %.1f µs/request (%.2f processors), %d MiB resident\n",
			r.Process.CPUPerRequest, r.Process.CPUs, r.Process.RSSBytes>>20)
	}
	fmt.Fprintf(&b, "  %d errors", r.Errors)
	if r.Checked {
		fmt.Fprintf(&b, ", %d wrong answers", r.Mismatches)
	}
	b.WriteString("\n")
	for _, text := range slices.Concat(r.ErrorTexts, r.WrongTexts) {
		fmt.Fprintf(&b, "    %s\n", text)
	}
	return b.String()
}
