package gpuinfo

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cuda"
)

// TestOnGPU compares NVML with the driver; scripts/gpu_check.sh runs it.
func TestOnGPU(t *testing.T) {
	if os.Getenv("STATEFUL_GPU") == "" {
		t.Skip("needs a GPU: scripts/gpu_check.sh runs it")
	}
	driver, err := cuda.OpenLibrary(cuda.Library)
	require.NoError(t, err)
	device, err := driver.Device(0)
	require.NoError(t, err)
	gpus, version, err := List()
	require.NoError(t, err)
	require.NotEmpty(t, gpus)
	found, err := Find(device.UUIDText())
	require.NoError(t, err)
	require.Contains(t, []string{"GPU-" + device.UUIDText(), "MIG-" + device.UUIDText()}, found.UUID)
	t.Logf("result: driver %s, %v", version, found)
}

// nvmls has the compiler flags of each fake NVML; nil stands for no NVML.
var nvmls = map[string][]string{
	"no driver": nil, "few functions": {}, "split": {"-DHAS_MIG"}, "lacks a function": {"-DLACKS_NAME"},
}

// withNVML runs a test in a process of its own with a fake NVML, and returns its
// output. A process cannot change its NVML.
func withNVML(t *testing.T, test, nvml string) string {
	t.Helper()
	_, err := os.ReadFile(filepath.Join("testdata", "nvml.c")) // go test caches results by the files that a test reads
	require.NoError(t, err)
	folder := t.TempDir()
	if flags := nvmls[nvml]; flags != nil {
		args := slices.Concat(flags, []string{"-shared", "-fPIC", filepath.Join("testdata", "nvml.c"), "-o", filepath.Join(folder, nvmlLibrary)})
		out, err := exec.Command("gcc", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	self := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	self.Env = append(os.Environ(), "GPUINFO_PRINT=1", "LD_LIBRARY_PATH="+folder)
	out, err := self.CombinedOutput()
	require.NoError(t, err, "%s", out)
	if nvml == "no driver" && !strings.Contains(string(out), "cannot open shared object file") {
		t.Skip("this machine has an NVIDIA driver: what happens without one cannot be tested")
	}
	return string(out)
}

func TestList(t *testing.T) {
	if os.Getenv("GPUINFO_PRINT") != "" {
		gpus, driver, err := List()
		t.Log("driver:", driver, "gpus:", gpus, "error:", err)
		return
	}
	for nvml, want := range map[string]string{
		"no driver":        "error: libnvidia-ml.so.1: ",
		"few functions":    "driver: 580.1.2 gpus: [Fake GPU, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f, 1.5 of 8.0 GiB free] error: <nil>",
		"split":            "1.5 of 8.0 GiB free, split (MIG)] error: <nil>",
		"lacks a function": "libnvidia-ml.so.1 lacks nvmlDeviceGetName",
	} {
		t.Run(nvml, func(t *testing.T) { require.Contains(t, withNVML(t, "TestList", nvml), want) })
	}
}

// TestFind finds a GPU and a MIG device by their UUIDs of CUDA.
func TestFind(t *testing.T) {
	if os.Getenv("GPUINFO_PRINT") != "" {
		for _, uuid := range []string{"00010203-0405-0607-0809-0a0b0c0d0e0f", "10111213-1415-1617-1819-1a1b1c1d1e1f"} {
			gpu, err := Find(uuid)
			t.Log(gpu, "whole:", gpu.Whole, "error:", err)
		}
		return
	}
	const part = "Fake GPU MIG 1g.4gb, MIG-10111213-1415-1617-1819-1a1b1c1d1e1f, 0.8 of 4.0 GiB free whole: GPU-00010203-0405-0607-0809-0a0b0c0d0e0f error: <nil>"
	for nvml, want := range map[string][]string{
		"no driver":     {"error: libnvidia-ml.so.1: "},
		"few functions": {"Fake GPU, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f, 1.5 of 8.0 GiB free whole:  error: <nil>", "libnvidia-ml.so.1: GPU 10111213-1415-1617-1819-1a1b1c1d1e1f: a fake error"},
		"split":         {part},
	} {
		t.Run(nvml, func(t *testing.T) {
			got := withNVML(t, "TestFind", nvml)
			for _, text := range want {
				require.Contains(t, got, text)
			}
		})
	}
}
