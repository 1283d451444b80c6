package ortrunner

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"tritonstateful/internal/onnx"
)

// onCore calls f on a thread that may run on the first core of this process only. The
// thread ends with it.
func onCore(t *testing.T, f func()) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("needs two cores, so that one is fewer than all")
	}
	all := threadCores()
	require.NotNil(t, all)
	var one unix.CPUSet
	for core := 0; one.Count() == 0; core++ {
		if all.IsSet(core) {
			one.Set(core)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock it
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// TestThreadsOfAHostPolicy: a session that is opened on a thread with few cores has no
// thread elsewhere, whether the number of its threads is given or ONNX Runtime's choice.
func TestThreadsOfAHostPolicy(t *testing.T) {
	rt, path := testRuntime(t), accumulate(2).Write(t)
	for wanted, more := range map[int]int{0: 0, 1: 0, 3: 2} {
		before := threadsWithCores(t)
		onCore(t, func() {
			r, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: wanted})
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			started := threadsWithCores(t)
			for thread := range before {
				delete(started, thread)
			}
			bound := 0
			for _, cores := range started {
				if cores == threadCores().Count() {
					bound++
				}
			}
			if bound < more || wanted == 0 && intraOpThreads(0) != 1 {
				t.Errorf("%d threads wanted: %v, of which %d on one core", wanted, started, bound)
			}
		})
	}
	require.Zero(t, intraOpThreads(0), "this thread may run everywhere")
}

// threadsWithCores is how many cores each thread of this process may run on.
func threadsWithCores(t *testing.T) map[int]int {
	entries, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	threads := map[int]int{}
	for _, entry := range entries {
		thread, err := strconv.Atoi(entry.Name())
		require.NoError(t, err)
		var cores unix.CPUSet
		if unix.SchedGetaffinity(thread, &cores) == nil { // else it has ended
			threads[thread] = cores.Count()
		}
	}
	return threads
}
