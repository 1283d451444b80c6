package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"tritonstateful/internal/bench/procstat"
)

// sample is what one interval showed.
type sample struct {
	at      time.Duration // since the start, at the end of the interval
	took    time.Duration
	tally   tally
	process procstat.Status
}

// report prints a line for each interval and sums all up.
type report struct {
	out     io.Writer
	sum     tally // without latencies
	breaks  bool  // streams are broken off
	samples []sample
}

func (r *report) header() {
	fmt.Fprintf(r.out, "%8s %10s %8s %8s %8s %8s %8s %8s %5s  %s\n",
		"time", "steps", "steps/s", "p50 ms", "p99 ms", "max ms", "RSS MiB", "threads", "fds", "answers")
}

// add takes an interval's sample and prints it.
func (r *report) add(s sample) {
	t := &s.tally
	r.sum.add(t)
	r.sum.latencies = nil
	fmt.Fprintf(r.out, "%8s %10d %8.0f %8s %8s %8s %8d %8d %5d  %s\n",
		s.at.Round(time.Second), r.sum.total(), float64(t.total())/s.took.Seconds(),
		milliseconds(t.percentile(50)), milliseconds(t.percentile(99)), milliseconds(t.percentile(100)),
		s.process.RSSBytes>>20, s.process.Threads, s.process.Files, shares(t))
	for _, fault := range t.faults {
		fmt.Fprintf(r.out, "    %s\n", fault)
	}
	s.tally = tally{}
	r.samples = append(r.samples, s)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }

// shares says in percent what came of the requests, the most frequent first.
func shares(t *tally) string {
	var order []kind
	for k, n := range t.kinds {
		if n > 0 {
			order = append(order, kind(k))
		}
	}
	slices.SortStableFunc(order, func(a, b kind) int { return t.kinds[b] - t.kinds[a] })
	words := make([]string, len(order))
	for i, k := range order {
		words[i] = fmt.Sprintf("%s %.1f%%", kindNames[k], 100*float64(t.kinds[k])/float64(t.total()))
		if k >= forbidden {
			words[i] = fmt.Sprintf("%s: %d", kindNames[k], t.kinds[k])
		}
	}
	return strings.Join(words, ", ")
}

// flatAfter is how long a soak must take before its memory is judged: until then the allocators' pools fill.
const flatAfter = 2 * time.Minute

// The growth between the second and the last quarter of a soak that still counts as flat.
const (
	flatRSS     = 16 << 20 // or a 20th of it, if that is more
	flatThreads = 2
	flatFiles   = 8
)

// verdict prints how it ended; the error says what is wrong.
func (r *report) verdict() error {
	fmt.Fprintln(r.out)
	for k, n := range r.sum.kinds {
		fmt.Fprintf(r.out, "%10d %s\n", n, kindNames[k])
	}
	fmt.Fprintf(r.out, "%10d steps in all\n", r.sum.total())
	var faults []string
	if n := r.sum.kinds[foreign]; n > 0 {
		faults = append(faults, fmt.Sprintf("%d answers had foreign or wrong values", n))
	}
	if n := r.sum.kinds[forbidden]; n > 0 {
		faults = append(faults, fmt.Sprintf("%d errors should not be", n))
	}
	if r.sum.kinds[answered] == 0 {
		faults = append(faults, "nothing was answered")
	}
	faults = append(faults, r.growth()...)
	if len(faults) > 0 {
		return fmt.Errorf("%s", strings.Join(faults, "; "))
	}
	return nil
}

// growth says what the server has more of at the end than after it had warmed up.
func (r *report) growth() (faults []string) {
	n := len(r.samples)
	if n == 0 || r.samples[n-1].process.RSSBytes == 0 {
		return nil
	}
	if r.breaks {
		fmt.Fprintln(r.out, "memory is not judged: tritonserver 2.51 keeps some of every cancelled request, whatever the backend")
		return nil
	}
	if r.samples[n-1].at < flatAfter || n < 8 {
		fmt.Fprintf(r.out, "memory is not judged: that takes %v\n", flatAfter)
		return nil
	}
	before, after := r.samples[n/4:n/2], r.samples[n*3/4:]
	check := func(what string, allowed func(before uint64) uint64, unit uint64, of func(procstat.Status) uint64) {
		a, b := median(before, of), median(after, of)
		fmt.Fprintf(r.out, "%s: %d in the second quarter, %d in the last\n", what, a/unit, b/unit)
		if b > a+allowed(a) {
			faults = append(faults, fmt.Sprintf("%s grew from %d to %d", what, a/unit, b/unit))
		}
	}
	constant := func(n uint64) func(uint64) uint64 { return func(uint64) uint64 { return n } }
	check("MiB of memory", func(b uint64) uint64 { return max(flatRSS, b/20) }, 1<<20, func(s procstat.Status) uint64 { return s.RSSBytes })
	check("threads", constant(flatThreads), 1, func(s procstat.Status) uint64 { return s.Threads })
	check("open files", constant(flatFiles), 1, func(s procstat.Status) uint64 { return s.Files })
	return faults
}

func median(samples []sample, of func(procstat.Status) uint64) uint64 {
	values := make([]uint64, len(samples))
	for i := range samples {
		values[i] = of(samples[i].process)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
