package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestArrivalsKeepTheirRate(t *testing.T) {
	f := startFakeServer(t)
	result, err := runLoad(t, f, "-rate", "1000", "-steps", "4", "-duration", "300ms")
	if err != nil {
		t.Fatalf("%v: %+v", err, result)
	}
	if result.Rate < 700 || result.Rate > 1300 {
		t.Errorf("%.0f requests/s, want about 1000", result.Rate)
	}
	if result.P50 <= 0 || result.P99 < result.P50 || result.Late < 0 {
		t.Errorf("latencies %+v", result)
	}
	if unanswered := result.Sent - result.Requests; unanswered < -50 || unanswered > 50 {
		t.Errorf("%d requests sent and %d answered", result.Sent, result.Requests)
	}
	if len(f.open) != 0 || f.started < f.requests/5 {
		t.Errorf("%d sequences for %d requests of 4 steps, %d were never ended", f.started, f.requests, len(f.open))
	}
}

// TestArrivalsDoNotWaitForAnswers: a server that takes 5 ms for a request of each of 3 streams serves 600 a second; at 900,
// requests queue up, which a load that waits for answers would not show.
func TestArrivalsDoNotWaitForAnswers(t *testing.T) {
	f := startFakeServer(t)
	f.delay = 5 * time.Millisecond
	result, err := runLoad(t, f, "-rate", "900", "-warmup", "100ms", "-duration", "300ms")
	if err != nil {
		t.Fatalf("%v: %+v", err, result)
	}
	if want := 30_000.0; result.P99 < want {
		t.Errorf("p99 is %.0f µs, want %.0f at least", result.P99, want)
	}
	if result.Requests > result.Sent*9/10 {
		t.Errorf("%d of %d requests answered in the measurement, want about two thirds", result.Requests, result.Sent)
	}
}

func TestArrivalsStartAgainAfterErrors(t *testing.T) {
	f := startFakeServer(t)
	f.spoil = func(int, []float32) { clear(f.open) } // the server loses all sequences at every step
	result, err := runLoad(t, f, "-rate", "2000")
	if err == nil || result.Errors == 0 || !strings.Contains(result.Texts[0], "no sequence") || f.started < 10 {
		t.Errorf("error %v, %+v, %d sequences; want errors, and a new sequence after each", err, result, f.started)
	}
}

func TestArrivalsEndWithTheirServer(t *testing.T) {
	f := startFakeServer(t)
	time.AfterFunc(100*time.Millisecond, f.server.Stop)
	began := time.Now()
	err := run([]string{"-url", f.url, "-model", "fake", "-inputs", fakeInputs, "-rate", "500", "-duration", "1m"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "stream ") || time.Since(began) > 30*time.Second {
		t.Errorf("error %v after %v, want that of a broken stream", err, time.Since(began))
	}
}
