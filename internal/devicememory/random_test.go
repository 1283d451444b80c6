package devicememory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"tritonstateful/statebuffer"
)

// transferPair is a transfer on the device and the same one on the host.
type transferPair struct {
	device, host statebuffer.Transfer
}

// both makes a block on both sides with the same random content: FP32 around the
// limits of FP16. As FP16 none of it is NaN, of which there are many.
func both(t *testing.T, rng *rand.Rand, m *Memory, bytes, offset int64) (device, host statebuffer.Block) {
	content := make([]byte, bytes+offset)
	floats := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(content))), len(content)/4)
	for i := range floats {
		random := rng.Uint64()
		floats[i] = float32(int32(random)) / float32(uint64(1)<<(11+random>>59)) // up to 2^20 and far below
		content[4*i+1] &^= 0x40                                                  // an exponent of FP16 is all ones in a NaN
	}
	device, err := m.Alloc(bytes + offset)
	require.NoError(t, err)
	require.NoError(t, m.Upload(device, content))
	return device.At(offset, bytes), statebuffer.Block{Bytes: content, Size: bytes + offset}.At(offset, bytes)
}

// newTransferPair is a transfer of random extents, at addresses of every alignment.
func newTransferPair(t *testing.T, rng *rand.Rand, m *Memory, slots []statebuffer.Slot, lanes int) transferPair {
	var w transferPair
	layout := statebuffer.Layout{Pieces: 1 + rng.Int64N(4), PieceBytes: 4 * (1 + rng.Int64N(40))}
	if rng.IntN(2) == 0 {
		layout.PieceBytes = 16 * (1 + rng.Int64N(600))
	}
	w.device = statebuffer.Transfer{Layout: layout, Slots: slots, Lanes: lanes, Convert: statebuffer.Conversion(rng.IntN(2))}
	if w.device.Convert == statebuffer.Same && rng.IntN(3) == 0 {
		w.device.PieceBytes += rng.Int64N(4)
	}
	w.host = w.device
	grain := []int64{0, 2, 4, 8, 16, 32}
	offset := func() int64 { return grain[rng.IntN(len(grain))] }
	if w.device.Convert == statebuffer.Half {
		grain = []int64{0, 4, 8, 16}
	}
	stored := w.device.StoredBytes()
	for range 3 {
		device, host := both(t, rng, m, 8*stored, offset())
		w.device.Chunks, w.host.Chunks = append(w.device.Chunks, device), append(w.host.Chunks, host)
	}
	w.device.Initial, w.host.Initial = both(t, rng, m, stored, offset())
	w.device.Tensor, w.host.Tensor = both(t, rng, m, int64(lanes)*layout.PieceBytes*layout.Pieces+64, offset())
	if w.device.Convert == statebuffer.Same {
		w.device.Tensor, w.host.Tensor = both(t, rng, m, int64(lanes)*w.device.LaneBytes(), offset())
	}
	w.device.Saturated, w.host.Saturated = new(uint64), new(uint64)
	return w
}

// randomSlots names each slot at most once, and some lanes have none.
func randomSlots(rng *rand.Rand, count int) []statebuffer.Slot {
	all := rng.Perm(24)[:count]
	slots := make([]statebuffer.Slot, count)
	for i, at := range all {
		slots[i] = statebuffer.Slot{Chunk: int32(at / 8), Index: int32(at % 8)}
		if rng.IntN(5) == 0 {
			slots[i] = statebuffer.NoSlot
		}
	}
	return slots
}

// TestAgainstHost moves several states at once, as a step does, and compares
// every byte and every counter with the host's mover.
func TestAgainstHost(t *testing.T) {
	for _, c := range []struct {
		settings []string
		seeds    uint64
	}{{[]string{"DELAY_US", "30"}, 30}, {[]string{"DELAY_US", "0", "NO_PTX", "1"}, 8}} {
		t.Run(fmt.Sprint(c.settings), func(t *testing.T) {
			m := newMemory(t, device(t, c.settings...))
			for seed := range c.seeds {
				compareWithHost(t, m, rand.New(rand.NewPCG(seed, 8)))
			}
		})
	}
}

func compareWithHost(t *testing.T, m *Memory, rng *rand.Rand) {
	lanes := 1 + rng.IntN(16)
	slots := randomSlots(rng, rng.IntN(lanes+1))
	sources := make([]statebuffer.Slot, len(slots))
	for i, slot := range slots {
		sources[i] = slot
		if slot == statebuffer.NoSlot {
			sources[i] = statebuffer.InitialSlot
		}
	}
	pairs := make([]transferPair, 1+rng.IntN(5))
	device, host := make([]statebuffer.Transfer, len(pairs)), make([]statebuffer.Transfer, len(pairs))
	for i := range pairs {
		pairs[i] = newTransferPair(t, rng, m, sources, lanes)
		device[i], host[i] = pairs[i].device, pairs[i].host
	}
	require.NoError(t, m.Gather(device))
	require.NoError(t, statebuffer.GatherHost(host))
	for i := range device {
		device[i].Slots, host[i].Slots = slots, slots
		device[i].Tensor, host[i].Tensor = both(t, rng, m, device[i].Tensor.Size, 0)
	}
	require.NoError(t, m.Scatter(device))
	require.NoError(t, statebuffer.ScatterHost(host))
	for i := range pairs {
		w := &pairs[i]
		what := fmt.Sprintf("state %d: %v, convert %v, %d lanes, slots %v", i, w.device.Layout, w.device.Convert, lanes, slots)
		same(t, m, w.device.Tensor, w.host.Tensor, what+": gathered")
		same(t, m, w.device.Initial, w.host.Initial, what+": initial value")
		for k := range w.device.Chunks {
			same(t, m, w.device.Chunks[k], w.host.Chunks[k], what+": scattered")
		}
		require.Equal(t, *w.host.Saturated, *w.device.Saturated, what+": clamped")
	}
	freeAll(m)
}

// freeAll frees every block of a memory.
func freeAll(m *Memory) {
	for address, size := range m.held {
		m.Free(statebuffer.Block{Addr: address, Size: size})
	}
}

func same(t *testing.T, m *Memory, device, host statebuffer.Block, what string) {
	t.Helper()
	got := make([]byte, device.Size)
	require.NoError(t, m.Download(got, device))
	for i := range got {
		if got[i] != host.Bytes[i] {
			t.Fatalf("%s: byte %d of %d is %#x: want %#x", what, i, len(got), got[i], host.Bytes[i])
		}
	}
}
