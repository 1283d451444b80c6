package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/release"
	"tritonstateful/internal/status"
	"tritonstateful/internal/triton"
)

// libcFamily is all that may be needed at run time: a backend is copied to
// machines that have nothing else.
var libcFamily = []string{"libc.so.6", "libdl.so.2", "libpthread.so.0", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

// compiler is the C compiler for the processor that the tests run on, which an emulator can make another one.
func compiler() string { return cmp.Or(os.Getenv("CC"), "gcc") }

// run runs a compiler.
func run(t *testing.T, command string, arguments ...string) {
	t.Helper()
	output, err := exec.Command(command, arguments...).CombinedOutput()
	require.NoError(t, err, string(output))
}

// buildLoader makes the library that Triton opens, alone in a folder.
func buildLoader(t *testing.T) (path string) {
	path = filepath.Join(t.TempDir(), "libtriton_stateful.so")
	run(t, compiler(), "-Wall", "-Werror", "-shared", "-fPIC", "-o", path, "loader/loader.c", "-ldl")
	return path
}

// TestLibrariesAsTheyAreShipped looks at the files of the install tree.
func TestLibrariesAsTheyAreShipped(t *testing.T) {
	folder := filepath.Dir(builtORT(t))
	for _, name := range []string{"libtriton_stateful_go.so", "libtriton_stateful.so"} {
		path := filepath.Join(folder, name)
		file, err := elf.Open(path)
		require.NoError(t, err)
		defer file.Close()
		require.Equal(t, release.EntryPoints, defined(t, file), path)
		needed, err := file.ImportedLibraries()
		require.NoError(t, err)
		for _, name := range needed {
			require.Contains(t, libcFamily, name, path)
		}
	}
	t.Run("ONNX Runtime", func(t *testing.T) {
		file, err := elf.Open(builtORT(t))
		require.NoError(t, err)
		defer file.Close()
		names, err := file.DynString(elf.DT_SONAME)
		require.NoError(t, err)
		require.Equal(t, []string{ortLibrary}, names, "who needs libonnxruntime.so.1 would get ours")
	})
}

// defined are the functions that a library exports.
func defined(t *testing.T, file *elf.File) []string {
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	var names []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// names finds the functions of Triton that a header names.
func names(header, pattern string) []string {
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(header, -1) {
		if !slices.Contains(release.EntryPoints, match[1]) {
			found = append(found, match[1])
		}
	}
	slices.Sort(found)
	return found
}

// tableNames are the functions that table.h looks up.
func tableNames(t *testing.T) []string {
	header, err := os.ReadFile("table.h")
	require.NoError(t, err)
	return names(string(header), `(?:REQUIRED|OPTIONAL)\((TRITON\w+)\)`)
}

func TestTableHasAllDeclaredFunctions(t *testing.T) {
	declared := names(triton.Header, `(?m)^[A-Za-z][^/\n]*?\*?\b(TRITON(?:SERVER|BACKEND)_\w+)\(`)
	require.Equal(t, declared, tableNames(t))
}

// TestRealTritonHasAllFunctions proves that every name in the table is one of a
// real server's.
func TestRealTritonHasAllFunctions(t *testing.T) {
	const variable = "STATEFUL_TRITON_LIB_DIR"
	folder := os.Getenv(variable)
	if folder == "" {
		t.Skipf("%s is not set: want the folder of libtritonserver*.so", variable)
	}
	found, err := filepath.Glob(filepath.Join(folder, "libtritonserver*.so"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	file, err := elf.Open(found[0])
	require.NoError(t, err)
	defer file.Close()
	require.Subset(t, defined(t, file), tableNames(t))
}

// throughLoader returns TRITONBACKEND_Initialize through a loader, and the library that it opens.
func throughLoader(t *testing.T) (initialize func() error, next string) {
	t.Helper()
	faketriton.Reset()
	b := faketriton.NewBackend("{}")
	t.Cleanup(b.Delete)
	loader := buildLoader(t)
	return func() error { return b.InitializeThrough(loader) }, filepath.Join(filepath.Dir(loader), "libtriton_stateful_go.so")
}

func TestLoaderTellsWhatIsWrongWithTheGoLibrary(t *testing.T) {
	initialize, next := throughLoader(t)

	failed(t, initialize(), status.Unavailable, next+": cannot open shared object file")
	require.NoError(t, os.WriteFile(next, []byte(strings.Repeat("text", 20)), 0o644))
	failed(t, initialize(), status.Unavailable, next+": invalid ELF header")
	run(t, compiler(), "-shared", "-o", next, "-xc", "/dev/null")
	failed(t, initialize(), status.Unavailable, next+" has no function TRITONBACKEND_")
}

// TestLoaderRefusesPartOfALibrary: dlopen would end the process with SIGBUS.
func TestLoaderRefusesPartOfALibrary(t *testing.T) {
	initialize, next := throughLoader(t)
	run(t, compiler(), "-shared", "-o", next, "-xc", "/dev/null")
	whole, err := os.ReadFile(next)
	require.NoError(t, err)
	for _, size := range []int{0, 3, 63, 64, 100, 4096, len(whole) / 2, len(whole) - 1} {
		require.NoError(t, os.WriteFile(next, whole[:size], 0o644))
		failed(t, initialize(), status.Unavailable,
			fmt.Sprintf("%s is truncated: it has %d of at least ", next, size))
	}
	require.NoError(t, os.WriteFile(next, whole, 0o644))
	failed(t, initialize(), status.Unavailable, next+" has no function TRITONBACKEND_")
}

// TestLoaderHandsOn opens the loader over a library in C whose functions return
// their names.
func TestLoaderHandsOn(t *testing.T) {
	initialize, next := throughLoader(t)
	source := "extern void *TRITONSERVER_ErrorNew(int, const char *);\n"
	for _, name := range release.EntryPoints {
		source += "void *" + name + `(void) { return TRITONSERVER_ErrorNew(3, "this is ` + name + `"); }` + "\n"
	}
	file := filepath.Join(t.TempDir(), "names.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
	run(t, compiler(), "-shared", "-fPIC", "-o", next, file)
	failed(t, initialize(), status.InvalidArg, "this is TRITONBACKEND_Initialize")
}
