package backend

import (
	"context"
	"log/slog"
	"time"

	"tritonstateful/backend/config"
)

// timings is how long the parts of a batch took.
type timings struct {
	last                                     time.Duration // end of the last part
	input, gather, run, scatter, send, total time.Duration
	began                                    time.Duration
}

func (s *timings) begin(now time.Duration) { s.began, s.last = now, now }

// add adds the time since the last call to a part.
func (s *timings) add(part *time.Duration, now time.Duration) {
	*part += now - s.last
	s.last = now
}

// periodicLog sums up batches and reports them every metric_logging_frequency_seconds.
type periodicLog struct {
	every    time.Duration // 0: never
	last     time.Duration
	details  slog.Level
	silent   bool
	sum      timings
	grow     time.Duration
	requests int
	calls    int
	largest  int
}

func newPeriodicLog(p *config.Parameters, clock func() time.Duration) *periodicLog {
	r := &periodicLog{every: p.MetricsPeriod, last: clock(), silent: p.Log == config.LogNone, details: slog.LevelDebug}
	if p.Details == config.LogInfo {
		r.details = slog.LevelInfo
	}
	return r
}

// ran counts one run of n requests.
func (r *periodicLog) ran(n int) {
	r.requests += n
	r.calls++
	r.largest = max(r.largest, n)
}

// batch adds what a batch took, and reports if it is time.
func (r *periodicLog) batch(s *timings, grow, now time.Duration, log *slog.Logger) {
	if r.every == 0 {
		return
	}
	r.sum.input += s.input
	r.sum.gather += s.gather
	r.sum.run += s.run
	r.sum.scatter += s.scatter
	r.sum.send += s.send
	r.sum.total += now - s.began
	r.grow += grow
	if now-r.last < r.every {
		return
	}
	if !r.silent && r.calls > 0 {
		log.Log(context.Background(), r.details, "time spent since the last report",
			"inputs", r.sum.input, "gather", r.sum.gather, "run", r.sum.run, "scatter", r.sum.scatter,
			"responses", r.sum.send, "slot_allocation", r.grow, "total", r.sum.total,
			"requests", r.requests, "runs", r.calls)
		log.Info("batch size since the last report", "average", float64(r.requests)/float64(r.calls), "largest", r.largest)
	}
	*r = periodicLog{every: r.every, last: now, details: r.details, silent: r.silent}
}
