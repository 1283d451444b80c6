package main

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
)

// TestEveryInstanceCanRun: with many instances on few processors, none waits for
// sysmon to retake a P while the others are in C.
func TestEveryInstanceCanRun(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	require.Zero(t, instances.live)
	s := serveModel(t, fakeModel{func(backend.InstanceInfo) (executor, error) { return newEcho(), nil }})
	require.Equal(t, 2, runtime.GOMAXPROCS(0), "one instance needs no more")
	var more []faketriton.Instance
	for range 5 {
		in := faketriton.NewInstance(s.model, "more", 1, 0)
		require.NoError(t, in.Initialize())
		more = append(more, in)
	}
	require.Equal(t, 7, runtime.GOMAXPROCS(0))
	for _, in := range more {
		require.NoError(t, in.Finalize())
		in.Delete()
	}
	require.Equal(t, 1, instances.live)
	require.Equal(t, 7, runtime.GOMAXPROCS(0), "others may be about to come")
}
