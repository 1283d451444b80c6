//go:build !asan

package main

import (
	"runtime/cgo"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBatchAllocatesNothing proves it with Go 1.26 for batches of a size that
// was there before, of any number of requests.
func TestBatchAllocatesNothing(t *testing.T) {
	for range 300 { // handles above 255 do not fit into an interface
		cgo.NewHandle(nil).Delete()
	}
	s := serve(t, newEcho())
	rs := batchOf(t, 64)
	_, err := s.instance.ExecuteTimes(1, rs...)
	require.NoError(t, err)
	const times = 1000
	perTimes := testing.AllocsPerRun(1, func() { _, err = s.instance.ExecuteTimes(times, rs...) })
	require.NoError(t, err)
	require.Less(t, perTimes, float64(times)/10, "allocations of %d batches", times)
}
