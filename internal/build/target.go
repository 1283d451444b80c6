package build

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A target is a processor that we build for.
type target struct {
	arch     string // as Go names it
	compiler string // of C
}

// host is the machine that builds.
func host() target { return target{runtime.GOARCH, compiler()} }

// cross are the processors that Debian and Ubuntu have compilers for, on a machine of another one.
var cross = map[string]struct{ compiler, packages string }{
	"arm64": {"aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"},
}

// targetFor returns the target for a processor that Go knows as arch.
func targetFor(arch string) (target, error) {
	if arch == runtime.GOARCH {
		return host(), nil
	}
	to, ok := cross[arch]
	if !ok {
		return target{}, fmt.Errorf("there is no build for the processor %q on this machine: want %s or arm64", arch, runtime.GOARCH)
	}
	if _, err := exec.LookPath(to.compiler); err != nil {
		return target{}, fmt.Errorf("the C compiler %s was not found: apt-get install %s", to.compiler, to.packages)
	}
	return target{arch, to.compiler}, nil
}

// installFor is the folder with backends/stateful and bin for a target.
func (t *tree) installFor(of target) string {
	if of.arch == runtime.GOARCH {
		return t.path("build", "install")
	}
	return t.path("build", of.arch, "install")
}

// backendFor is the backend's folder as it is copied into Triton's.
func (t *tree) backendFor(of target) string {
	return filepath.Join(t.installFor(of), "backends", "stateful")
}

// buildFor makes everything that a release has, for a target.
func (t *tree) buildFor(of target) error {
	if of.arch == runtime.GOARCH {
		return t.build()
	}
	return t.locked(t.environment, t.models, func() error { return t.libraryFor(of) }, func() error { return t.commandFor(of) })
}

// compiling returns a tree whose commands compile Go and C for a target.
func (t *tree) compiling(of target) *tree {
	return t.with("CGO_ENABLED=1", "GOARCH="+of.arch, "CC="+of.compiler)
}

// wheels are the platforms of packages that PyPI has for a processor, by Go's name of it.
var wheels = map[string][]string{"arm64": {"manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_35_aarch64"}}

// wheel returns the folder in which ONNX Runtime's package for a target is, as pip installs it. That of another processor
// is fetched: pip can unpack it, but Python cannot load it.
func (t *tree) wheel(of target) (string, error) {
	if of.arch == runtime.GOARCH {
		python, err := t.one("build/venv/lib/python3*/site-packages/onnxruntime/capi")
		return filepath.Dir(filepath.Dir(python)), err
	}
	folder := t.path("build", of.arch, "wheels")
	pins, err := t.pins("onnxruntime", serverPackage)
	if err != nil {
		return "", err
	}
	return folder, t.refresh(folder, strings.Join(pins, " "), func() error {
		args := []string{"-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--upgrade", "--no-deps", "--only-binary=:all:", "--target", folder}
		for _, platform := range wheels[of.arch] {
			args = append(args, "--platform", platform)
		}
		return t.run(t.python(), slices.Concat(args, pins)...)
	})
}

// serverPackage is the package of PyPI that has a tritonserver.
const serverPackage = "nvidia-pytriton"

// pins returns the requirements, such as numpy==2.4.6, that pin these packages.
func (t *tree) pins(packages ...string) (found []string, err error) {
	files, err := t.contents("scripts/requirements.txt", "scripts/requirements-nodeps.txt")
	if err != nil {
		return nil, err
	}
	for _, name := range packages {
		_, rest, ok := strings.Cut(files, "\n"+name+"==")
		if !ok {
			return nil, fmt.Errorf("no requirement file pins %s", name)
		}
		number, _, _ := strings.Cut(rest, "\n")
		found = append(found, name+"=="+number)
	}
	return found, nil
}
