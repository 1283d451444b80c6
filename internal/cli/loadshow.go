package cli

import (
	"fmt"
	"io"
	"strings"
)

// barWidth is the number of characters of the longest bar.
const barWidth = 50

func (c *command) printLoading(w io.Writer, r *loading) {
	p := c.colors(w)
	fmt.Fprintf(w, "%s: %s, %.1f steps/s of %.1f\n", p.bold(r.Model), counted(r.Sequences, "sequence"), r.Rate, r.Wanted)
	fmt.Fprintf(w, "latency: p50 %.2f ms, p90 %.2f ms, p99 %.2f ms, max %.2f ms\n\n", r.P50, r.P90, r.P99, r.Max)
	most := 1
	for _, b := range r.Histogram {
		most = max(most, b.Steps)
	}
	for _, b := range r.Histogram {
		fmt.Fprintf(w, "%9g ms  %8d  %s\n", b.UpTo, b.Steps, strings.Repeat("#", (b.Steps*barWidth+most-1)/most))
	}
	if len(r.Histogram) > 0 {
		fmt.Fprintln(w)
	}
	for _, o := range r.Objectives {
		verdict := p.good("met")
		if !o.Met {
			verdict = p.bad("missed")
		}
		fmt.Fprintf(w, "objective p%g <= %g ms: %.2f ms, %s\n", o.Percentile, o.Want, o.Got, verdict)
	}
	if r.Resumed > 0 {
		fmt.Fprintf(w, "sequences were resumed %s\n", counted(r.Resumed, "time"))
	}
	for _, k := range r.Kills {
		what := fmt.Sprintf("slowest step %.2f ms", k.Slowest)
		if k.Error != "" {
			what = p.bad("failed: " + k.Error)
		}
		fmt.Fprintf(w, "kill at %.1f s: %s\n", k.At, what)
	}
	if r.Unsent > 0 {
		fmt.Fprintf(w, "%s: the latencies have the time until the end\n", p.note(counted(r.Unsent, "step")+" waited for an answer until the end"))
	}
	switch {
	case r.Failed > 0:
		fmt.Fprintf(w, "%s: %s\n", p.bad(counted(r.Failed, "step")+" failed"), strings.Join(r.Failures, "; "))
	case r.Steps == 0:
		fmt.Fprintln(w, p.bad("no step was answered"))
	default:
		fmt.Fprintln(w, p.good("no step failed"))
	}
}
