// Package memorytest is the contract of statebuffer.Memory as a test suite, for
// every implementation: [MemorySuite] compares what a Memory does with a naive
// copy, byte for byte.
package memorytest
