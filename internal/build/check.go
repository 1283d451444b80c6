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
		step{"go test -asan", t.testAsan},
		step{"go test, UBSan", t.testUBSan},
		step{"benchmark tools", t.testBench},
		step{"cmake", t.testCMake},
		step{"end to end", t.testEndToEnd},
		step{"smoke test", t.testSmoke},
	)
}

// testHooks is the build tag of what only tests may do with the library, such as
// the simulation of a GPU.
const testHooks = "testhooks"

// linter is the module of golangci-lint at the version that .golangci.yaml is
// written for.
const linter = "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"

// lint checks both modules by the rules of .golangci.yaml, with a linter that is
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
		t.in(benchModule).run(program, "run", "--config", t.path(".golangci.yaml")),
		t.run(t.path("build", "venv", "bin", "ruff"), "check", "--quiet", "scripts", "models", benchModule),
		t.run(t.path("build", "venv", "bin", "ruff"), "format", "--quiet", "--check", "scripts", "models", benchModule),
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
		"./backend/...", "./statebuffer/...", "./internal/onnxfile/...", "./internal/tensor/...", "./internal/build/...")
}

// testRace tests all packages, those with C against the real libraries.
func (t *tree) testRace() error {
	return t.goTest(nil, "-race", "./...")
}

// shipped is a test that builds the library as it is shipped, for which the flags
// of sanitizers are wrong.
const shipped = "^TestLibrariesAsTheyAreShipped$"

// testAsan looks for memory that C misuses or never frees.
func (t *tree) testAsan() error {
	// ONNX Runtime throws C++ exceptions. The sanitizer looks for the function that does when the program starts, which
	// is before ONNX Runtime is opened.
	exceptions := []string{"CGO_LDFLAGS=-Wl,--no-as-needed -l:libstdc++.so.6"}
	// The search for leaks itself crashes in every other run after the tests on a simulated GPU, so these do without it.
	const simulated = "^TestSimulatedGPU$"
	return errors.Join(
		t.leakTest(exceptions, "-skip", simulated+"|"+shipped, "./capi/..."),
		t.goTest([]string{"ASAN_OPTIONS=detect_leaks=0"}, "-asan", "-run", simulated, "./capi"),
		t.leakTest(exceptions, "./ortrunner/..."),
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

// testUBSan ends a test at the first thing in our C that the language leaves
// undefined: a signed overflow, a misaligned access, a bad shift.
func (t *tree) testUBSan() error {
	flags := []string{"CGO_CFLAGS=-g -O1 -fsanitize=undefined -fno-sanitize-recover=all", "CGO_LDFLAGS=-fsanitize=undefined"}
	return t.goTest(flags, "-skip", shipped, "./capi/...", "./ortrunner/...")
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
// that name the libraries of the build, without which many tests are skipped.
func (t *tree) withLibraries(env ...string) (*tree, error) {
	triton, err := t.one("build/venv/lib/python3*/site-packages/nvidia_pytriton.libs")
	if err != nil {
		return nil, err
	}
	env = append(env, "STATEFUL_ORT_LIB="+filepath.Join(t.installed(), ortFile), "STATEFUL_TRITON_LIB_DIR="+triton)
	return t.with(env...), nil
}

func (t *tree) testBench() error {
	return t.in(benchModule).run("go", "test", "-race", "./...")
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

// testEndToEnd runs the tests that start a real tritonserver.
func (t *tree) testEndToEnd() error {
	return t.run(t.python(), "-m", "pytest", "-q", "scripts/e2e")
}

func (t *tree) testSmoke() error {
	return t.run(t.python(), "scripts/test.py", "--no-build")
}
