package statebuffer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/statebuffer"
	"tritonstateful/statebuffer/memorytest"
)

func TestHeap(t *testing.T) {
	memorytest.MemorySuite(t, func() statebuffer.Memory {
		h := &statebuffer.Heap{}
		t.Cleanup(func() { require.Zero(t, h.Used()) })
		return h
	})
}

func TestHeapLimit(t *testing.T) {
	h := &statebuffer.Heap{Limit: 100}
	a, err := h.Alloc(60)
	require.NoError(t, err)
	_, err = h.Alloc(41)
	require.ErrorContains(t, err, "allocating 41 bytes: 60 of 100 are in use")
	b, err := h.Alloc(40)
	require.NoError(t, err)
	require.Equal(t, int64(100), h.Used())
	h.Free(a)
	h.Free(b)
	require.Zero(t, h.Used())
	require.Equal(t, byte(0xDB), a.Bytes[0], "freed memory is poisoned")
}
