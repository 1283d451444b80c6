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

// Retain begins to use a device; Release ends it. All users of CUDA in the process
// share the primary context.
func (d *Device) Retain() (*Context, error) {
	var context C.CUcontext
	if err := d.driver.error("cuDevicePrimaryCtxRetain", C.gpu_retain(d.driver.c, d.c, &context)); err != nil {
		return nil, fmt.Errorf("%v: %w", d, err)
	}
	c := (*C.gpu_context)(C.calloc(1, C.sizeof_gpu_context)) // C.calloc never returns nil for so little
	c.driver, c.context = d.driver.c, context
	return &Context{Device: d, c: c}, nil
}

// Release ends the use of the device. Everything allocated from the context must be
// freed before.
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

// MemInfo returns the free and the total memory of the device, in bytes. On a MIG
// device these are its own.
func (c *Context) MemInfo() (free, total int64, err error) {
	var f, t C.size_t
	err = c.error("cuMemGetInfo", C.gpu_mem_info(c.c, &f, &t))
	return int64(f), int64(t), err
}

// Alloc allocates device memory, aligned to 256 bytes; bytes must not be 0. Its
// contents are undefined.
func (c *Context) Alloc(bytes int64) (uint64, error) {
	capturing.RLock()
	defer capturing.RUnlock()
	var address C.CUdeviceptr
	err := c.error("cuMemAlloc", C.gpu_alloc(c.c, &address, C.size_t(bytes)))
	return uint64(address), err
}

// Free frees device memory. No work in a stream may use it.
func (c *Context) Free(address uint64) error {
	capturing.RLock()
	defer capturing.RUnlock()
	return c.error("cuMemFree", C.gpu_free(c.c, C.CUdeviceptr(address)))
}

// HostAlloc allocates pinned host memory, which copies access at full speed and
// asynchronously. Its contents are undefined.
func (c *Context) HostAlloc(bytes int64) ([]byte, error) {
	capturing.RLock()
	defer capturing.RUnlock()
	var at unsafe.Pointer
	if err := c.error("cuMemHostAlloc", C.gpu_host_alloc(c.c, &at, C.size_t(max(bytes, 1)))); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(at), bytes), nil
}

// HostFree frees memory of HostAlloc. No work in a stream may use it.
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

// Load compiles PTX for the device and loads it. The caller unloads the module.
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

// Unload unloads the code. None of it may be running.
func (m *Module) Unload() error {
	capturing.RLock()
	defer capturing.RUnlock()
	return m.context.error("cuModuleUnload", C.gpu_module_free(m.context.c, m.c))
}

// Kernel is a function of a module that can be launched.
type Kernel struct{ c C.CUfunction }

// Kernel returns a function by its name.
func (m *Module) Kernel(name string) (Kernel, error) {
	cName := C.CString(name)
	defer C.free(unsafe.Pointer(cName))
	var k Kernel
	err := m.context.error("cuModuleGetFunction "+name, C.gpu_function(m.context.c, &k.c, m.c, cName))
	return k, err
}
