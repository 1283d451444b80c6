// Package gpuinfo asks NVML, NVIDIA's management library, about the GPUs of the
// machine, for the log. Nothing depends on its answers: what is allocated, the
// CUDA driver decides.
//
// go-nvml leaves NVML's functions to be found by the dynamic linker when they are
// first called; one that the installed NVML lacks would end the process then. So
// everything that is called is looked up beforehand.
package gpuinfo

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Library is NVML's name for the dynamic linker. It comes with the driver.
const Library = "libnvidia-ml.so.1"

// GPU is one of the machine's, whether this process may use it or not.
type GPU struct {
	Name string
	// UUID is as NVIDIA's tools print it, with "GPU-" in front.
	UUID string
	// MIG: the GPU is split; its parts are not listed.
	MIG         bool
	Total, Free uint64 // bytes of memory
}

func (g GPU) String() string {
	split := ""
	if g.MIG {
		split = ", split (MIG)"
	}
	return fmt.Sprintf("%s, %s, %.1f of %.1f GiB free%s", g.Name, g.UUID, gib(g.Free), gib(g.Total), split)
}

func gib(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// needed are the functions without which nothing can be told; splitting is told
// where it can be.
var needed = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2",
	"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo",
}

const migMode = "nvmlDeviceGetMigMode"

// List describes the GPUs, and the version of the driver. The error says what is
// missing on a machine without them.
func List() (gpus []GPU, driver string, err error) {
	hasMIG, err := check()
	if err != nil {
		return nil, "", err
	}
	if r := nvml.Init(); r != nvml.SUCCESS {
		return nil, "", fmt.Errorf("%s: nvmlInit: %w", Library, r)
	}
	defer nvml.Shutdown()
	driver, r := nvml.SystemGetDriverVersion()
	if r != nvml.SUCCESS {
		driver = "unknown"
	}
	count, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, driver, fmt.Errorf("%s: nvmlDeviceGetCount: %w", Library, r)
	}
	for i := range count {
		gpu, r := describe(i, hasMIG)
		if r != nvml.SUCCESS {
			return gpus, driver, fmt.Errorf("%s: GPU %d: %w", Library, i, r)
		}
		gpus = append(gpus, gpu)
	}
	return gpus, driver, nil
}

// check makes sure that NVML has what will be called.
func check() (hasMIG bool, err error) {
	library := dl.New(Library, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := library.Open(); err != nil {
		return false, err
	}
	defer library.Close() //nolint:errcheck // it stays open if it does not close
	for _, name := range needed {
		if err := library.Lookup(name); err != nil {
			return false, fmt.Errorf("%s lacks %s: want that of driver 450 or newer", Library, name)
		}
	}
	return library.Lookup(migMode) == nil, nil
}

func describe(index int, hasMIG bool) (gpu GPU, r nvml.Return) {
	device, r := nvml.DeviceGetHandleByIndex(index)
	if r != nvml.SUCCESS {
		return gpu, r
	}
	if gpu.Name, r = device.GetName(); r != nvml.SUCCESS {
		return gpu, r
	}
	if gpu.UUID, r = device.GetUUID(); r != nvml.SUCCESS {
		return gpu, r
	}
	memory, r := device.GetMemoryInfo()
	if r != nvml.SUCCESS {
		return gpu, r
	}
	gpu.Total, gpu.Free = memory.Total, memory.Free
	if hasMIG {
		mode, _, r := device.GetMigMode() // not supported by most GPUs, which is an answer too
		gpu.MIG = r == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
	}
	return gpu, nvml.SUCCESS
}
