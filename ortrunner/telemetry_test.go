package ortrunner

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
)

// TestNothingIsReported: ONNX Runtime's telemetry is off before it has begun. A
// process of its own, because it is decided once, has a home of its own, and none of
// the variables by which ONNX Runtime itself would leave it off.
func TestNothingIsReported(t *testing.T) {
	const home = "STATEFUL_TEST_HOME"
	if os.Getenv(home) != "" {
		runAtHome(t)
		return
	}
	folder := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestNothingIsReported$", "-test.v")
	child.Dir = folder
	child.Env = []string{home + "=" + folder, "HOME=" + folder, "XDG_CACHE_HOME=" + filepath.Join(folder, "cache"), "TMPDIR=" + folder, "STATEFUL_ORT_LIB=" + library(t)}
	for _, name := range []string{"ASAN_OPTIONS", "LSAN_OPTIONS", "LD_LIBRARY_PATH"} {
		if value, set := os.LookupEnv(name); set {
			child.Env = append(child.Env, name+"="+value)
		}
	}
	printed, err := child.CombinedOutput()
	require.NoError(t, err, "%s", printed)
	require.Contains(t, string(printed), "--- PASS: TestNothingIsReported")
	require.NoError(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		require.True(t, path == folder, "%s was written", path)
		return err
	}))
}

// runAtHome loads a model and checks what the process has open, and its memory.
func runAtHome(t *testing.T) {
	path := accumulate(2).Write(t)
	r, err := testRuntime(t).Open(onnx.SessionOptions{Path: path})
	require.NoError(t, err)
	defer r.Close()
	files, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, file := range files {
		name, _ := os.Readlink(file) // the one that was the folder is gone
		require.NotContains(t, name, "socket:")
		require.NotContains(t, name, "onnxruntime.db")
	}
	requireReadOnlyImports(t)
}

// requireReadOnlyImports: what the dynamic linker has made read-only in the library
// still is.
func requireReadOnlyImports(t *testing.T) {
	library, err := elf.Open(process.library)
	require.NoError(t, err)
	defer library.Close()
	var relro *elf.Prog
	for _, part := range library.Progs {
		if part.Type == elf.PT_GNU_RELRO {
			relro = part
		}
	}
	require.NotNil(t, relro)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	var base, seen uint64
	for line := range strings.Lines(string(maps)) {
		var from, to, offset uint64
		var rights string
		if fields := strings.Fields(line); len(fields) < 6 || fields[5] != process.library {
			continue
		}
		_, err := fmt.Sscanf(line, "%x-%x %s %x", &from, &to, &rights, &offset)
		require.NoError(t, err)
		if offset == 0 && base == 0 {
			base = from
		}
		if from -= base; rights == "r--p" && from <= relro.Vaddr && to-base >= relro.Vaddr {
			seen = to - base
		}
	}
	page := uint64(os.Getpagesize())
	require.Equal(t, (relro.Vaddr+relro.Memsz)/page*page, seen)
}
