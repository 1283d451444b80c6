package gpuinfo

import (
	"os"
	"os/exec"
	"path/filepath"
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
	driver, err := cuda.Open()
	require.NoError(t, err)
	device, err := driver.Device(0)
	require.NoError(t, err)
	gpus, version, err := List()
	require.NoError(t, err)
	var uuids []string
	split := false
	for _, g := range gpus {
		uuids = append(uuids, g.UUID)
		split = split || g.MIG
	}
	if !split { // else the driver tells the UUID of a part
		require.Contains(t, uuids, "GPU-"+device.UUIDText())
	}
	t.Logf("result: driver %s, %v", version, gpus)
}

// TestList runs itself with different NVMLs: which one a process has is decided
// when it starts.
func TestList(t *testing.T) {
	if os.Getenv("GPUINFO_PRINT") != "" {
		gpus, driver, err := List()
		t.Log("driver:", driver, "gpus:", gpus, "error:", err)
		return
	}
	for name, c := range map[string]struct {
		flags []string // nil: no NVML at all
		want  string
	}{
		"no driver":        {nil, "error: libnvidia-ml.so.1: cannot open shared object file"},
		"few functions":    {[]string{}, "driver: 580.1.2 gpus: [Fake GPU, GPU-00010203-0405-0607-0809-0a0b0c0d0e0f, 1.5 of 8.0 GiB free] error: <nil>"},
		"split":            {[]string{"-DHAS_MIG"}, "1.5 of 8.0 GiB free, split (MIG)] error: <nil>"},
		"lacks a function": {[]string{"-DLACKS_NAME"}, "error: libnvidia-ml.so.1 lacks nvmlDeviceGetName: want that of driver 450 or newer"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if c.flags != nil {
				args := append(c.flags, "-shared", "-fPIC", filepath.Join("testdata", "nvml.c"), "-o", filepath.Join(folder, Library))
				out, err := exec.Command("gcc", args...).CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
			self := exec.Command(os.Args[0], "-test.run=TestList", "-test.v")
			self.Env = append(os.Environ(), "GPUINFO_PRINT=1", "LD_LIBRARY_PATH="+folder)
			out, err := self.CombinedOutput()
			require.NoError(t, err, "%s", out)
			if c.flags == nil && !strings.Contains(string(out), c.want) {
				t.Skip("this machine has an NVIDIA driver, so that it cannot be shown what happens without one")
			}
			require.Contains(t, string(out), c.want)
		})
	}
}
