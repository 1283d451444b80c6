package statebuffer

import (
	"fmt"
	"sync/atomic"
)

// Heap is a Memory of Go's heap. It is the plain reading of the interface: for
// tests, and for runners that hand no memory to C. The zero value is ready.
type Heap struct {
	next atomic.Uint64
	used atomic.Int64
	// Limit, if positive, is the number of bytes that may be allocated at once.
	Limit int64
}

// Alloc implements Memory.
func (h *Heap) Alloc(bytes int64) (Block, error) {
	const impossible = 1 << 47 // beyond any address
	if bytes < 0 || bytes >= impossible {
		return Block{}, fmt.Errorf("allocating %d bytes: impossible size", bytes)
	}
	if h.Limit > 0 && h.used.Load()+bytes > h.Limit {
		return Block{}, fmt.Errorf("allocating %d bytes: %d of %d are in use", bytes, h.used.Load(), h.Limit)
	}
	h.used.Add(bytes)
	addr := h.next.Add(uint64(bytes)+64) - uint64(bytes)
	return Block{Addr: addr, Bytes: make([]byte, bytes), Size: bytes}, nil
}

// Free implements Memory. The bytes are poisoned, so that a late read is seen.
func (h *Heap) Free(b Block) {
	for i := range b.Bytes {
		b.Bytes[i] = 0xDB
	}
	h.used.Add(-b.Size)
}

// Clear implements Memory.
func (h *Heap) Clear(blocks []Block) { ClearHost(blocks) }

// Discard implements Discarder. The memory stays in use.
func (h *Heap) Discard(b Block) { clear(b.Bytes) }

// Used is the number of bytes that were allocated and not freed.
func (h *Heap) Used() int64 { return h.used.Load() }

// Gather implements Memory.
func (h *Heap) Gather(t []Transfer) error { return GatherHost(t) }

// Scatter implements Memory.
func (h *Heap) Scatter(t []Transfer) error { return ScatterHost(t) }
