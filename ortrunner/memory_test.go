package ortrunner

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// hugePage is the size of the pages that large blocks ask for.
const hugePage = 2 << 20

// TestAlloc checks zeros, alignment, bounds and the account of blocks of all kinds
// of sizes.
func TestAlloc(t *testing.T) {
	m := newHostMemory()
	defer m.close()
	var blocks []statebuffer.Block
	for _, size := range []int64{0, 1, 63, 64, 65, 4096, mapFrom - 1, mapFrom, mapFrom + 1, hugePage, 3<<20 + 1} {
		b, err := m.Alloc(size)
		require.NoError(t, err)
		require.NotZero(t, b.Addr)
		require.Zero(t, b.Addr%alignment)
		require.True(t, size < hugePage || b.Addr%hugePage == 0, "%d bytes at %#x", size, b.Addr)
		require.Equal(t, size, b.Size)
		require.Len(t, b.Bytes, int(size))
		for i := range b.Bytes {
			if b.Bytes[i] != 0 {
				t.Fatalf("byte %d of %d is %d", i, size, b.Bytes[i])
			}
			b.Bytes[i] = 0xFF // dirt for the next one
		}
		blocks = append(blocks, b)
	}
	for i, b := range blocks {
		require.Len(t, m.held, len(blocks)-i)
		m.Free(b)
	}
	again, err := m.Alloc(4096)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 4096), again.Bytes)
}

// TestAllocAbsurd asks for more than any machine has.
func TestAllocAbsurd(t *testing.T) {
	m := newHostMemory()
	defer m.close()
	for _, size := range []int64{-1, math.MinInt64, math.MaxInt64, math.MaxInt64 - alignment, 1 << 60, 1 << 48} {
		_, err := m.Alloc(size)
		require.ErrorContains(t, err, fmt.Sprintf("allocating %d bytes of host memory", size))
		require.NotEqual(t, status.Internal, status.CodeOf(err))
	}
	require.Empty(t, m.held)
}

// TestFreeTwice is refused rather than left to C's heap.
func TestFreeTwice(t *testing.T) {
	m := newHostMemory()
	b, err := m.Alloc(100)
	require.NoError(t, err)
	require.Panics(t, func() { m.Free(b.At(0, 50)) })
	m.Free(b)
	require.Panics(t, func() { m.Free(b) })
}

// TestAllocLarge makes a pool of 100,000 rows of 1 KiB: at once, and without
// taking the memory.
func TestAllocLarge(t *testing.T) {
	m := newHostMemory()
	defer m.close()
	const size = 100_000 << 10
	before, start := resident(t), time.Now()
	b, err := m.Alloc(size)
	require.NoError(t, err)
	require.Less(t, time.Since(start), 100*time.Millisecond)
	b.Bytes[size-1] = 1
	require.Less(t, resident(t)-before, int64(size/2))
}

// TestFreeLarge gives back the whole of what was mapped.
func TestFreeLarge(t *testing.T) {
	m := newHostMemory()
	defer m.close()
	before := statm(t, 0)
	for _, size := range []int64{mapFrom, hugePage, 3<<20 + 1, 5<<20 - 4096} {
		for range 100 {
			b, err := m.Alloc(size)
			require.NoError(t, err)
			m.Free(b)
		}
	}
	require.Less(t, statm(t, 0)-before, int64(100<<20), "of some 1000 MiB")
}

// resident is the process's memory in use.
func resident(t testing.TB) int64 { return statm(t, 1) }

// statm is a field of /proc/self/statm, in bytes: 0 is the address space that is
// taken, 1 the memory.
func statm(t testing.TB, field int) int64 {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[field], 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

// TestSlotsBeyond4GiB moves a slot that is further into a chunk than 32 bits can
// count. The chunk is mapped, so that only the touched pages are real.
func TestSlotsBeyond4GiB(t *testing.T) {
	m := newHostMemory()
	defer m.close()
	const row, rows = 1 << 16, 1<<16 + 8
	chunk, err := m.Alloc(row * rows)
	require.NoError(t, err)
	defer m.Free(chunk)
	lane, err := m.Alloc(row)
	require.NoError(t, err)
	defer m.Free(lane)
	for i := range lane.Bytes {
		lane.Bytes[i] = byte(i)
	}
	move := []statebuffer.Transfer{{
		Layout: statebuffer.Layout{Pieces: 4, PieceBytes: row / 4}, Chunks: []statebuffer.Block{chunk},
		Slots: []statebuffer.Slot{{Index: rows - 1}}, Tensor: lane, Lanes: 1,
	}}
	require.NoError(t, m.Scatter(move))
	require.EqualValues(t, 7, chunk.Bytes[row*(rows-1)+7])
	require.Zero(t, chunk.Bytes[7], "the row must not come back to the start")
	clear(lane.Bytes)
	require.NoError(t, m.Gather(move))
	require.EqualValues(t, 7, lane.Bytes[7])
}
