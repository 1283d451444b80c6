//go:build !testhooks

package ortrunner

import "testing"

// simulateGPU skips the test: only a build with the tag testhooks can simulate a
// GPU.
func simulateGPU(t testing.TB, _ *Runtime, _ string) {
	t.Helper()
	t.Skip("cannot simulate a GPU: run go test -tags testhooks")
}
