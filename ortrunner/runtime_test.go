package ortrunner

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/ortrunner/internal/sinktest"
)

// TestNewTwice shares one environment, also under another name of the library.
func TestNewTwice(t *testing.T) {
	first := testRuntime(t)
	link := filepath.Join(t.TempDir(), "linked.so")
	require.NoError(t, os.Symlink(library(t), link))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			second, err := New(Options{Library: link})
			if err != nil || second.Version() != first.Version() {
				t.Errorf("second New: %v", err)
			}
		})
	}
	group.Wait()
	require.Regexp(t, `^1\.\d+\.\d+`, first.Version())
}

// TestOtherLibrary is refused once the process has one.
func TestOtherLibrary(t *testing.T) {
	testRuntime(t)
	other := filepath.Join(t.TempDir(), "other.so")
	require.NoError(t, os.WriteFile(other, nil, 0o644))
	_, err := New(Options{Library: other})
	require.ErrorContains(t, err, "this process already uses")
	require.Equal(t, status.AlreadyExists, status.CodeOf(err))
}

// TestLogSink gives ONNX Runtime's log lines, named after the model, to a C
// function.
func TestLogSink(t *testing.T) {
	rt, err := New(Options{Library: library(t), LogLevel: 3, LogSink: sinktest.Address()})
	require.NoError(t, err)
	sinktest.Take()
	model := accumulate(2)
	r, err := rt.Open(onnx.SessionOptions{Path: model.Write(t), Name: "adder"})
	require.NoError(t, err)
	defer r.Close()
	run := r.(*runner)
	require.Error(t, r.Run([]onnx.Tensor{floats(t, run, []int64{3, 2}, 1, 2, 3, 4, 5, 6), floats(t, run, []int64{2, 2}, 1, 2, 3, 4)}, leftOpen(r)))
	require.Regexp(t, `^3 onnxruntime: adder: .*Add.*\n$`, sinktest.Take())
}

// TestProbeLogsNoError: the failure of a run that may fail is a verbose line, and
// that of the next run is an error again.
func TestProbeLogsNoError(t *testing.T) {
	rt, err := New(Options{Library: library(t), LogLevel: 3, LogSink: sinktest.Address()})
	require.NoError(t, err)
	model := accumulate(2)
	r, err := rt.Open(onnx.SessionOptions{Path: model.Write(t), Name: "adder", IntraOpThreads: 2})
	require.NoError(t, err)
	defer r.Close()
	run := r.(*runner)
	inputs := []onnx.Tensor{floats(t, run, []int64{3, 2}, 1, 2, 3, 4, 5, 6), floats(t, run, []int64{2, 2}, 1, 2, 3, 4)}
	sinktest.Take()
	require.ErrorContains(t, run.Probe(inputs, leftOpen(r)), "Add")
	require.Regexp(t, `^0 onnxruntime: adder: .*Add.*\n$`, sinktest.Take())
	require.Error(t, run.Run(inputs, leftOpen(r)))
	require.Regexp(t, `^3 onnxruntime: adder: .*Add.*\n$`, sinktest.Take())
}

// firstLoad is the environment variable by which this test program is told to
// be the child of TestFirstLoad, and with which fakes.
const firstLoad = "ORTRUNNER_TEST_FIRST_LOAD"

// TestFirstLoad fails to open a library in all ways, in a process of its own that
// has none yet, and then opens a good one there.
func TestFirstLoad(t *testing.T) {
	fakes := os.Getenv(firstLoad)
	if fakes == "" {
		runFirstLoad(t)
		return
	}
	_, err := New(Options{})
	require.ErrorContains(t, err, "onnxruntime library: the path is empty")
	for _, c := range []struct{ library, want string }{
		{"missing.so", "no such file"},
		{"text.so", "invalid ELF header"},
		{"empty.so", "it ends after 0 bytes"},
		{"half.so", "it is truncated: it ends after"},
		{"most.so", "it is truncated: it has"},
		{"other.so", "it has no OrtGetApiBase"},
		{"old.so", "ONNX Runtime 1.20.1 is too old"},
	} {
		_, err := New(Options{Library: filepath.Join(fakes, c.library)})
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, c.library)
	}
	rt, err := New(Options{Library: library(t)})
	require.NoError(t, err)
	r, err := rt.Open(onnx.SessionOptions{Path: accumulate(2).Write(t)})
	require.NoError(t, err)
	r.Close()
}

// runFirstLoad builds the fakes and runs the test in a child.
func runFirstLoad(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text.so"), []byte(strings.Repeat("no library ", 20)), 0o644))
	whole, err := os.ReadFile(library(t))
	require.NoError(t, err)
	for name, size := range map[string]int{"empty.so": 0, "half.so": len(whole) / 2, "most.so": len(whole) - 100} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), whole[:size], 0o644))
	}
	compile(t, filepath.Join(dir, "other.so"), `int answer(void) { return 42; }`)
	compile(t, filepath.Join(dir, "old.so"), `
static const void *get_api(unsigned version) { (void)version; return 0; }
static const char *get_version(void) { return "1.20.1"; }
static const struct { const void *(*get_api)(unsigned); const char *(*get_version)(void); } base = {get_api, get_version};
const void *OrtGetApiBase(void) { return &base; }`)
	child := exec.Command(os.Args[0], "-test.run=^TestFirstLoad$", "-test.v")
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%s", firstLoad, dir))
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestFirstLoad")
}

// compiler is the C compiler for the processor that the tests run on, as Go names it: that of an emulator has another one
// than the machine.
func compiler() string { return cmp.Or(os.Getenv("CC"), "gcc") }

// compile makes a shared library of C.
func compile(t *testing.T, path, source string) {
	t.Helper()
	file := path + ".c"
	require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
	out, err := exec.Command(compiler(), "-shared", "-fPIC", "-o", path, file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
