package main

import (
	"slices"
	"time"
)

// maxTexts is how many different error texts are kept: enough to see what is wrong, not enough to flood.
const maxTexts = 5

// tally is what one stream saw. Only its stream touches it until the stream has ended.
type tally struct {
	latencies  [phaseCount][]time.Duration // of every answer, errors included
	errors     [phaseCount]int
	errorTexts []string
	mismatches int
	wrongTexts []string
}

func (t *tally) answer(p phase, latency time.Duration) {
	t.latencies[p] = append(t.latencies[p], latency)
}

func (t *tally) fail(p phase, text string) {
	t.errors[p]++
	t.errorTexts = keep(t.errorTexts, text)
}

func (t *tally) mismatch(text string) {
	t.mismatches++
	t.wrongTexts = keep(t.wrongTexts, text)
}

// add merges another stream's tally into t.
func (t *tally) add(other *tally) {
	for p := range phaseCount {
		t.latencies[p] = append(t.latencies[p], other.latencies[p]...)
		t.errors[p] += other.errors[p]
	}
	t.mismatches += other.mismatches
	for _, text := range other.errorTexts {
		t.errorTexts = keep(t.errorTexts, text)
	}
	for _, text := range other.wrongTexts {
		t.wrongTexts = keep(t.wrongTexts, text)
	}
}

// keep adds a text that is new, as long as there are few.
func keep(texts []string, text string) []string {
	if len(texts) >= maxTexts || slices.Contains(texts, text) {
		return texts
	}
	return append(texts, text)
}
