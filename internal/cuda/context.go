package cuda

// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Context is a device in use. It is safe for concurrent use.
type Context struct {
	Device *Device
	c      *C.gpu_context // of C, so that calls lend no Go pointer
}

// Retain begins to use a device; Release ends it. The primary context is shared
// with everybody in the process who uses CUDA.
func (d *Device) Retain() (*Context, error) {
	var context C.CUcontext
	if err := d.driver.error("cuDevicePrimaryCtxRetain", C.gpu_retain(d.driver.c, d.c, &context)); err != nil {
		return nil, fmt.Errorf("%v: %w", d, err)
	}
	c := (*C.gpu_context)(C.calloc(1, C.sizeof_gpu_context)) // C.calloc never returns nil for so little
	c.driver, c.context = d.driver.c, context
	return &Context{Device: d, c: c}, nil
}

// Release gives the context back. What it gave out must be gone by then.
func (c *Context) Release() error {
	err := c.error("cuDevicePrimaryCtxRelease", C.gpu_release(c.c.driver, c.Device.c))
	C.free(unsafe.Pointer(c.c))
	c.c = nil
	return err
}

func (c *Context) error(call string, result C.CUresult) error {
	if result == 0 {
		return nil
	}
	return fmt.Errorf("%v: %w", c.Device, c.Device.driver.error(call, result))
}

// MemInfo is the device's memory that is free and that there is, in bytes. It is
// the truth for this process also on a split GPU.
func (c *Context) MemInfo() (free, total int64, err error) {
	var f, t C.size_t
	err = c.error("cuMemGetInfo", C.gpu_mem_info(c.c, &f, &t))
	return int64(f), int64(t), err
}

// Alloc takes memory of the device, aligned to 256 bytes; bytes must not be 0.
// What it holds is undefined.
func (c *Context) Alloc(bytes int64) (uint64, error) {
	capturing.RLock()
	defer capturing.RUnlock()
	var address C.CUdeviceptr
	err := c.error("cuMemAlloc", C.gpu_alloc(c.c, &address, C.size_t(bytes)))
	return uint64(address), err
}

// Free gives it back. No work that uses it may be in a stream.
func (c *Context) Free(address uint64) error {
	capturing.RLock()
	defer capturing.RUnlock()
	return c.error("cuMemFree", C.gpu_free(c.c, C.CUdeviceptr(address)))
}

// HostAlloc takes pinned host memory, which copies reach at full speed and without
// holding up the caller.
func (c *Context) HostAlloc(bytes int64) ([]byte, error) {
	capturing.RLock()
	defer capturing.RUnlock()
	var at unsafe.Pointer
	if err := c.error("cuMemHostAlloc", C.gpu_host_alloc(c.c, &at, C.size_t(max(bytes, 1)))); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(at), bytes), nil
}

// HostFree gives it back.
func (c *Context) HostFree(memory []byte) error {
	capturing.RLock()
	defer capturing.RUnlock()
	return c.error("cuMemFreeHost", C.gpu_host_free(c.c, unsafe.Pointer(unsafe.SliceData(memory))))
}

// Module is loaded device code.
type Module struct {
	context *Context
	c       C.CUmodule
}

// Load compiles PTX for the device and loads it. Unload it.
func (c *Context) Load(ptx string) (*Module, error) {
	capturing.RLock()
	defer capturing.RUnlock()
	image := C.CString(ptx)
	defer C.free(unsafe.Pointer(image))
	m := &Module{context: c}
	if err := c.error("cuModuleLoadData", C.gpu_module_load(c.c, &m.c, unsafe.Pointer(image))); err != nil {
		return nil, err
	}
	return m, nil
}

// Unload forgets the code. None of it may be running.
func (m *Module) Unload() error {
	capturing.RLock()
	defer capturing.RUnlock()
	return m.context.error("cuModuleUnload", C.gpu_module_free(m.context.c, m.c))
}

// Kernel is a function of a module that can be launched.
type Kernel struct{ c C.CUfunction }

// Kernel finds a function by its name.
func (m *Module) Kernel(name string) (Kernel, error) {
	cName := C.CString(name)
	defer C.free(unsafe.Pointer(cName))
	var k Kernel
	err := m.context.error("cuModuleGetFunction "+name, C.gpu_function(m.context.c, &k.c, m.c, cName))
	return k, err
}
