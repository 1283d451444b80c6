package devicememory

import (
	"errors"
	"fmt"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/cuda/kernels"
	"tritonstateful/statebuffer"
)

// Memory implements statebuffer.Memory on a device. One goroutine uses it at a
// time.
type Memory struct {
	context  *cuda.Context
	stream   *cuda.Stream
	module   *cuda.Module
	gather   cuda.Kernel
	scatter  cuda.Kernel
	wipe     cuda.Kernel
	degraded error            // why there are no kernels, or nil
	held     map[uint64]int64 // sizes of the blocks, by address
	lists    [launchesInFlight]moveList
	next     int    // the list to be used next
	dirty    []span // to be cleared before any other work
	pinned   []byte // for Upload and Download, when they have been used
}

// New returns a Memory whose work goes into the stream, which the caller still owns.
// The caller closes the Memory before the stream.
func New(context *cuda.Context, stream *cuda.Stream) (*Memory, error) {
	m := &Memory{context: context, stream: stream, held: map[uint64]int64{}}
	for i := range m.lists {
		if err := m.lists[i].open(context, stream); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	m.degraded = m.loadKernels()
	return m, nil
}

func (m *Memory) loadKernels() (err error) {
	if m.module, err = m.context.Load(kernels.PTX); err != nil {
		return err
	}
	if m.gather, err = m.module.Kernel("gather"); err != nil {
		return err
	}
	if m.scatter, err = m.module.Kernel("scatter"); err != nil {
		return err
	}
	m.wipe, err = m.module.Kernel("wipe")
	return err
}

// Degraded returns why individual copies do the work of the kernels, or nil.
func (m *Memory) Degraded() error { return m.degraded }

// memoryError reports that the device has too little memory for a block.
type memoryError struct {
	Bytes, Free, Total int64
	Device             *cuda.Device
	Err                error
}

func (e *memoryError) Error() string {
	return fmt.Sprintf("allocating %d bytes on %v: %v; %d of %d bytes are free", e.Bytes, e.Device, e.Err, e.Free, e.Total)
}

func (e *memoryError) Unwrap() error { return e.Err }

// roomError reports that the device has too little memory for what is about to be
// allocated.
type roomError struct {
	Bytes, Free, Total int64
	Device             *cuda.Device
}

func (e *roomError) Error() string {
	return fmt.Sprintf("%d bytes are needed on %v: the CUDA driver reports %d of %d bytes as free", e.Bytes, e.Device, e.Free, e.Total)
}

// Alloc implements statebuffer.Memory. The error is a *memoryError.
func (m *Memory) Alloc(bytes int64) (statebuffer.Block, error) {
	if bytes < 0 {
		return statebuffer.Block{}, fmt.Errorf("allocating %d bytes on %v: impossible size", bytes, m.context.Device)
	}
	address, err := m.context.Alloc(max(bytes, 1)) // so that each block has an address of its own
	if err != nil {
		return statebuffer.Block{}, m.outOf(bytes, err)
	}
	if err := m.stream.Set(address, 0, bytes); err != nil {
		return statebuffer.Block{}, errors.Join(err, m.context.Free(address))
	}
	m.held[address] = bytes
	return statebuffer.Block{Addr: address, Size: bytes}, nil
}

func (m *Memory) outOf(bytes int64, err error) error {
	failed := &memoryError{Bytes: bytes, Device: m.context.Device, Err: err}
	if e, ok := errors.AsType[*cuda.Error](err); ok {
		failed.Err = errors.New(e.Text)
	}
	failed.Free, failed.Total, _ = m.context.MemInfo() // zeros, if even that fails
	return failed
}

// CheckCapacity implements statebuffer.CapacityChecker with the driver's figures,
// which are right for this process on a MIG device too. The error is a *roomError.
func (m *Memory) CheckCapacity(bytes int64) error {
	free, total, err := m.context.MemInfo()
	if err != nil || bytes <= free {
		return err
	}
	return &roomError{Bytes: bytes, Free: free, Total: total, Device: m.context.Device}
}

// Free implements statebuffer.Memory. It waits until nothing uses the block. It
// panics for a block that Alloc did not return or that was freed before.
func (m *Memory) Free(b statebuffer.Block) {
	if size, owned := m.held[b.Addr]; !owned || size != b.Size {
		panic(fmt.Sprintf("devicememory: free of %d bytes at %#x, which is not a block of this memory", b.Size, b.Addr))
	}
	delete(m.held, b.Addr)
	// A device that cannot free has failed before, in a call that returned the error.
	_ = errors.Join(m.flush(), m.stream.Sync())
	_ = m.context.Free(b.Addr)
}

// Sync waits until all work is done, and updates the counters of clamped elements.
func (m *Memory) Sync() error {
	err := errors.Join(m.flush(), m.stream.Sync())
	for i := range m.lists {
		m.lists[i].collect()
	}
	return err
}

// Waited notes that the caller has waited for all work in the stream, so that this
// Memory does not wait for the same work.
func (m *Memory) Waited() {
	for i := range m.lists {
		m.lists[i].inFlight = false
	}
}

// Close frees every block.
func (m *Memory) Close() error {
	err := m.stream.Sync()
	for address := range m.held {
		err = errors.Join(err, m.context.Free(address))
	}
	clear(m.held)
	for i := range m.lists {
		err = errors.Join(err, m.lists[i].close())
	}
	err = errors.Join(err, m.freePinned())
	if m.module != nil {
		err = errors.Join(err, m.module.Unload())
	}
	m.module = nil
	return err
}
