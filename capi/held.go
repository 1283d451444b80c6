package main

// #include "batch.h"
import "C"

import (
	"sync"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
)

// held implements backend.Held. Its memory is C's and outlives the batch.
type held struct {
	c     *C.batch_held
	holds *sync.WaitGroup // of the instance
}

// Hold implements backend.Batch. If there is no memory to hold a request, that is its answer.
func (b *batch) Hold(req int) backend.Held {
	b.mustBeIn(req)
	c := C.batch_hold(b.c, C.uint32_t(req))
	if c == nil {
		b.Fail(req, status.Errorf(status.Unavailable, "delaying the answer: out of memory"))
		return held{}
	}
	b.reruns.holds.Add(1)
	return held{c, &b.reruns.holds}
}

// Release implements backend.Held.
func (h held) Release() { h.ReleaseWith(nil, nil) }

// ReleaseWith implements backend.Held.
func (h held) ReleaseWith(p *backend.AnswerParameters, err error) {
	described := C.batch_described{}
	if p != nil {
		described = describe(*p)
	}
	C.held_release(h.c, described, newError(err))
	if h.holds != nil {
		h.holds.Done()
	}
}

// Describe implements backend.Batch.
func (b *batch) Describe(req int, p backend.AnswerParameters) {
	b.entries()[req].described = describe(p)
}

func describe(p backend.AnswerParameters) C.batch_described {
	return C.batch_described{
		given: true, step: C.int64_t(p.Step), saved_step: C.int64_t(p.SavedStep), resumed: C.bool(p.Resumed),
	}
}

// mustBeIn panics for a request that was parked.
func (b *batch) mustBeIn(req int) {
	if b.entries()[req].answer == C.BATCH_PARKED {
		panic("capi: the request was parked")
	}
}
