// Command loadgen loads a Triton model with sequences over gRPC streams, checks the answers, and writes rate and
// latencies as JSON.
//
// Every one of -sequences concurrent sequences has one request in flight: its next step is sent when the answer to the
// last one has arrived. After -steps steps a sequence ends (END on its last step) and a new one with a fresh
// correlation ID takes its place. The sequences are spread over -streams bidirectional streams, each on a connection
// of its own. A run has three phases: a warm-up, the measurement, and a drain in which every sequence is ended. At both
// ends of the measurement it writes a line, so that the caller can read the server's counters there.
//
// With -active, only so many requests are in flight: an answer is followed by a step of any other sequence. All
// sequences are started before the warm-up; then it writes a line and leaves the server alone for the time of -pause, so
// that the caller can see what idle sequences cost.
//
// With -rate, requests are sent at random times (a Poisson process), whether or not earlier ones were answered, each by
// the sequence whose turn it is. Latencies count from these times.
//
// A Python client can load a server with a few thousand requests a second on one core; this one leaves most of a small
// machine to the server.
//
// What it does is in package clients/go/load; here are its flags.
//
//	loadgen -url 127.0.0.1:8001 -model accumulate_fp32 -sequences 64 -duration 5s \
//	  -inputs '[{"name":"Input","datatype":"FP32","shape":[1,4,1,5]}]' -verify -outputs Output
package main
