// Package load loads a Triton model with sequences over gRPC, and measures. The benchmarks' loadgen and the command
// tritonstateful load use it.
//
// There are three kinds of load:
//
//   - [Run] keeps one request of each sequence in flight, or as many as Config.Active says, over streams (stream.go);
//   - with Config.Rate it sends requests at random times, whether or not earlier ones were answered (arrivals.go);
//   - [Pace] has each sequence send its steps at regular times, as someone does who speaks (pace.go). The sequences can
//     continue at another server, or after a restart of theirs.
//
// Latencies of the last two count from the time when a request was due, so a server that is slow for a while is measured as
// its users see it.
//
// A Go program can load a server with many thousand requests a second, and leaves most of a small machine to the server.
package load
