package memorytest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/statebuffer"
)

// Access is implemented by a Memory whose blocks the host cannot address, so
// that the suite can fill and read them.
type Access interface {
	statebuffer.Uploader
	statebuffer.Downloader
}

// MemorySuite tests a Memory. newMemory makes a fresh one for each test; the caller
// closes it, if it must.
func MemorySuite(t *testing.T, newMemory func() statebuffer.Memory) {
	tests := []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"Blocks", testBlocks},
		{"BlocksAreZero", testBlocksAreZero},
		{"AllocRefusesNonsense", testAllocRefusesNonsense},
		{"At", testAt},
		{"Downloads", testDownloads},
		{"Clear", testClear},
		{"ClearMany", testClearMany},
		{"ClearComesFirst", testClearComesFirst},
		{"Discard", testDiscard},
		{"Moves", testMoves},
		{"MovesNothing", testMovesNothing},
		{"HalfGathersEveryValue", testHalfGathersEveryValue},
		{"HalfScatters", testHalfScatters},
		{"HalfCountsNothingWithoutCounter", testHalfWithoutCounter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := &bench{t: t, memory: newMemory()}
			tt.test(t, b)
			b.freeAll()
		})
	}
}

// bench is a Memory under test, and the blocks to free after it.
type bench struct {
	t      *testing.T
	memory statebuffer.Memory
	blocks []statebuffer.Block
}

func (b *bench) alloc(bytes int64) statebuffer.Block {
	b.t.Helper()
	block, err := b.memory.Alloc(bytes)
	require.NoError(b.t, err)
	b.blocks = append(b.blocks, block)
	return block
}

// filled allocates a block and fills it.
func (b *bench) filled(content []byte) statebuffer.Block {
	b.t.Helper()
	block := b.alloc(int64(len(content)))
	b.write(block, content)
	return block
}

func (b *bench) freeAll() {
	for _, block := range b.blocks {
		b.memory.Free(block)
	}
	b.blocks = nil
}

func (b *bench) write(block statebuffer.Block, content []byte) {
	b.t.Helper()
	if block.Bytes != nil || block.Size == 0 {
		copy(block.Bytes, content)
		return
	}
	require.NoError(b.t, b.memory.(Access).Upload(block, content))
}

func (b *bench) read(block statebuffer.Block) []byte {
	b.t.Helper()
	content := make([]byte, block.Size)
	if block.Bytes != nil || block.Size == 0 {
		copy(content, block.Bytes)
		return content
	}
	require.NoError(b.t, b.memory.(Access).Download(content, block))
	return content
}

// testBlocks: blocks have their size, are aligned and do not overlap.
func testBlocks(t *testing.T, b *bench) {
	sizes := []int64{1, 2, 63, 64, 65, 1000, 4096, 4097, 1 << 20}
	var contents [][]byte
	for i, size := range sizes {
		content := make([]byte, size)
		for k := range content {
			content[k] = byte(i + 1)
		}
		contents = append(contents, content)
		block := b.filled(content)
		require.Equal(t, size, block.Size)
		if block.Bytes != nil {
			require.Len(t, block.Bytes, int(size))
		}
		if _, isHeap := b.memory.(*statebuffer.Heap); !isHeap { // its addresses are numbers only
			require.Zero(t, block.Addr%64, "alignment of %d bytes at %#x", size, block.Addr)
		}
		for _, other := range b.blocks[:i] {
			disjoint := block.Addr+uint64(block.Size) <= other.Addr || other.Addr+uint64(other.Size) <= block.Addr
			require.True(t, disjoint, "blocks %#x+%d and %#x+%d overlap", block.Addr, block.Size, other.Addr, other.Size)
		}
	}
	for i, block := range b.blocks {
		require.Equal(t, contents[i], b.read(block), "block %d was overwritten", i)
	}
}

// testBlocksAreZero: also where the memory was used before.
func testBlocksAreZero(t *testing.T, b *bench) {
	for _, size := range []int64{0, 1, 100, 4096, 1 << 20} {
		for range 3 {
			block, err := b.memory.Alloc(size)
			require.NoError(t, err)
			require.Equal(t, make([]byte, size), b.read(block))
			dirt := make([]byte, size)
			for i := range dirt {
				dirt[i] = 0xFF
			}
			b.write(block, dirt)
			b.memory.Free(block)
		}
	}
}

func testAllocRefusesNonsense(t *testing.T, b *bench) {
	_, err := b.memory.Alloc(-17)
	require.ErrorContains(t, err, "-17")
}

