// Package fakedriver builds a CUDA driver that needs no GPU, for tests. It finds
// what a real device would let pass on a good day; source/driver.cc says how.
package fakedriver

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// sources are what the driver is made of.
var sources = []string{"source/driver.cc", "../driver.h", "../kernels/on_host.h", "../kernels/move.cu", "../kernels/move.h"}

// compiled is the library, made once for each test program.
var compiled = sync.OnceValues(func() ([]byte, error) {
	_, here, _, _ := runtime.Caller(0)
	// go test knows only of the files that Go opens, and would show old results.
	for _, source := range sources {
		if _, err := os.ReadFile(filepath.Join(filepath.Dir(here), source)); err != nil {
			return nil, err
		}
	}
	folder, err := os.MkdirTemp("", "fakedriver")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // a temporary folder
	library := filepath.Join(folder, "libcuda.so.1")
	out, err := exec.Command("g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-Wall", "-fvisibility=default",
		"-x", "c++", filepath.Join(filepath.Dir(here), "source", "driver.cc"), "-o", library).CombinedOutput()
	if err != nil {
		return nil, &compileError{string(out), err}
	}
	return os.ReadFile(library)
})

type compileError struct {
	output string
	err    error
}

func (e *compileError) Error() string { return e.err.Error() + "\n" + e.output }

// Library is the path of a driver of the test's own, which reads its settings
// when it is first used. The settings are FAKE_CUDA_ variables without that
// beginning, such as "MEMORY", "1000000".
func Library(t testing.TB, settings ...string) string {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++, which makes the driver that this test needs: install it (Debian, Ubuntu: apt-get install g++)")
	}
	content, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(settings); i += 2 {
		t.Setenv("FAKE_CUDA_"+settings[i], settings[i+1])
	}
	// A copy of its own: the dynamic linker shares what has the same path.
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
