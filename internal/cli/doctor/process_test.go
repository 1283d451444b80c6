package doctor

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// loader is a server that has nothing but libraries.
const loader = `
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++)
		if (!dlopen(argv[i], RTLD_NOW)) { puts(dlerror()); return 1; }
	puts("loaded");
	fflush(stdout);
	pause();
}
`

// library stands for a build of ONNX Runtime with telemetry. dlopen is of glibc 2.34.
const library = `
#include <dlfcn.h>
const char *telemetry = "ORT_DISABLE_TELEMETRY";
void *open_it(void) { return dlopen(0, RTLD_NOW); }
`

func compile(t *testing.T, source, to string, args ...string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
	file := filepath.Join(t.TempDir(), "source.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	out, err := exec.CommandContext(t.Context(), "gcc", append([]string{file, "-o", to}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// running is the subject of a process that has loaded these libraries.
func running(t *testing.T, names ...string) *Subject {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "tritonserver")
	compile(t, loader, program)
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
		compile(t, library, paths[len(paths)-1], "-shared", "-fPIC")
	}
	process := exec.CommandContext(t.Context(), program, paths...)
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	line, _ := bufio.NewReader(out).ReadString('\n')
	require.Equal(t, "loaded\n", line)
	s := &Subject{}
	require.NoError(t, s.LookAtProcess(process.Process.Pid))
	require.NotNil(t, s.Libc)
	require.Equal(t, program, s.Commands[0].Args[0])
	return s
}

// oldLibc is a C library that has no later symbols than those of 2.17, as that of CentOS 7.
func oldLibc(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	versions := filepath.Join(dir, "versions")
	require.NoError(t, os.WriteFile(versions, []byte("GLIBC_2.2.5 { global: a; local: *; };\nGLIBC_2.17 { global: b; } GLIBC_2.2.5;\nGLIBC_PRIVATE { global: c; } GLIBC_2.17;\n"), 0o600))
	path := filepath.Join(dir, "libc.so.6")
	compile(t, "void a(void) {} void b(void) {} void c(void) {}", path, "-shared", "-fPIC", "-nostdlib", "-Wl,--version-script="+versions)
	return path
}
