package main

// #include "held.h"
import "C"

import (
	"runtime/debug"
	"slices"
	"sync"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
)

// parked is a request that was taken out of its batch. It is ours until it has run again.
type parked struct {
	request *C.TRITONBACKEND_Request
	// response is the request's only one. Triton's front ends keep a place for each response
	// that was made, so that another one in place of one that was deleted breaks a stream.
	response *C.TRITONBACKEND_Response
	token    uint64
	// Guarded by reruns.mu.
	note     any
	isCalled bool // it is to run again
	isFree   bool // its batch has finished, so that another one can have it
}

// reruns runs the parked requests of an instance again. They wait until it is their turn; then
// one goroutine makes a batch of as many as there are. It lives as long as there are any.
type reruns struct {
	of   *C.TRITONBACKEND_ModelInstance
	exec executor

	holds sync.WaitGroup // of the instance's requests that are not released yet, see batch.Hold

	mu        sync.Mutex
	ready     []*parked // in the order in which they are to run
	isRunning bool      // there is a goroutine
	isClosed  bool
	ended     sync.Cond // isRunning became false

	// The goroutine's.
	batch     *batch // made for the first rerun
	taken     []*parked
	requests  []*C.TRITONBACKEND_Request  // of taken
	responses []*C.TRITONBACKEND_Response // of taken
}

func newReruns(of *C.TRITONBACKEND_ModelInstance, exec executor) *reruns {
	r := &reruns{of: of, exec: exec}
	r.ended.L = &r.mu
	return r
}

// Park implements backend.Batch.
func (b *batch) Park(req int) (rerun func(note any)) {
	r := &b.entries()[req]
	if r.answer != C.BATCH_UNANSWERED || r.held != nil || r.reserved {
		panic("capi: a request is parked that is answered, held, reserved or parked")
	}
	p := &parked{request: r.request, response: r.response, token: b.requests[req].Token}
	r.answer, r.response = C.BATCH_PARKED, nil
	b.parked = append(b.parked, p)
	return func(note any) { b.reruns.call(p, note) }
}

// call has a request run again, when its batch has finished.
func (r *reruns) call(p *parked, note any) {
	r.mu.Lock()
	again := p.isCalled
	if !again {
		p.isCalled, p.note = true, note
	}
	isRefused := !again && p.isFree && !r.add(p)
	r.mu.Unlock()
	if isRefused {
		refuse(nil, p, errUnloaded)
	}
}

// free is called when the batch of some parked requests has finished.
func (r *reruns) free(list []*parked) {
	if len(list) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range list {
		if p.isFree = true; p.isCalled {
			r.add(p) // not refused: a model of which a batch is under way is loaded
		}
	}
}

// add queues a request, unless the instance is closed. The lock is held.
func (r *reruns) add(p *parked) (ok bool) {
	if r.isClosed {
		return false
	}
	r.ready = append(r.ready, p)
	if !r.isRunning {
		r.isRunning = true
		go r.run()
	}
	return true
}

// close waits until what is to run again has run. A rerun that is called later becomes an
// error. Triton unloads a model when none of its requests is left, so there should be none.
func (r *reruns) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isClosed = true
	for r.isRunning {
		r.ended.Wait()
	}
	if r.batch != nil {
		r.batch.free()
	}
}

// run is the goroutine.
func (r *reruns) run() {
	debug.SetPanicOnFault(true) // as in guard
	for r.take() {
		r.execute()
	}
}

// take takes the requests of the next batch. If there are none, the goroutine is to end.
func (r *reruns) take() (more bool) {
	clear(r.taken)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ready) == 0 {
		r.isRunning = false
		r.ended.Broadcast()
		return false
	}
	count := min(len(r.ready), r.exec.LargestBatch())
	r.taken = append(r.taken[:0], r.ready[:count]...)
	r.ready = slices.Delete(r.ready, 0, count)
	return true
}

// execute runs the requests that were taken. They are answered whatever happens: by the batch
// once it is open, or else by refuse.
func (r *reruns) execute() {
	isOpen := false
	defer func() {
		if cause := recover(); cause != nil {
			if err := panicked(cause); !isOpen {
				r.refuse(err)
			}
		}
	}()
	if err := r.open(); err != nil {
		r.refuse(err)
		return
	}
	isOpen = true
	defer r.batch.ensureFinished()
	r.batch.readRequests()
	for i, p := range r.taken {
		request := &r.batch.requests[i]
		if request.Note = p.note; request.Token == 0 {
			request.Token = p.token
		}
	}
	r.exec.Execute(r.batch)
}

// open opens a batch of the requests that were taken.
func (r *reruns) open() (err error) {
	if r.batch == nil {
		if r.batch, err = newBatch(r.of, r.exec); err != nil {
			return err
		}
		r.batch.reruns = r
	}
	r.requests, r.responses = r.requests[:0], r.responses[:0]
	for _, p := range r.taken {
		r.requests, r.responses = append(r.requests, p.request), append(r.responses, p.response)
	}
	return r.batch.open(&r.requests[0], &r.responses[0], C.uint32_t(len(r.requests)))
}

// refuse answers the requests that were taken with an error.
func (r *reruns) refuse(err error) {
	for _, p := range r.taken {
		refuse(r.of, p, err)
	}
}

// refuse answers a request that no batch has, and releases it. Of is nil for an instance that
// may be gone.
func refuse(of *C.TRITONBACKEND_ModelInstance, p *parked, err error) {
	C.request_refuse(of, p.request, p.response, newError(err))
	if note, wants := p.note.(backend.Refusable); wants {
		note.Refused()
	}
}

// errUnloaded is the answer to a request that is to run again when its model is unloaded.
var errUnloaded = status.Errorf(status.Unavailable, "the model was unloaded while the request waited for the state store")
