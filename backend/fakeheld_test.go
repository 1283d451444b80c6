package backend

import (
	"sync"

	"github.com/stretchr/testify/require"
)

// outliving are the requests of a fakeBatch that outlive it, and what answers say besides
// outputs. Other goroutines release and rerun, so mu guards all of it and the answers to
// requests that are held.
type outliving struct {
	mu        sync.Mutex
	described map[int]AnswerParameters
	held      map[int]bool  // requests that were held: whether they still are
	holds     map[int]int   // how often
	errors    map[int]error // what they were released with
	parked    map[int]bool
	// rerun takes the requests that are to run again.
	rerun func(req int, as rerunWith)
}

// rerunWith is what a request that was parked has when it runs again.
type rerunWith struct {
	note  any
	token uint64
}

func (b *fakeBatch) Describe(req int, p AnswerParameters) {
	b.enter()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.describe(req, p)
}

func (b *fakeBatch) describe(req int, p AnswerParameters) {
	if b.described == nil {
		b.described = map[int]AnswerParameters{}
	}
	b.described[req] = p
}

// Hold notes that the server must not send what comes after a request in its sequence.
func (b *fakeBatch) Hold(req int) Held {
	b.enter()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.False(b.t, b.parked[req], "request %d was parked and held", req)
	if b.held == nil {
		b.held, b.holds, b.errors = map[int]bool{}, map[int]int{}, map[int]error{}
	}
	b.held[req] = true
	b.holds[req]++
	return &fakeHeld{b: b, req: req}
}

type fakeHeld struct {
	b        *fakeBatch
	req      int
	released bool
}

func (h *fakeHeld) Release() { h.ReleaseWith(nil, nil) }

func (h *fakeHeld) ReleaseWith(p *AnswerParameters, err error) {
	b := h.b
	b.mu.Lock()
	defer b.mu.Unlock()
	require.False(b.t, h.released, "request %d was released twice", h.req)
	h.released = true
	if b.holds[h.req]--; b.holds[h.req] == 0 {
		b.held[h.req] = false
	}
	if p != nil {
		b.describe(h.req, *p)
	}
	if err != nil && b.errors[h.req] == nil {
		b.errors[h.req] = err
	}
	if b.finished {
		b.leave(h.req)
	}
}

// leave is what happens when the answer to a request leaves, unless the request still waits.
func (b *fakeBatch) leave(req int) {
	if b.held[req] || b.parked[req] {
		return
	}
	a := &b.answers[req]
	if err := b.errors[req]; err != nil {
		*a = answer{err: err, times: a.times}
	}
	if p, described := b.described[req]; described && a.err == nil {
		a.parameters = &p
	}
}

// Park hands the request to rerun, when that is due.
func (b *fakeBatch) Park(req int) (rerun func(note any)) {
	b.enter()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Zero(b.t, b.answers[req].times, "request %d was answered and parked", req)
	require.NotContains(b.t, b.reserved, req, "request %d was reserved and parked", req)
	require.False(b.t, b.held[req] || b.parked[req], "request %d was held, or parked before, and parked", req)
	require.NotNil(b.t, b.rerun, "request %d was parked by a test that does not run it again", req)
	if b.parked == nil {
		b.parked = map[int]bool{}
	}
	b.parked[req] = true
	called, token := false, b.requests[req].Token
	return func(note any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		require.False(b.t, called, "request %d was to run again twice", req)
		called = true
		b.rerun(req, rerunWith{note, token})
	}
}
