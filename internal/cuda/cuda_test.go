package cuda_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/cuda/fakedriver"
)

// TestNoDriver: the error names the library, why it is of no use, and what to do.
func TestNoDriver(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "libempty.so")
	source := filepath.Join(t.TempDir(), "empty.c")
	require.NoError(t, os.WriteFile(source, []byte("int nothing;\n"), 0o644))
	out, err := exec.Command("gcc", "-shared", "-fPIC", source, "-o", empty).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, c := range map[string]struct{ library, want string }{
		"no library":  {filepath.Join(t.TempDir(), "libcuda.so.1"), "cannot open shared object file"},
		"no function": {empty, "it has no function cuInit"},
		"no device":   {fakedriver.Library(t, "DEVICES", "0"), "cuInit: no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cuda.OpenLibrary(c.library)
			missing, ok := errors.AsType[*cuda.MissingError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.library, missing.Library)
			require.ErrorContains(t, err, "no CUDA driver: "+c.library+": ")
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "install NVIDIA's driver")
		})
	}
}

// TestDevices describes each of two.
func TestDevices(t *testing.T) {
	driver, err := cuda.OpenLibrary(fakedriver.Library(t, "DEVICES", "2", "MEMORY", "12345678"))
	require.NoError(t, err)
	require.Equal(t, 13000, driver.Version)
	device, err := driver.Device(1)
	require.NoError(t, err)
	require.Equal(t, "GPU 1 (Fake GPU B)", device.String())
	require.Equal(t, "10111213-1415-1617-1819-1a1b1c1d1e1f", device.UUIDText())
	require.Equal(t, int64(12345678), device.Bytes)
	require.Equal(t, 9, device.Major)
	for _, ordinal := range []int{-1, 2} {
		_, err = driver.Device(ordinal)
		require.ErrorContains(t, err, "this process sees 2 GPUs")
	}
}

// retain is the context of the first GPU of a fake driver.
func retain(t *testing.T, settings ...string) *cuda.Context {
	t.Helper()
	driver, err := cuda.OpenLibrary(fakedriver.Library(t, settings...))
	require.NoError(t, err)
	device, err := driver.Device(0)
	require.NoError(t, err)
	context, err := device.Retain()
	require.NoError(t, err)
	return context
}

// TestErrors have the driver's own words.
func TestErrors(t *testing.T) {
	context := retain(t, "MEMORY", "1000")
	_, err := context.Alloc(4000)
	failed, ok := errors.AsType[*cuda.Error](err)
	require.True(t, ok)
	require.Equal(t, 2, failed.Code)
	require.EqualError(t, err, "GPU 0 (Fake GPU A): cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY)")
	_, err = context.Load("no PTX at all")
	require.ErrorContains(t, err, "CUDA_ERROR_INVALID_PTX")
	module, err := context.Load(".version 6.4\n.target sm_60\n.visible .entry gather(\n")
	require.NoError(t, err)
	_, err = module.Kernel("scatter")
	require.ErrorContains(t, err, "cuModuleGetFunction scatter: named symbol not found")
	require.NoError(t, module.Unload())
	require.Error(t, context.Free(12345))
	require.NoError(t, context.Release())
}

// TestOrder: work in a stream is done in order, and an event waits for what was
// put in before it.
func TestOrder(t *testing.T) {
	context := retain(t, "DELAY_US", "500")
	stream, err := context.NewStream()
	require.NoError(t, err)
	require.NotZero(t, stream.Handle())
	event, err := context.NewEvent()
	require.NoError(t, err)
	require.NoError(t, event.Sync(), "never recorded, so done")
	pinned, err := context.HostAlloc(3)
	require.NoError(t, err)
	a, err := context.Alloc(3)
	require.NoError(t, err)
	b, err := context.Alloc(3)
	require.NoError(t, err)
	for range 20 {
		copy(pinned, "abc")
		require.NoError(t, stream.CopyIn(a, pinned))
		require.NoError(t, stream.Set(a+1, 'X', 1))
		require.NoError(t, stream.Copy(b, a, 3))
		require.NoError(t, stream.CopyOut(pinned, b))
		require.NoError(t, event.Record(stream))
		require.NoError(t, event.Sync())
		require.Equal(t, "aXc", string(pinned))
	}
	free, total, err := context.MemInfo()
	require.NoError(t, err)
	require.Equal(t, total-512, free)
	for _, err := range []error{
		stream.Copy(a, b, 0), stream.CopyIn(a, nil), stream.CopyOut(nil, a), stream.Set(a, 0, 0),
		context.Free(a), context.Free(b), context.HostFree(pinned), event.Destroy(), stream.Destroy(), context.Release(),
	} {
		require.NoError(t, err)
	}
}

// TestCapture: no one allocates memory while a graph is captured.
func TestCapture(t *testing.T) {
	context := retain(t)
	held, err := context.Alloc(8)
	require.NoError(t, err)
	pinned, err := context.HostAlloc(8)
	require.NoError(t, err)
	module, err := context.Load(".version 6.4\n.target sm_60\n")
	require.NoError(t, err)
	var captured atomic.Bool
	for name, call := range map[string]func() error{
		"Alloc":     func() error { _, err := context.Alloc(8); return err },
		"Free":      func() error { return context.Free(held) },
		"HostAlloc": func() error { _, err := context.HostAlloc(8); return err },
		"HostFree":  func() error { return context.HostFree(pinned) },
		"Load":      func() error { _, err := context.Load(".version 6.4\n.target sm_60\n"); return err },
		"Unload":    module.Unload,
		"Capture":   func() error { return cuda.Capture(func() error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			captured.Store(false)
			after := make(chan bool)
			require.NoError(t, cuda.Capture(func() error {
				begun := make(chan struct{})
				go func() {
					close(begun)
					err := call()
					after <- err == nil && captured.Load()
				}()
				<-begun
				time.Sleep(5 * time.Millisecond) // a call that does not wait is done by now
				captured.Store(true)
				return nil
			}))
			require.True(t, <-after)
		})
	}
}
