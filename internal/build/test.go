package build

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pure are the packages without C; they are also tested with cgo off.
var pure = []string{"./internal/tensor/...", "./statebuffer/...", "./backend/..."}

// nested are modules of their own, so that what they need stays out of go.mod.
var nested = []string{"internal/bench"}

// step is one part of a verb, timed and named in its summary.
type step struct {
	name string
	run  func() error
}

// steps runs all steps, also after a failure, and sums up. It fails if one did.
func steps(all []step) error {
	var failed []string
	var summary strings.Builder
	for _, s := range all {
		fmt.Printf("\n=== %s\n", s.name)
		start := time.Now()
		result := "passed"
		if err := s.run(); err != nil {
			fmt.Println("error:", err)
			result = "FAILED"
			failed = append(failed, s.name)
		}
		fmt.Fprintf(&summary, "  %-28s %s in %v\n", s.name, result, time.Since(start).Round(100*time.Millisecond))
	}
	fmt.Printf("\n%s\n%d passed, %d failed\n", summary.String(), len(all)-len(failed), len(failed))
	if len(failed) > 0 {
		return errors.New("failed: " + strings.Join(failed, ", "))
	}
	return nil
}

// Test builds and runs every test.
func (t *Tree) Test() error {
	if err := t.Build(); err != nil {
		return err
	}
	python := func(args ...string) func() error {
		return func() error { return t.command(t.python(), args...).run() }
	}
	all := t.lintSteps()
	all = append(all,
		step{"pure Go, without cgo", t.pureTests},
		step{"Go, with the race detector", t.raceTests},
		step{"C, with the address sanitizer", t.asanTests},
		step{"nested modules", t.nestedTests},
		step{"library that fails on request", func() error { return t.install(t.path("build", "faults"), "faults") }},
		step{"install by CMake", t.cmakeTest},
		step{"real tritonserver", python("-m", "pytest", "-q", "-x", "scripts/e2e")},
		step{"main job, scripts/test.py", python("scripts/test.py", "--sequences", "16", "--steps", "6")},
	)
	return steps(all)
}

// Lint checks formatting and runs the static checks.
func (t *Tree) Lint() error { return steps(t.lintSteps()) }

func (t *Tree) lintSteps() []step {
	return []step{
		{"gofmt", t.gofmt},
		{"go vet", func() error { return t.inModules("vet", "./...") }},
		{"staticcheck", t.staticcheck},
	}
}

func (t *Tree) gofmt() error {
	var out bytes.Buffer
	c := t.command("gofmt", "-l", "backend", "capi", "internal", "models", "ortrunner", "scripts", "statebuffer", "build.go")
	c.Stdout = &out
	if err := c.run(); err != nil {
		return err
	}
	if out.Len() > 0 {
		return fmt.Errorf("not formatted:\n%s", out.String())
	}
	return nil
}

// staticcheck is pinned in a module of its own.
func (t *Tree) staticcheck() error {
	tool := t.path("build", "staticcheck")
	if err := t.command("go", "build", "-o", tool, "honnef.co/go/tools/cmd/staticcheck").in(t.path("internal", "tools")).run(); err != nil {
		return err
	}
	if err := t.command(tool, "./...").run(); err != nil {
		return err
	}
	for _, dir := range nested {
		if err := t.command(tool, "./...").in(t.path(dir)).run(); err != nil {
			return err
		}
	}
	return nil
}

// inModules runs a go command in the main module and in the nested ones.
func (t *Tree) inModules(args ...string) error {
	for _, dir := range append([]string{"."}, nested...) {
		if err := t.command("go", args...).in(t.path(dir)).run(); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tree) pureTests() error {
	return t.command("go", append([]string{"test"}, pure...)...).env("CGO_ENABLED=0").run()
}

func (t *Tree) raceTests() error { return t.goTest("-race", "./...") }

// asanTests also report memory that C did not free.
func (t *Tree) asanTests() error { return t.goTest("-asan", "./capi/...", "./ortrunner/...") }

// goTest tests with the libraries of the virtual environment at hand.
func (t *Tree) goTest(args ...string) error {
	triton, err := t.inPackages("nvidia_pytriton.libs")
	if err != nil {
		return err
	}
	return t.command("go", append([]string{"test"}, args...)...).env(
		"STATEFUL_ORT_LIB="+t.path("build", "install", backendDir, runtimeFile),
		"STATEFUL_TRITON_LIB_DIR="+triton).run()
}

func (t *Tree) nestedTests() error {
	for _, dir := range nested {
		if err := t.command("go", "test", "./...").in(t.path(dir)).run(); err != nil {
			return err
		}
	}
	return nil
}

// cmakeTest installs by CMake into a fresh prefix and compares the trees.
func (t *Tree) cmakeTest() error {
	if _, err := exec.LookPath("cmake"); err != nil {
		fmt.Println("skipped: cmake is not installed")
		return nil
	}
	work, err := os.MkdirTemp("", "stateful-cmake-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	build, prefix := filepath.Join(work, "build"), filepath.Join(work, "prefix")
	for _, args := range [][]string{
		{"-S", t.root, "-B", build, "-DCMAKE_INSTALL_PREFIX=" + prefix}, {"--build", build}, {"--install", build},
	} {
		if err := t.command("cmake", args...).run(); err != nil {
			return err
		}
	}
	for _, name := range []string{loaderFile, goFile, runtimeFile} {
		if err := t.command("cmp", t.path("build", "install", backendDir, name), filepath.Join(prefix, backendDir, name)).run(); err != nil {
			return err
		}
	}
	return nil
}
