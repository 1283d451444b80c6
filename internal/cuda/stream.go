package cuda

// #include "driver.h"
import "C"

import "unsafe"

// Stream is a queue of work. One goroutine at a time adds work.
type Stream struct {
	context *Context
	c       C.CUstream
}

// NewStream makes a stream that waits for no other one. The caller destroys it.
func (c *Context) NewStream() (*Stream, error) {
	s := &Stream{context: c}
	if err := c.error("cuStreamCreate", C.gpu_stream_new(c.c, &s.c)); err != nil {
		return nil, err
	}
	return s, nil
}

// Handle is the CUstream, for libraries that take the user's stream.
func (s *Stream) Handle() uintptr { return uintptr(unsafe.Pointer(s.c)) }

// Destroy frees the stream. Work that is in it is still done.
func (s *Stream) Destroy() error {
	return s.context.error("cuStreamDestroy", C.gpu_stream_free(s.context.c, s.c))
}

// Sync waits until all work is done. Its error may come from earlier work.
func (s *Stream) Sync() error {
	return s.context.error("cuStreamSynchronize", C.gpu_stream_sync(s.context.c, s.c))
}

// CopyIn copies from the host to the device.
func (s *Stream) CopyIn(to uint64, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return s.context.error("cuMemcpyHtoDAsync", C.gpu_copy_in(s.context.c, s.c, C.CUdeviceptr(to), address(from), C.size_t(len(from))))
}

// CopyOut copies from the device to the host.
func (s *Stream) CopyOut(to []byte, from uint64) error {
	if len(to) == 0 {
		return nil
	}
	return s.context.error("cuMemcpyDtoHAsync", C.gpu_copy_out(s.context.c, s.c, address(to), C.CUdeviceptr(from), C.size_t(len(to))))
}

// Copy copies within the device, or from another device.
func (s *Stream) Copy(to, from uint64, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	return s.context.error("cuMemcpyDtoDAsync", C.gpu_copy(s.context.c, s.c, C.CUdeviceptr(to), C.CUdeviceptr(from), C.size_t(bytes)))
}

// Set fills device memory with one value.
func (s *Stream) Set(to uint64, value byte, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	return s.context.error("cuMemsetD8Async", C.gpu_set(s.context.c, s.c, C.CUdeviceptr(to), C.uchar(value), C.size_t(bytes)))
}

// Grid is how many blocks of a kernel run; x may be large, y and z are at most
// 65535 each.
type Grid struct{ X, Y, Z int }

// Launch runs a kernel whose only parameter is a 64-bit number.
func (s *Stream) Launch(k Kernel, grid Grid, threads int, argument uint64) error {
	return s.context.error("cuLaunchKernel", C.gpu_launch(s.context.c, s.c, k.c,
		C.uint(grid.X), C.uint(grid.Y), C.uint(grid.Z), C.uint(threads), C.uint64_t(argument)))
}

// address returns the address of host memory, which must be C's: the device accesses
// it after the call has returned, when Go memory could have moved.
func address(b []byte) C.uintptr_t {
	return C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// Event marks a point in a stream.
type Event struct {
	context *Context
	c       C.CUevent
}

// NewEvent makes an event. The caller destroys it.
func (c *Context) NewEvent() (*Event, error) {
	e := &Event{context: c}
	if err := c.error("cuEventCreate", C.gpu_event_new(c.c, &e.c)); err != nil {
		return nil, err
	}
	return e, nil
}

// Record puts the event after the work that is in the stream.
func (e *Event) Record(s *Stream) error {
	return e.context.error("cuEventRecord", C.gpu_event_record(e.context.c, e.c, s.c))
}

// Sync waits until the work before the event is done. An event that was never
// recorded is done.
func (e *Event) Sync() error {
	return e.context.error("cuEventSynchronize", C.gpu_event_sync(e.context.c, e.c))
}

// Destroy frees the event.
func (e *Event) Destroy() error {
	return e.context.error("cuEventDestroy", C.gpu_event_free(e.context.c, e.c))
}
