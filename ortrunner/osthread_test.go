package ortrunner

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestGPUThread: whatever goroutine calls, the runs of a session are on one thread.
func TestGPUThread(t *testing.T) {
	thread := newOSThread()
	defer thread.stop()
	ids := map[int]bool{}
	for range 20 {
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread() // so that the callers are on different threads
			defer close(done)
			require.NoError(t, thread.do(func() error { ids[syscall.Gettid()] = true; return nil }))
		}()
		<-done
	}
	require.Len(t, ids, 1)
	err := thread.do(func() error { var none *int; *none = 1; return nil })
	require.ErrorContains(t, err, "panic in a run")
	require.NoError(t, thread.do(func() error { return nil }), "it lives on")
}

// TestGPUThreadOfAHostPolicy: the thread stays on the cores of the one that made it.
func TestGPUThreadOfAHostPolicy(t *testing.T) {
	onCore(t, func() {
		thread := newOSThread()
		defer thread.stop()
		var cores *unix.CPUSet
		err := thread.do(func() error { cores = threadCores(); return nil })
		if err != nil || *cores != *threadCores() {
			t.Errorf("%v, %v", cores, err)
		}
	})
}