// testAt: a part of a block is the same memory.
func testAt(t *testing.T, b *bench) {
	whole := b.filled([]byte("abcdefgh"))
	part := whole.At(2, 3)
	require.Equal(t, whole.Addr+2, part.Addr)
	require.Equal(t, int64(3), part.Size)
	require.Equal(t, "cde", string(b.read(part)))
	b.write(part, []byte("XYZ"))
	require.Equal(t, "abXYZfgh", string(b.read(whole)))
	if part.Bytes != nil {
		require.Equal(t, 3, cap(part.Bytes), "the part must not grow into its neighbour")
	}
	require.Zero(t, whole.At(8, 0).Size)
}

// testDownloads: of several blocks, or parts of them, one after the other.
func testDownloads(t *testing.T, b *bench) {
	device, ok := b.memory.(Access)
	if !ok {
		return
	}
	rng := random(3)
	var blocks []statebuffer.Block
	var want []byte
	for _, size := range []int64{5, 0, 5 << 20, 1, 3 << 20, 0} { // more than is copied at a time
		content := noise(rng, size+2)
		blocks = append(blocks, b.filled(content).At(1, size))
		want = append(want, content[1:size+1]...)
	}
	got := make([]byte, len(want))
	require.NoError(t, device.Download(got, blocks...))
	require.True(t, bytes.Equal(want, got))
	part := make([]byte, 100)
	require.NoError(t, device.Download(part, blocks...))
	require.Equal(t, want[:100], part)
	require.NoError(t, device.Download(nil))
	require.ErrorContains(t, device.Download(part, blocks[0], blocks[3]), "downloading 100 bytes: the blocks have 6")
	require.ErrorContains(t, device.Upload(blocks[0], part), "uploading 100 bytes: the block has 5")
}

// testClear: a part is overwritten, and nothing next to it.
func testClear(t *testing.T, b *bench) {
	whole := b.filled([]byte("abcdefgh"))
	wipe := func(blocks ...statebuffer.Block) { b.memory.Clear(blocks) }
	wipe(whole.At(2, 3))
	require.Equal(t, "ab\x00\x00\x00fgh", string(b.read(whole)))
	wipe()
	wipe(whole.At(8, 0))
	wipe(whole)
	require.Equal(t, make([]byte, 8), b.read(whole))
}

// testDiscard has a small block and one of many pages, which stay usable.
func testDiscard(_ *testing.T, b *bench) {
	memory, ok := b.memory.(statebuffer.Discarder)
	if !ok {
		return
	}
	rng := random(4)
	for _, size := range []int64{0, 100, 5<<20 + 10} {
		content := noise(rng, size)
		block := b.filled(content)
		memory.Discard(block)
		b.requireContent(block, make([]byte, size), "a discarded block")
		b.write(block, content)
		b.requireContent(block, content, "a block that was discarded and written")
	}
}

// testClearMany clears pieces of every alignment and size at once, and nothing
// around them.
func testClearMany(t *testing.T, b *bench) {
	rng := random(7)
	content := noise(rng, 40000)
	whole := b.filled(content)
	for range 3 {
		var pieces []statebuffer.Block
		for at := int64(rng.IntN(9)); at < 36000; {
			size := rng.Int64N(1 << rng.IntN(12))
			pieces = append(pieces, whole.At(at, size))
			clear(content[at : at+size])
			at += size + rng.Int64N(50)
		}
		b.memory.Clear(pieces)
		require.Equal(t, content, b.read(whole))
	}
}

// testClearComesFirst: what follows a Clear sees zeros, and what it writes stays.
func testClearComesFirst(t *testing.T, b *bench) {
	slots, tensor := b.filled([]byte("abcdefgh")), b.filled([]byte("ABCDEFGH"))
	transfer := []statebuffer.Transfer{{
		Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 4}, Chunks: []statebuffer.Block{slots}, Initial: slots.At(0, 4),
		Slots: []statebuffer.Slot{{Index: 1}, {Index: 0}}, Tensor: tensor, Lanes: 2,
	}}
	b.memory.Clear([]statebuffer.Block{slots.At(4, 4)})
	require.NoError(t, b.memory.Gather(transfer))
	require.Equal(t, "\x00\x00\x00\x00abcd", string(b.read(tensor)))
	b.write(tensor, []byte("12345678"))
	b.memory.Clear([]statebuffer.Block{slots.At(0, 4)})
	require.NoError(t, b.memory.Scatter(transfer))
	require.Equal(t, "56781234", string(b.read(slots)))
	again := b.alloc(64)
	b.memory.Clear([]statebuffer.Block{again})
	b.memory.Free(again)
	b.blocks = b.blocks[:len(b.blocks)-1]
	require.Equal(t, make([]byte, 64), b.read(b.alloc(64)))
}

// random bytes for a test, the same in every run.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func noise(rng *rand.Rand, bytes int64) []byte {
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
