// The stateful backend as Triton opens it: a c-shared library, and the only package
// that knows Triton's C ABI (internal/triton/triton.h).
//
// Triton opens the loader (loader/loader.c), which opens this library and forwards
// every call. Each entry point is one line in exports.go; guard turns its error or
// panic into a TRITONSERVER_Error. The Go object that a call works on is found by a
// handle that Triton stores in its own object (handles.go).
//
// A batch crosses between C and Go a fixed number of times, whatever the number of
// its requests: batch_open creates the responses and reads all requests into C arrays
// (batch.c, read.c), package backend sees them through [batch], answers are noted in
// the same arrays, batch_send sends them (send.c), and batch_finish reports statistics
// and releases the requests.
//
// Requests can outlive their batch. The answer to one that is held, and its release, wait
// for somebody (held.c). One that is parked leaves its batch and runs again later, in a
// batch of the instance's own that one goroutine opens (park.go).
//
// Ownership: a request is ours from the moment batch_open succeeds until batch_finish
// has released it, or the end of its wait, and everything that was read of it lives as long. After batch_open
// no error may be returned to Triton, because Triton would answer the requests a
// second time: from then on every fault becomes the answer of a request.
//
// The library is never unloaded, and Triton may initialise it again after Finalize.
// So the only package state is the table of Triton's functions, what the signal
// handlers need, and the count of instances (procs.go).
package main
