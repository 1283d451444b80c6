// Package gpuinfo asks NVML, NVIDIA's management library, about the GPUs of the
// machine, for the log, the labels of metrics and the texts of errors. No decision
// depends on its answers: what is allocated, the CUDA driver decides.
//
// go-nvml leaves NVML's functions to be found by the dynamic linker when they are
// first called; one that the installed NVML lacks would end the process then. So
// everything that is called is looked up beforehand.
package gpuinfo

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Library is NVML's name for the dynamic linker. It comes with the driver.
const Library = "libnvidia-ml.so.1"

// GPU is one of the machine's, whether this process may use it or not, or a part
// of one.
type GPU struct {
	Name string
	// UUID is as NVIDIA's tools print it: with "GPU-" in front, or "MIG-" for a
	// part.
	UUID string
	// MIG: the GPU is split; its parts are not listed.
	MIG bool
	// Whole is the UUID of the GPU of which this is a part; empty for a whole one.
	Whole       string
	Total, Free uint64 // bytes of memory; Total is 0 where NVML does not tell
}

func (g GPU) String() string {
	split := ""
	if g.MIG {
		split = ", split (MIG)"
	}
	return fmt.Sprintf("%s, %s, %s%s", g.Name, g.UUID, g.Memory(), split)
}

// Memory is what is free, for people.
func (g GPU) Memory() string {
	if g.Total == 0 {
		return "memory unknown"
	}
	return fmt.Sprintf("%.1f of %.1f GiB free", gib(g.Free), gib(g.Total))
}

func gib(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// needed are the functions without which nothing can be told; splitting is told
// where it can be.
var needed = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2",
	"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo",
}

const (
	migMode = "nvmlDeviceGetMigMode"
	wholeOf = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle"
)

// found tells which of the functions that are not needed NVML has.
type found struct{ migMode, wholeOf bool }

// List describes the GPUs, and the version of the driver. The error says what is
// missing on a machine without them.
func List() (gpus []GPU, driver string, err error) {
	has, err := open()
	if err != nil {
		return nil, "", err
	}
	defer nvml.Shutdown() //nolint:errcheck // nothing is to be done about it
	driver, r := nvml.SystemGetDriverVersion()
	if r != nvml.SUCCESS {
		driver = "unknown"
	}
	count, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, driver, fmt.Errorf("%s: nvmlDeviceGetCount: %w", Library, r)
	}
	for i := range count {
		device, r := nvml.DeviceGetHandleByIndex(i)
		gpu := GPU{}
		if r == nvml.SUCCESS {
			gpu, r = describe(device, has)
		}
		if r != nvml.SUCCESS {
			return gpus, driver, fmt.Errorf("%s: GPU %d: %w", Library, i, r)
		}
		gpus = append(gpus, gpu)
	}
	return gpus, driver, nil
}

// Find describes what CUDA knows by a UUID, 8-4-4-4-12 hexadecimal digits: a GPU,
// or a part of one. CUDA's numbers of GPUs are not NVML's.
func Find(uuid string) (gpu GPU, err error) {
	has, err := open()
	if err != nil {
		return gpu, err
	}
	defer nvml.Shutdown() //nolint:errcheck // nothing is to be done about it
	device, r := nvml.DeviceGetHandleByUUID("GPU-" + uuid)
	if r != nvml.SUCCESS {
		device, r = nvml.DeviceGetHandleByUUID("MIG-" + uuid)
	}
	if r == nvml.SUCCESS {
		gpu, r = describe(device, has)
	}
	if r != nvml.SUCCESS {
		return gpu, fmt.Errorf("%s: GPU %s: %w", Library, uuid, r)
	}
	return gpu, nil
}

// open makes sure that NVML has what will be called, and begins to use it.
func open() (has found, err error) {
	library := dl.New(Library, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := library.Open(); err != nil {
		return has, err
	}
	defer library.Close() //nolint:errcheck // it stays open if it does not close
	for _, name := range needed {
		if err := library.Lookup(name); err != nil {
			return has, fmt.Errorf("%s lacks %s: want that of driver 450 or newer", Library, name)
		}
	}
	if r := nvml.Init(); r != nvml.SUCCESS {
		return has, fmt.Errorf("%s: nvmlInit: %w", Library, r)
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
	if memory, r := device.GetMemoryInfo(); r == nvml.SUCCESS { // else it shares the host's, or may not be seen
		gpu.Total, gpu.Free = memory.Total, memory.Free
	}
	if strings.HasPrefix(gpu.UUID, "MIG-") {
		if has.wholeOf {
			gpu.Whole = wholeUUID(device)
		}
		return gpu, nvml.SUCCESS
	}
	if has.migMode {
		mode, _, r := device.GetMigMode() // not supported by most GPUs, which is an answer too
		gpu.MIG = r == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
	}
	return gpu, nvml.SUCCESS
}

// wholeUUID is the UUID of the GPU of which this is a part, or empty.
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
