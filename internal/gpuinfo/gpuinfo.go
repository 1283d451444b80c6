// Package gpuinfo describes the GPUs of the machine as reported by NVML, NVIDIA's
// management library. Logs, labels of metrics and error messages use these
// descriptions. No decision depends on them: memory is allocated by the CUDA driver.
//
// go-nvml lets the dynamic linker resolve NVML's functions at their first call, and a
// function that the installed NVML lacks would then end the process. So this package
// looks up every function before it calls any.
//
// The functions of this package may be called from any goroutine.
package gpuinfo

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlLibrary is the file name of NVML, which comes with the driver.
const nvmlLibrary = "libnvidia-ml.so.1"

// GPU is a GPU of the machine, whether this process may use it or not, or a MIG
// device: a part of a GPU.
type GPU struct {
	Name string
	// UUID is in the form of NVIDIA's tools, with the prefix "GPU-", or "MIG-" for a
	// MIG device.
	UUID string
	// mig reports whether the GPU is split into MIG devices. These are not listed.
	mig bool
	// Whole is the UUID of the GPU that a MIG device is part of, and else empty.
	Whole       string
	Total, Free uint64 // bytes of memory; Total is 0 if NVML does not report it
}

// String describes the GPU in one line of a log.
func (g GPU) String() string {
	split := ""
	if g.mig {
		split = ", split (MIG)"
	}
	return fmt.Sprintf("%s, %s, %s%s", g.Name, g.UUID, g.Memory(), split)
}

// Memory describes the free and the total memory, for messages.
func (g GPU) Memory() string {
	if g.Total == 0 {
		return "memory unknown"
	}
	return fmt.Sprintf("%.1f of %.1f GiB free", gib(g.Free), gib(g.Total))
}

func gib(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// needed are the functions that this package cannot do without. Those about MIG are
// optional.
var needed = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2",
	"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo",
}

const (
	migMode = "nvmlDeviceGetMigMode"
	wholeOf = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"
)

// found has the optional functions that NVML provides.
type found struct{ migMode, wholeOf bool }

// List returns the GPUs of the machine and the version of the driver. On a machine
// without a GPU, the error says what is missing.
func List() (gpus []GPU, driver string, err error) {
	has, err := open()
	if err != nil {
		return nil, "", err
	}
	defer nvml.Shutdown() //nolint:errcheck // nothing can be done about it
	driver, r := nvml.SystemGetDriverVersion()
	if r != nvml.SUCCESS {
		driver = "unknown"
	}
	count, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, driver, fmt.Errorf("%s: nvmlDeviceGetCount: %w", nvmlLibrary, r)
	}
	for i := range count {
		device, r := nvml.DeviceGetHandleByIndex(i)
		gpu := GPU{}
		if r == nvml.SUCCESS {
			gpu, r = describe(device, has)
		}
		if r != nvml.SUCCESS {
			return gpus, driver, fmt.Errorf("%s: GPU %d: %w", nvmlLibrary, i, r)
		}
		gpus = append(gpus, gpu)
	}
	return gpus, driver, nil
}

// Find returns the GPU or MIG device with a UUID of CUDA: 8-4-4-4-12 hexadecimal
// digits. GPUs are found by UUID because CUDA and NVML number them differently.
func Find(uuid string) (gpu GPU, err error) {
	has, err := open()
	if err != nil {
		return gpu, err
	}
	defer nvml.Shutdown() //nolint:errcheck // nothing can be done about it
	device, r := nvml.DeviceGetHandleByUUID("GPU-" + uuid)
	if r != nvml.SUCCESS {
		device, r = nvml.DeviceGetHandleByUUID("MIG-" + uuid)
	}
	if r == nvml.SUCCESS {
		gpu, r = describe(device, has)
	}
	if r != nvml.SUCCESS {
		return gpu, fmt.Errorf("%s: GPU %s: %w", nvmlLibrary, uuid, r)
	}
	return gpu, nil
}

// open checks that NVML has all needed functions and initializes it.
func open() (has found, err error) {
	library := dl.New(nvmlLibrary, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := library.Open(); err != nil {
		return has, err
	}
	defer library.Close() //nolint:errcheck // if it fails, the library stays open
	for _, name := range needed {
		if err := library.Lookup(name); err != nil {
			return has, fmt.Errorf("%s lacks %s: want the one of driver 450 or newer", nvmlLibrary, name)
		}
	}
	if r := nvml.Init(); r != nvml.SUCCESS {
		return has, fmt.Errorf("%s: nvmlInit: %w", nvmlLibrary, r)
	}
	return found{migMode: library.Lookup(migMode) == nil, wholeOf: library.Lookup(wholeOf) == nil}, nil
}

func describe(device nvml.Device, has found) (gpu GPU, r nvml.Return) {
	if gpu.Name, r = device.GetName(); r != nvml.SUCCESS {
		return gpu, r
	}
	if gpu.UUID, r = device.GetUUID(); r != nvml.SUCCESS {
		return gpu, r
	}
	if memory, r := device.GetMemoryInfo(); r == nvml.SUCCESS { // it fails if the GPU shares host memory, or access is denied
		gpu.Total, gpu.Free = memory.Total, memory.Free
	}
	if strings.HasPrefix(gpu.UUID, "MIG-") {
		if has.wholeOf {
			gpu.Whole = wholeUUID(device)
		}
		return gpu, nvml.SUCCESS
	}
	if has.migMode {
		mode, _, r := device.GetMigMode() // most GPUs do not support it: not split
		gpu.mig = r == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
	}
	return gpu, nvml.SUCCESS
}

// wholeUUID returns the UUID of the GPU that a MIG device is part of, or "".
func wholeUUID(part nvml.Device) string {
	whole, r := part.GetDeviceHandleFromMigDeviceHandle()
	if r != nvml.SUCCESS {
		return ""
	}
	uuid, r := whole.GetUUID()
	if r != nvml.SUCCESS {
		return ""
	}
	return uuid
}
