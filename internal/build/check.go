package build

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// test checks and tests everything. A failed step does not keep the others from
// running, so that one run shows all that is wrong.
func (t *tree) test() error {
	return t.steps(append(t.style(),
		step{name: "build", run: t.buildForTests},
		step{name: "kernels", needsBuild: true, run: t.checkKernels},
		step{name: "pure Go", run: t.testPure},
		step{name: "fuzz", run: t.fuzz},
		step{name: "go test -race", needsBuild: true, run: t.testRace},
		step{name: "go test -asan", needsBuild: true, run: t.testAsan},
		step{name: "go test, UBSan", needsBuild: true, run: t.testUBSan},
		step{name: "load generator", run: t.testLoadGenerator},
		step{name: "cmake", needsBuild: true, run: t.testCMake},
		step{name: "end to end", needsBuild: true, run: t.testEndToEnd},
		step{name: "main job", needsBuild: true, run: t.testMainJob},
	))
}

// lint checks the style alone, with golangci-lint where it is installed.
func (t *tree) lint() error {
	steps := t.style()
	if _, err := exec.LookPath("golangci-lint"); err == nil {
		steps = append(steps, step{name: "golangci-lint", run: t.golangciLint})
	} else {
		fmt.Println("golangci-lint is not installed: .golangci.yaml is not checked")
	}
	return t.steps(steps)
}

// golangciLint looks at both modules, by the rules of the first.
func (t *tree) golangciLint() error {
	load := shell{ctx: t.ctx, dir: t.path("internal", "bench")}
	return errors.Join(
		t.run("golangci-lint", "run"),
		load.run("golangci-lint", "run", "--config", t.path(".golangci.yaml")),
	)
}

func (t *tree) style() []step {
	return []step{
		{name: "format", run: t.checkFormat},
		{name: "vet", run: t.vet},
		{name: "staticcheck", run: t.staticcheck},
	}
}

// checkFormat fails if gofmt would change a file.
func (t *tree) checkFormat() error {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	args := []string{"-l", "build.go"}
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != "build" && !strings.HasPrefix(entry.Name(), ".") {
			args = append(args, entry.Name())
		}
	}
	t.show("gofmt", args)
	unformatted, err := t.output("gofmt", args...)
	if err == nil && unformatted != "" {
		err = fmt.Errorf("gofmt would change %s: run gofmt -w on it", strings.Join(strings.Fields(unformatted), ", "))
	}
	return err
}

func (t *tree) vet() error {
	return errors.Join(
		t.run("go", "vet", "build.go"),
		t.run("go", "vet", "./..."),
		t.run("go", "vet", "-tags", "faults,"+testHooks, "./capi/...", "./ortrunner/..."),
		t.run("go", "-C", "internal/bench", "vet", "./..."),
	)
}

// staticcheck runs the version that internal/tools pins.
func (t *tree) staticcheck() error {
	return errors.Join(
		t.run("go", "tool", "-modfile=internal/tools/go.mod", "staticcheck", "-tags", testHooks, "./..."),
		t.run("go", "-C", "internal/bench", "tool", "-modfile=../tools/go.mod", "staticcheck", "./..."),
	)
}

// checkKernels compiles the device code anew, compares it with what is committed,
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

// testAsan looks for memory that C misuses or never frees.
func (t *tree) testAsan() error {
	// ONNX Runtime throws C++ exceptions. The sanitizer looks for the function that does when the program starts, which
	// is before ONNX Runtime is opened.
	exceptions := []string{"CGO_LDFLAGS=-Wl,--no-as-needed -l:libstdc++.so.6"}
	// The search for leaks itself crashes in every other run after the tests on a simulated GPU, so these do without it.
	const simulated = "^TestSimulatedGPU$"
	return errors.Join(
		t.leakTest(nil, "-skip", simulated, "./capi/..."),
		t.goTest([]string{"ASAN_OPTIONS=detect_leaks=0"}, "-asan", "-run", simulated, "./capi"),
		t.leakTest(exceptions, "./ortrunner/..."),
	)
}

// tracerCrash is what LeakSanitizer prints when its search for leaks crashes by
// itself, as it now and then does while it stops Go's threads.
const tracerCrash = "LeakSanitizer has encountered a fatal error"

// leakTest tests with the address sanitizer. Only LeakSanitizer's own crash is a
// reason to try again: a leak or a misuse fails at once.
func (t *tree) leakTest(env []string, args ...string) (err error) {
	for range 3 {
		var printed string
		tests, failed := t.goTests(env)
		if failed != nil {
			return failed
		}
		if printed, err = tests.runAndRead("go", append([]string{"test", "-tags", testHooks, "-asan"}, args...)...); err == nil || !strings.Contains(printed, tracerCrash) {
			return err
		}
	}
	return err
}

// testUBSan ends a test at the first thing in our C that the language leaves
// undefined: a signed overflow, a misaligned access, a bad shift. One test builds
// the library as it is shipped, for which the flags are wrong.
func (t *tree) testUBSan() error {
	flags := []string{"CGO_CFLAGS=-g -O1 -fsanitize=undefined -fno-sanitize-recover=all", "CGO_LDFLAGS=-fsanitize=undefined"}
	return t.goTest(flags, "-skip", "^TestLibrariesAsTheyAreShipped$", "./capi/...", "./ortrunner/...")
}

// testHooks is the build tag of what only tests may do with the library, such as
// the simulation of a GPU.
const testHooks = "testhooks"

// goTest runs go test with the libraries of the build at hand.
func (t *tree) goTest(env []string, args ...string) error {
	tests, err := t.goTests(env)
	if err != nil {
		return err
	}
	return tests.run("go", append([]string{"test", "-tags", testHooks}, args...)...)
}

// goTests is a shell for go test in which the libraries of the build are named.
func (t *tree) goTests(env []string) (shell, error) {
	triton, err := t.one("build/venv/lib/python3*/site-packages/nvidia_pytriton.libs")
	if err != nil {
		return shell{}, err
	}
	return t.with(append(env, "STATEFUL_ORT_LIB="+filepath.Join(t.installed(), ortFile), "STATEFUL_TRITON_LIB_DIR="+triton)...), nil
}

func (t *tree) testLoadGenerator() error {
	return t.run("go", "-C", "internal/bench", "test", "-race", "./...")
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

func (t *tree) testMainJob() error {
	return t.run(t.python(), "scripts/test.py", "--no-build")
}
