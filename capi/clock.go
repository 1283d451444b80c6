package main

// #include "batch.h"
import "C"

import "time"

// newClock is a clock that reads CLOCK_MONOTONIC, which Triton's statistics are
// in, without a call into C: Go's own monotonic clock is the same one, less an
// offset that Go does not tell.
func newClock() func() time.Duration {
	start, offset := measureOffset()
	return func() time.Duration { return offset + time.Since(start) }
}

// measureOffset reads Go's clock before and after the system's. The error is at
// most the time that passed in between, so the fastest of some tries is taken:
// one of them may be interrupted by the scheduler, not all.
func measureOffset() (start time.Time, offset time.Duration) {
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
