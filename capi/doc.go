// The stateful backend as Triton opens it: a C-shared library, and the only
// place that knows Triton's C ABI (internal/triton/triton.h).
//
// Triton opens the loader (loader/loader.c), which opens this library and hands
// every call on. Each entry point is one line in exports.go; guard makes an
// error or a panic of it a TRITONSERVER_Error. What a call works on is found by
// a handle that Triton keeps in its object (handles.go).
//
// A batch crosses the border a fixed number of times, however many requests it
// has: batch_open makes the responses and reads all requests into C arrays
// (batch.c, read.c), package backend sees them through [batch], answers are
// noted in the same arrays, batch_send sends them (send.c), and batch_finish
// reports and releases.
//
// Ownership: a request is ours from the moment batch_open succeeds until
// batch_finish released it, and whatever was read of it lives as long. After
// batch_open no error may be returned to Triton any more, for it would answer
// the requests a second time; from there on every fault becomes the answer of a
// request.
//
// The library is never unloaded, and Triton may initialise it again after
// Finalize, so there is no package state but the table of Triton's functions
// and what the signal handlers need.
package main
