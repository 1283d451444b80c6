package build

import (
	"fmt"
	"strings"
	"time"
)

// A step is a part of a verb that is timed and reported.
type step struct {
	name       string
	needsBuild bool // skipped after the step "build" failed
	run        func() error
}

// A result is how a step ended.
type result struct {
	step    string
	took    time.Duration
	err     error
	skipped bool
}

// steps runs the steps one after the other and reports them at the end. A failed
// step does not keep the others from running, so that one run shows all that is
// wrong; an interrupt does.
func (t *tree) steps(steps []step) error {
	var results []result
	for _, s := range steps {
		if t.ctx.Err() != nil || s.needsBuild && failed(results, "build") {
			results = append(results, result{step: s.name, skipped: true})
			continue
		}
		fmt.Printf("\n=== %s\n", s.name)
		start := time.Now()
		err := s.run()
		results = append(results, result{step: s.name, took: time.Since(start), err: err})
	}
	return report(results)
}

func failed(results []result, name string) bool {
	for _, r := range results {
		if r.step == name {
			return r.err != nil
		}
	}
	return false
}

// report prints a line for each step. Its error names the steps that did not
// pass.
func report(results []result) error {
	fmt.Println()
	var bad []string
	for _, r := range results {
		fmt.Println(r)
		if r.err != nil || r.skipped {
			bad = append(bad, r.step)
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("FAILED: %s", strings.Join(bad, ", "))
	}
	fmt.Println("PASSED")
	return nil
}

func (r result) String() string {
	took := r.took.Round(100 * time.Millisecond)
	switch {
	case r.skipped:
		return fmt.Sprintf("  skipped  %s", r.step)
	case r.err != nil:
		return fmt.Sprintf("  FAILED   %-16s %8s  %v", r.step, took, r.err)
	default:
		return fmt.Sprintf("  ok       %-16s %8s", r.step, took)
	}
}
