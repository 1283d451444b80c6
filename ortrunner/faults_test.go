package ortrunner

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// The environment of the child: the real library, and the file that tells the
// faulty one in front of it what to do.
const (
	faultyLibrary = "FAULTY_ORT_LIBRARY"
	faultyControl = "FAULTY_ORT_CONTROL"
)

// TestEveryCallFailsOnce makes the n-th call of ONNX Runtime's API fail, for every
// n of the life of two sessions: the error is returned, nothing crashes, and what comes
// after works. A child does it, because a process has one ONNX Runtime for good;
// with go test -asan it also reports every byte that a failure leaks.
func TestEveryCallFailsOnce(t *testing.T) {
	sound := library(t)
	folder := t.TempDir()
	faulty, control := filepath.Join(folder, "libfaultyort.so"), filepath.Join(folder, "control")
	source, err := filepath.Abs("testdata/faultyort.c")
	require.NoError(t, err)
	gcc := exec.Command(compiler(), "-std=gnu11", "-Wall", "-Werror", "-Wno-cast-function-type", "-fvisibility=hidden", "-fPIC", "-shared", "-o", faulty, source)
	output, err := gcc.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.NoError(t, os.WriteFile(control, make([]byte, 16), 0o600))
	child := exec.Command(os.Args[0], "-test.run=^TestEveryCallFailsOnceChild$", "-test.v")
	child.Env = append(os.Environ(), faultyLibrary+"="+sound, faultyControl+"="+control, "STATEFUL_ORT_LIB="+faulty)
	output, err = child.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "the life has ")
}

// TestEveryCallFailsOnceChild is the other process.
func TestEveryCallFailsOnceChild(t *testing.T) {
	path := os.Getenv(faultyControl)
	if path == "" {
		t.Skip("runs as a child of TestEveryCallFailsOnce only")
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	control, err := syscall.Mmap(int(file.Fd()), 0, 16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	require.NoError(t, err)
	failAt := func(n uint64) {
		binary.NativeEndian.PutUint64(control, n)
		binary.NativeEndian.PutUint64(control[8:], 0)
	}
	rt := testRuntime(t)
	sums, words := accumulate(3).Write(t), stringIdentity().Write(t)
	require.Empty(t, lifeOfSessions(t, rt, sums, words))
	for n := uint64(1); ; n++ {
		failAt(n)
		errs := lifeOfSessions(t, rt, sums, words)
		if binary.NativeEndian.Uint64(control[8:]) < n {
			require.Greater(t, n, uint64(60), "the life is too short to mean much")
			fmt.Println("the life has", n-1, "calls")
			break
		}
		for _, err := range errs {
			require.ErrorContains(t, err, "injected failure of ", "call %d", n)
			require.Equal(t, 1, strings.Count(err.Error(), "injected"), "call %d: %v", n, err)
		}
		require.LessOrEqual(t, len(errs), 1, "errors when call %d failed: %v", n, errs)
	}
	failAt(0)
	require.Empty(t, lifeOfSessions(t, rt, sums, words))
}

// lifeOfSessions loads, runs and closes two models, and returns what went wrong.
func lifeOfSessions(t *testing.T, rt *Runtime, sums, words string) (errs []error) {
	note := func(err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	}
	if opened, err := rt.Open(onnx.SessionOptions{Path: sums, Name: "sums", IntraOpThreads: 1}); note(err) {
		r := opened.(*runner)
		shape := tensor.Shape{2, 3}
		x, y := floats(t, r, shape, 1, 2, 3, 4, 5, 6), zeros(t, r, tensor.FP32, shape)
		for range 3 { // what failed once works the next time
			out := []onnx.Tensor{y, {DType: tensor.FP32}} // one output in our memory, one in theirs
			if note(r.Run([]onnx.Tensor{x, x}, out)) {
				require.Equal(t, []float32{4, 8, 12, 16, 20, 24}, elements[float32](t, y))
				require.Equal(t, []float32{2, 4, 6, 8, 10, 12}, elements[float32](t, out[1]))
			}
		}
		another, err := r.Share()
		require.NoError(t, err, "it asks nothing of ONNX Runtime")
		r.Close()
		x = floats(t, another.(*runner), shape, 1, 2, 3, 4, 5, 6)
		note(another.Run([]onnx.Tensor{x, x}, leftOpen(another)))
		another.Close()
	}
	if opened, err := rt.Open(onnx.SessionOptions{Path: words, IntraOpThreads: 1}); note(err) {
		r := opened.(*runner)
		data := serialize("one", "", "three")
		x := onnx.Tensor{Data: blockOf(t, r, data), DType: tensor.Bytes, Shape: tensor.Shape{1, 3}}
		for range 2 {
			out := leftOpen(r)
			if note(r.Run([]onnx.Tensor{x}, out)) {
				require.Equal(t, data, out[0].Data.Bytes)
			}
		}
		r.Close()
	}
	return errs
}
