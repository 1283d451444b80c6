package ortrunner

import (
	"errors"
	"fmt"
	"unsafe"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/devicememory"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// deviceMemory is a device's memory whose errors have codes.
type deviceMemory struct{ *devicememory.Memory }

// Alloc implements statebuffer.Memory.
func (m deviceMemory) Alloc(bytes int64) (statebuffer.Block, error) {
	b, err := m.Memory.Alloc(bytes)
	if err != nil {
		return b, status.Errorf(status.Unavailable, "%w", err)
	}
	return b, nil
}

// staging implements statebuffer.Memory with pinned host memory. Each block has a twin
// on the device, to which a run copies it if it is an input, and from which it copies
// it if it is an output.
type staging struct {
	context *cuda.Context
	device  statebuffer.Memory
	stream  *cuda.Stream
	held    []staged
}

type staged struct {
	host []byte
	addr uint64 // of host
	twin statebuffer.Block
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// Alloc implements statebuffer.Memory.
func (s *staging) Alloc(bytes int64) (statebuffer.Block, error) {
	twin, err := s.device.Alloc(bytes)
	if err != nil {
		return statebuffer.Block{}, err
	}
	host, err := s.context.HostAlloc(bytes)
	if err != nil {
		s.device.Free(twin)
		return statebuffer.Block{}, status.Errorf(status.Unavailable, "allocating %d bytes of pinned host memory: %w", bytes, err)
	}
	clear(host)
	block := statebuffer.Block{Addr: addressOf(host), Bytes: host, Size: bytes}
	s.held = append(s.held, staged{host, block.Addr, twin})
	return block, nil
}

// Free implements statebuffer.Memory. It waits until no copy uses the block.
func (s *staging) Free(b statebuffer.Block) {
	for i := range s.held {
		if h := &s.held[i]; h.addr == b.Addr && h.twin.Size == b.Size {
			s.device.Free(h.twin) // waits for the stream
			_ = s.context.HostFree(h.host)
			s.held = append(s.held[:i], s.held[i+1:]...)
			return
		}
	}
	panic(fmt.Sprintf("ortrunner: free of %d bytes at %#x, which is not a pinned block", b.Size, b.Addr))
}

// twin returns the device memory that belongs to a block, or to a part of one; ok reports whether it is one of this memory.
func (s *staging) twin(b statebuffer.Block) (twin statebuffer.Block, ok bool) {
	for i := range s.held {
		h := &s.held[i]
		if offset := int64(b.Addr - h.addr); b.Addr >= h.addr && offset+b.Size <= h.twin.Size {
			return h.twin.At(offset, b.Size), true
		}
	}
	return statebuffer.Block{}, false
}

// Clear implements statebuffer.Memory.
func (s *staging) Clear(blocks []statebuffer.Block) { statebuffer.ClearHost(blocks) }

// Gather implements statebuffer.Memory, between blocks of this one.
func (s *staging) Gather(t []statebuffer.Transfer) error { return statebuffer.GatherHost(t) }

// Scatter implements statebuffer.Memory, between blocks of this one.
func (s *staging) Scatter(t []statebuffer.Transfer) error { return statebuffer.ScatterHost(t) }

// pinnedPool is pinned host memory for outputs that are on the device and wanted on
// the host: one buffer for each such output of a run. A buffer that is too small is
// replaced by one of the next Capacity, but freed only by close: freeing it earlier would
// wait for the device, and all replaced buffers together are smaller than the last.
type pinnedPool struct {
	context  *cuda.Context
	buffers  [][]byte
	replaced [][]byte
	used     int // since the last Begin
}

// take returns a buffer that the run does not use yet.
func (p *pinnedPool) take(bytes int64) ([]byte, error) {
	if p.used == len(p.buffers) {
		p.buffers = append(p.buffers, nil)
	}
	buffer := &p.buffers[p.used]
	if int64(len(*buffer)) < bytes {
		larger, err := p.context.HostAlloc(statebuffer.Capacity(bytes))
		if err != nil {
			return nil, err
		}
		if *buffer != nil {
			p.replaced = append(p.replaced, *buffer)
		}
		*buffer = larger
	}
	p.used++
	return (*buffer)[:bytes], nil
}

// giveBack returns the buffer that was taken last.
func (p *pinnedPool) giveBack() { p.used-- }

func (p *pinnedPool) close() (err error) {
	for _, buffer := range append(p.buffers, p.replaced...) {
		if buffer != nil {
			err = errors.Join(err, p.context.HostFree(buffer))
		}
	}
	p.buffers, p.replaced = nil, nil
	return err
}

// close frees every block on the host; those on the device are freed with its memory.
func (s *staging) close() (err error) {
	for i := range s.held {
		err = errors.Join(err, s.context.HostFree(s.held[i].host))
	}
	s.held = nil
	return err
}
