package devicememory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/cuda/fakedriver"
	"tritonstateful/statebuffer"
	"tritonstateful/statebuffer/memorytest"
)

// gpu is a GPU, a fake one unless the test asked for another.
type gpu struct {
	context *cuda.Context
	stream  *cuda.Stream
}

// device is a GPU that is closed with the test, and then nothing may be left on
// it.
func device(t testing.TB, settings ...string) gpu {
	t.Helper()
	driver, err := cuda.OpenLibrary(fakedriver.Library(t, settings...))
	require.NoError(t, err)
	return retain(t, driver)
}

// retain takes the first GPU of a driver until the test ends.
func retain(t testing.TB, driver *cuda.Driver) gpu {
	t.Helper()
	first, err := driver.Device(0)
	require.NoError(t, err)
	context, err := first.Retain()
	require.NoError(t, err)
	stream, err := context.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, stream.Destroy())
		require.NoError(t, context.Release(), "memory was not freed")
	})
	return gpu{context, stream}
}

func newMemory(t testing.TB, g gpu) *Memory {
	t.Helper()
	m, err := New(g.context, g.stream)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// TestKernels runs the contract of a Memory with the kernels as the CPU has them.
func TestKernels(t *testing.T) {
	g := device(t, "DELAY_US", "20")
	memorytest.MemorySuite(t, func() statebuffer.Memory {
		m := newMemory(t, g)
		require.NoError(t, m.Degraded())
		return m
	})
}

// TestCopies runs it with single copies instead.
func TestCopies(t *testing.T) {
	g := device(t, "DELAY_US", "0", "NO_PTX", "1")
	memorytest.MemorySuite(t, func() statebuffer.Memory {
		m := newMemory(t, g)
		require.ErrorContains(t, m.Degraded(), "CUDA_ERROR_INVALID_PTX")
		return m
	})
}
