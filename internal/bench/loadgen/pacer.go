package main

import "sync/atomic"

// phase is a part of a run; answers are counted in the phase in which they arrive.
type phase int32

const (
	phaseWarmup phase = iota
	phaseMeasure
	phaseDrain // sequences end and are not replaced
	phaseCount
)

func (p phase) String() string { return [phaseCount]string{"warmup", "measure", "drain"}[p] }

// pacer tells all streams which phase it is, and the run when enough requests have been measured.
type pacer struct {
	current atomic.Int32
	left    atomic.Int64  // requests until enough
	enough  chan struct{} // closed once
}

// newPacer makes a pacer that measures so many requests; 0 means no limit.
func newPacer(requests int64) *pacer {
	p := &pacer{enough: make(chan struct{})}
	p.left.Store(requests)
	return p
}

func (p *pacer) enter(next phase) { p.current.Store(int32(next)) }

// count returns the phase of an answer that has just arrived. Without a limit the counter starts at 0 and only ever
// moves away from it.
func (p *pacer) count() phase {
	now := phase(p.current.Load())
	if now == phaseMeasure && p.left.Add(-1) == 0 {
		close(p.enough)
	}
	return now
}
