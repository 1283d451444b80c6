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

// staging implements statebuffer.Memory with pinned memory of the host. Each block
// has a twin on the device, to which runs copy it or from which they fill it.
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
	panic(fmt.Sprintf("ortrunner: free of %d bytes at %#x, which is no pinned block", b.Size, b.Addr))
}

// twin is the part of the device's memory that belongs to a block, or to a part
// of one; ok tells whether it is one of this memory.
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

// fetched are pinned pieces of memory for outputs that the host wants although
// they are the device's: one for each such output of a run. A piece that is too
// small is replaced by one half as large again as is needed, and kept until the end:
// to free it would be to wait for the device, and all that were replaced are less
// than two of the last.
type fetched struct {
	context  *cuda.Context
	pieces   [][]byte
	replaced [][]byte
	used     int // since the last Begin
}

// room is a piece that the run does not use yet.
func (f *fetched) room(bytes int64) ([]byte, error) {
	if f.used == len(f.pieces) {
		f.pieces = append(f.pieces, nil)
	}
	piece := &f.pieces[f.used]
	if int64(len(*piece)) < bytes {
		larger, err := f.context.HostAlloc(bytes + bytes/2)
		if err != nil {
			return nil, err
		}
		if *piece != nil {
			f.replaced = append(f.replaced, *piece)
		}
		*piece = larger
	}
	f.used++
	return (*piece)[:bytes], nil
}

// back makes the last piece one that the run does not use.
func (f *fetched) back() { f.used-- }

func (f *fetched) close() (err error) {
	for _, piece := range append(f.pieces, f.replaced...) {
		if piece != nil {
			err = errors.Join(err, f.context.HostFree(piece))
		}
	}
	f.pieces, f.replaced = nil, nil
	return err
}

// close frees every block on the host; those on the device go with its memory.
func (s *staging) close() (err error) {
	for i := range s.held {
		err = errors.Join(err, s.context.HostFree(s.held[i].host))
	}
	s.held = nil
	return err
}
