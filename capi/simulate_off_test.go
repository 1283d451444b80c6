//go:build !testhooks

package main

import (
	"testing"

	"tritonstateful/ortrunner"
)

// simulateGPU skips the test: only a build with the tag testhooks can simulate a
// GPU.
func simulateGPU(t testing.TB, _ *ortrunner.Runtime, _ string) {
	t.Helper()
	t.Skip("cannot simulate a GPU: run go test -tags testhooks")
}
