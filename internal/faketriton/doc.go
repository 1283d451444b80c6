// Package faketriton is a fake Triton in C, for the tests of package main in
// capi: it has the TRITONSERVER_* and TRITONBACKEND_* functions that the library
// looks up (compiled against internal/triton/triton.h, as the library is), over
// plain structs, and calls the library's entry points on threads of its own as
// Triton does.
//
// The functions are dynamic symbols of the test binary, so the library finds
// them the way it finds those of a real server, and the entry points are found
// the way Triton finds them: nothing is injected.
//
// Every call is counted, and the n-th of them can be made to fail ([FailAt]).
// What only a wrong caller does (answering twice, reading a request that was
// released) is a violation and counted too ([Violations]).
//
// There is one fake server in the process, because the functions have no argument
// that could tell two of them apart; tests that use it do not run in parallel.
package faketriton
