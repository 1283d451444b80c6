package main

// #include "batch.h"
import "C"

import (
	"runtime/debug"
	"time"
)

// newClock is a clock that reads CLOCK_MONOTONIC, which Triton's statistics are
// in, without a call into C: Go's monotonic clock is the same one, less an offset
// that Go does not reveal.
func newClock() func() time.Duration {
	start, offset := clockOffset()
	return func() time.Duration { return offset + time.Since(start) }
}

// clockOffset reads Go's clock before and after the system's. Its error is at most
// the time that passed in between, so it takes the fastest of 16 tries: the
// scheduler may interrupt some of them, but not all.
func clockOffset() (start time.Time, offset time.Duration) {
	best := time.Duration(-1)
	for range 16 {
		before := time.Now()
		system := systemClock()
		if took := time.Since(before); best < 0 || took < best {
			best, start, offset = took, before, system-took/2
		}
	}
	return start, offset
}

// systemClock is CLOCK_MONOTONIC.
func systemClock() time.Duration { return time.Duration(C.clock_now_ns()) }

// after implements Server.After. What f does with bad addresses becomes a panic, which f must
// recover, as in guard.
func after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		debug.SetPanicOnFault(true) // of this goroutine
		f()
	})
}
