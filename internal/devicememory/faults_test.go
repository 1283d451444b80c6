package devicememory

import (
	"bytes"
	"errors"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/cuda/fakedriver"
	"tritonstateful/statebuffer"
)

// TestNoMemory: the error says what was asked for and what there is, and nothing
// is held afterwards.
func TestNoMemory(t *testing.T) {
	m := newMemory(t, device(t, "MEMORY", "1048576"))
	first, err := m.Alloc(1 << 19)
	require.NoError(t, err)
	_, err = m.Alloc(1 << 20)
	require.ErrorContains(t, err, "524288 of 1048576 bytes are free")
	full, ok := errors.AsType[*memoryError](err)
	require.True(t, ok)
	require.Equal(t, int64(1<<19), full.Free)
	m.Free(first)
	require.Empty(t, m.held)
	_, err = m.Alloc(1 << 20)
	require.NoError(t, err)
}

// TestRoom: CheckCapacity refuses what Alloc would refuse, and allocates nothing.
func TestRoom(t *testing.T) {
	m := newMemory(t, device(t, "MEMORY", "1048576"))
	require.NoError(t, m.CheckCapacity(1<<20))
	block, err := m.Alloc(1 << 19)
	require.NoError(t, err)
	require.NoError(t, m.CheckCapacity(1<<19))
	require.ErrorContains(t, m.CheckCapacity(1<<19+1), "524289 bytes are needed on GPU 0")
	m.Free(block)
	require.NoError(t, m.CheckCapacity(1<<20))
}

// TestFreeOfNoBlock: going on would corrupt the device's memory.
func TestFreeOfNoBlock(t *testing.T) {
	m := newMemory(t, device(t))
	b, err := m.Alloc(64)
	require.NoError(t, err)
	func() {
		defer func() { require.Contains(t, recover(), "free of 32 bytes at 0x0") }()
		m.Free(statebuffer.Block{Size: 32})
	}()
	m.Free(b)
	require.Panics(t, func() { m.Free(b) })
}

// TestClearIsOneLaunch, however many sequences end: one call of the driver for each
// state of each would cost more than the step.
func TestClearIsOneLaunch(t *testing.T) {
	m := newMemory(t, device(t))
	block, err := m.Alloc(1 << 16)
	require.NoError(t, err)
	require.NoError(t, m.Upload(block, bytes.Repeat([]byte{1}, 1<<16)))
	next := m.next
	for i := range int64(1000) {
		m.Clear([]statebuffer.Block{block.At(64*i, 32), block.At(64*i+32, 31)})
	}
	require.Equal(t, next, m.next, "nothing is launched yet")
	require.NoError(t, m.Sync())
	require.Equal(t, (next+1)%launchesInFlight, m.next)
	got := make([]byte, 1<<16)
	require.NoError(t, m.Download(got, block))
	require.Equal(t, 1000+(1<<16-64000), bytes.Count(got, []byte{1}))
}

// TestBadTransfers: the device would not notice.
func TestBadTransfers(t *testing.T) {
	m := newMemory(t, device(t))
	block, err := m.Alloc(64)
	require.NoError(t, err)
	good := statebuffer.Transfer{
		Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 16}, Chunks: []statebuffer.Block{block}, Initial: block,
		Tensor: block, Lanes: 4, Slots: []statebuffer.Slot{{Index: 3}},
	}
	require.NoError(t, m.Scatter([]statebuffer.Transfer{good}))
	for name, spoil := range map[string]func(*statebuffer.Transfer){
		"lane 0: no chunk holds slot {0 4}":  func(b *statebuffer.Transfer) { b.Slots = []statebuffer.Slot{{Index: 4}} },
		"lane 0: no chunk holds slot {0 -1}": func(b *statebuffer.Transfer) { b.Slots = []statebuffer.Slot{{Index: -1}} },
		"lane 1: no chunk holds slot {1 0}":  func(b *statebuffer.Transfer) { b.Slots = []statebuffer.Slot{{}, {Chunk: 1}} },
		"1 of 5 lanes do not fit":            func(b *statebuffer.Transfer) { b.Lanes = 5 },
		"2 of 1 lanes do not fit":            func(b *statebuffer.Transfer) { b.Slots = make([]statebuffer.Slot, 2); b.Lanes = 1 },
		"-1 pieces of 16 bytes":              func(b *statebuffer.Transfer) { b.Pieces = -1 },
		"1 pieces of 9223372036854775807 bytes": func(b *statebuffer.Transfer) {
			b.PieceBytes, b.Lanes, b.Slots, b.Tensor.Size = 1<<63-1, 0, nil, -1
		},
	} {
		bad := good
		spoil(&bad)
		require.ErrorContains(t, m.Scatter([]statebuffer.Transfer{bad}), name)
	}
	_, err = m.Alloc(-1)
	require.ErrorContains(t, err, "allocating -1 bytes on GPU 0 (Fake GPU A)")
	require.ErrorContains(t, m.Upload(block, make([]byte, 65)), "uploading 65 bytes: the block has 64")
	require.ErrorContains(t, m.Download(make([]byte, 65), block), "downloading 65 bytes: the block has 64")
}

