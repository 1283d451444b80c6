package ortrunner

// #define _GNU_SOURCE
// #include <stdlib.h>
// #include <string.h>
// #include <sys/mman.h>
// #include <stdint.h>
// #include <unistd.h>
//
// // Pages of 2 MiB cause far fewer TLB misses, which counts where a run goes through
// // many megabytes of states.
// enum { HUGE_PAGE = 2 << 20 };
//
// // map_pages returns zeroed pages, aligned to a huge page if they fill one. Without
// // huge pages the machine takes small ones.
// static void *map_pages(size_t bytes) {
//   size_t spare = bytes < HUGE_PAGE ? 0 : HUGE_PAGE;
//   char *p = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
//   if (p == MAP_FAILED) return NULL;
//   if (spare == 0) return p;
//   size_t before = -(uintptr_t)p & (HUGE_PAGE - 1);
//   size_t page = (size_t)sysconf(_SC_PAGESIZE), end = (before + bytes + page - 1) / page * page;
//   if (before != 0) munmap(p, before);
//   if (end < bytes + spare) munmap(p + end, bytes + spare - end);
//   madvise(p + before, bytes, MADV_HUGEPAGE);
//   return p + before;
// }
//
// static int discard_pages(void *at, size_t bytes) { return madvise(at, bytes, MADV_DONTNEED); }
//
// static void *allocate_zeros(size_t alignment, size_t bytes) {
//   void *p = aligned_alloc(alignment, bytes);
//   return p == NULL ? NULL : memset(p, 0, bytes);
// }
import "C"

import (
	"fmt"
	"math"
	"unsafe"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

const (
	// alignment is that of every block: a cache line, and the widest vectors.
	alignment = 64
	// mapFrom is the size from which a block is mapped: its pages are zero
	// already, and are committed only when they are touched, so that a pool of
	// states loads at once and costs what it uses.
	mapFrom = 256 << 10
)

// hostMemory implements statebuffer.Memory outside Go's heap. Blocks have both an
// address and bytes.
type hostMemory struct {
	held map[uint64]allocation // by address
}

// allocation is memory of C that is in use, and its size as it was asked for.
type allocation struct {
	at    unsafe.Pointer
	bytes int64
}

func newHostMemory() *hostMemory {
	return &hostMemory{held: make(map[uint64]allocation)}
}

// Alloc implements statebuffer.Memory. A block of size 0 has an address too.
func (m *hostMemory) Alloc(bytes int64) (statebuffer.Block, error) {
	if bytes < 0 || bytes > math.MaxInt64-alignment {
		return statebuffer.Block{}, status.Errorf(status.InvalidArg, "allocating %d bytes of host memory: impossible size", bytes)
	}
	at := allocate(bytes)
	if at == nil {
		return statebuffer.Block{}, status.Errorf(status.Unavailable, "allocating %d bytes of host memory: not enough memory", bytes)
	}
	block := hostBlock(at, bytes)
	m.held[block.Addr] = allocation{at, bytes}
	return block, nil
}

// Free implements statebuffer.Memory. It panics for a block that Alloc did not
// return or that was freed before: going on would corrupt the C heap.
func (m *hostMemory) Free(b statebuffer.Block) {
	a, owned := m.held[b.Addr]
	if !owned || a.bytes != b.Size {
		panic(fmt.Sprintf("ortrunner: free of %d bytes at %#x, which is not a block of this memory", b.Size, b.Addr))
	}
	delete(m.held, b.Addr)
	a.release()
}

// Clear implements statebuffer.Memory.
func (m *hostMemory) Clear(blocks []statebuffer.Block) { statebuffer.ClearHost(blocks) }

// Gather implements statebuffer.Memory.
func (m *hostMemory) Gather(t []statebuffer.Transfer) error { return statebuffer.GatherHost(t) }

// Scatter implements statebuffer.Memory.
func (m *hostMemory) Scatter(t []statebuffer.Transfer) error { return statebuffer.ScatterHost(t) }

// Discard implements statebuffer.Discarder.
func (m *hostMemory) Discard(b statebuffer.Block) {
	a := m.held[b.Addr]
	if a.bytes < mapFrom || C.discard_pages(a.at, C.size_t(a.bytes)) != 0 {
		clear(b.Bytes)
	}
}

// close frees every block.
func (m *hostMemory) close() {
	for _, a := range m.held {
		a.release()
	}
	clear(m.held)
}

// allocate returns zeroed memory at an aligned address, or nil.
func allocate(bytes int64) unsafe.Pointer {
	if bytes >= mapFrom {
		return C.map_pages(C.size_t(bytes))
	}
	rounded := max(bytes+alignment-1, alignment) / alignment * alignment
	return C.allocate_zeros(alignment, C.size_t(rounded))
}

func (a allocation) release() {
	if a.bytes >= mapFrom {
		C.munmap(a.at, C.size_t(a.bytes))
		return
	}
	C.free(a.at)
}

// hostBlock is the block over memory of C.
func hostBlock(at unsafe.Pointer, bytes int64) statebuffer.Block {
	return statebuffer.Block{
		Addr:  uint64(uintptr(at)),
		Bytes: unsafe.Slice((*byte)(at), bytes),
		Size:  bytes,
	}
}
