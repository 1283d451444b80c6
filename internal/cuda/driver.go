package cuda

// #cgo CFLAGS: -O2 -Wall -Wextra
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Library is the file name of the driver. NVIDIA's driver package installs it; a
// CUDA toolkit does not.
const Library = "libcuda.so.1"

// MissingError reports that there is no usable CUDA driver.
type MissingError struct {
	Library string
	Reason  string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("no CUDA driver: %s: %s; install NVIDIA's driver, and in a container start it with the GPUs (docker run --gpus all)", e.Library, e.Reason)
}

// Error is a failed call of the driver.
type Error struct {
	Call string // the function, such as cuMemAlloc
	Code int    // CUresult
	Name string // CUDA_ERROR_OUT_OF_MEMORY
	Text string // "out of memory"
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%s)", e.Call, e.Text, e.Name) }

// Driver is the opened driver library. It is safe for concurrent use.
type Driver struct {
	c *C.gpu_driver // never freed: an opened library stays open for the next OpenLibrary
	// Version is the newest CUDA that the driver supports, 1000*major + 10*minor.
	Version int
	devices int // that this process may use (CUDA_VISIBLE_DEVICES)
}

// OpenLibrary opens a driver by the name or path of its library.
func OpenLibrary(library string) (*Driver, error) {
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	var failure *C.char
	c := C.gpu_open(name, &failure)
	if c == nil {
		defer C.free(unsafe.Pointer(failure))
		return nil, &MissingError{library, C.GoString(failure)}
	}
	d := &Driver{c: c}
	var version, devices C.int
	if err := d.error("cuInit", C.gpu_init(c, &version, &devices)); err != nil {
		return nil, &MissingError{library, err.Error()}
	}
	d.Version, d.devices = int(version), int(devices)
	return d, nil
}

func (d *Driver) error(call string, result C.CUresult) error {
	if result == 0 {
		return nil
	}
	return &Error{
		Call: call, Code: int(result),
		Name: C.GoString(C.gpu_error_name(d.c, result)), Text: C.GoString(C.gpu_error_text(d.c, result)),
	}
}

// Device is a GPU, or a MIG device of one.
type Device struct {
	driver  *Driver
	c       C.CUdevice
	Ordinal int
	Name    string
	// UUID is that of the MIG device, if it is one.
	UUID         [16]byte
	Bytes        int64
	Major, Minor int // compute capability
}

// Device returns a device by its ordinal, the number in Triton's instance groups.
func (d *Driver) Device(ordinal int) (*Device, error) {
	if ordinal < 0 || ordinal >= d.devices {
		return nil, fmt.Errorf("GPU %d: this process sees %d GPUs: want one of instance_group's gpus below %d", ordinal, d.devices, d.devices)
	}
	device := &Device{driver: d, Ordinal: ordinal}
	var (
		name         [256]C.char
		uuid         C.CUuuid
		bytes        C.size_t
		major, minor C.int
	)
	result := C.gpu_describe(d.c, C.int(ordinal), &device.c, &name[0], C.int(len(name)), &uuid, &bytes, &major, &minor)
	if err := d.error("describing the device", result); err != nil {
		return nil, fmt.Errorf("GPU %d: %w", ordinal, err)
	}
	device.Name, device.Bytes = C.GoString(&name[0]), int64(bytes)
	device.Major, device.Minor = int(major), int(minor)
	for i, b := range uuid.bytes {
		device.UUID[i] = byte(b)
	}
	return device, nil
}

func (d *Device) String() string {
	return fmt.Sprintf("GPU %d (%s)", d.Ordinal, d.Name)
}

// UUIDText returns the UUID without a prefix: 8-4-4-4-12 hexadecimal digits.
func (d *Device) UUIDText() string {
	u := d.UUID
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