// TestTooLarge: what the kernels' numbers cannot hold is copied run by run.
func TestTooLarge(t *testing.T) {
	tensor := statebuffer.Block{Size: 3 << 30}
	for _, layout := range []statebuffer.Layout{{Pieces: 1, PieceBytes: 3 << 30}, {Pieces: 3 << 30, PieceBytes: 1}} {
		err := describe(new(move), &statebuffer.Transfer{Layout: layout, Tensor: tensor, Lanes: 1}, true)
		require.ErrorIs(t, err, errTooLarge)
	}
	err := describe(new(move), &statebuffer.Transfer{Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 1}, Tensor: tensor, Lanes: 70000}, true)
	require.ErrorIs(t, err, errTooLarge)
}

// TestHostReadFaults shows that the tests would notice code that reads device
// memory as if it were the host's.
func TestHostReadFaults(t *testing.T) {
	m := newMemory(t, device(t))
	b, err := m.Alloc(64)
	require.NoError(t, err)
	debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(false)
	address := uintptr(b.Addr)
	require.Panics(t, func() { _ = **(**byte)(unsafe.Pointer(&address)) })
}

// TestForgottenSync shows that the tests would notice a result that is read too
// early.
func TestForgottenSync(t *testing.T) {
	g := device(t, "DELAY_US", "20000")
	m, context, stream := newMemory(t, g), g.context, g.stream
	block, err := m.Alloc(1 << 10)
	require.NoError(t, err)
	pinned, err := context.HostAlloc(1 << 10)
	require.NoError(t, err)
	defer func() { require.NoError(t, context.HostFree(pinned)) }()
	early := 0
	for range 20 {
		clear(pinned)
		require.NoError(t, stream.Set(block.Addr, 7, block.Size))
		require.NoError(t, stream.CopyOut(pinned, block.Addr))
		if pinned[0] != 7 {
			early++
		}
		require.NoError(t, stream.Sync())
		require.Equal(t, byte(7), pinned[0])
	}
	require.Greater(t, early, 10, "of 20 results that were read without waiting")
}

// TestSickDevice: after an illegal access everything fails, with the driver's words.
func TestSickDevice(t *testing.T) {
	driver, err := cuda.OpenLibrary(fakedriver.Library(t))
	require.NoError(t, err)
	first, err := driver.Device(0)
	require.NoError(t, err)
	context, err := first.Retain() // a sick device takes nothing back
	require.NoError(t, err)
	stream, err := context.NewStream()
	require.NoError(t, err)
	m, err := New(context, stream)
	require.NoError(t, err)
	b, err := m.Alloc(64)
	require.NoError(t, err)
	// The tensor claims more than the device has given.
	wide := statebuffer.Block{Addr: b.Addr + 1<<20, Size: 1 << 20}
	move := statebuffer.Transfer{Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 64}, Chunks: []statebuffer.Block{b}, Slots: []statebuffer.Slot{{}}, Tensor: wide, Lanes: 1}
	require.NoError(t, m.Scatter([]statebuffer.Transfer{move}), "the device does it later")
	require.ErrorContains(t, m.Sync(), "CUDA_ERROR_ILLEGAL_ADDRESS")
	_, err = m.Alloc(64)
	require.ErrorContains(t, err, "illegal memory access")
	require.ErrorContains(t, m.Gather([]statebuffer.Transfer{move}), "illegal memory access")
	m.Free(b)
	require.ErrorContains(t, m.Close(), "illegal memory access")
}
