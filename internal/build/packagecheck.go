package build

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"tritonstateful/internal/release"
)

// checkArchives checks the archives in build/dist as their users will have them: unpacked outside of this tree, next to a
// server of PyPI that has nothing else.
func (t *tree) checkArchives(of target) error {
	outside, err := os.MkdirTemp("", "tritonstateful-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(outside) }()
	for _, b := range bundles(of) {
		if err := release.Unpack(filepath.Join(t.dist(), b.name()+".tar.gz"), outside); err != nil {
			return err
		}
	}
	checks := []step{
		{"content", func() error { return t.checkContent(of, outside) }},
		{"materials", func() error { return t.checkBills(of, outside) }},
		{"python", func() error { return t.checkPython(of, outside) }},
		{"same bytes", func() error { return t.checkSameBytes(of, outside) }},
	}
	if of.arch == runtime.GOARCH {
		unpacked := filepath.Join(outside, bundles(of)[0].name())
		for _, b := range bundles(of) {
			checks = append(checks, step{"smoke test " + b.variant, func() error { return t.smokeTest(b, filepath.Join(outside, b.name())) }})
		}
		checks = append(checks,
			step{"quickstart", func() error { return t.quickstart(bundles(of)[0]) }},
			step{"conformance", func() error { return t.conformance(unpacked, outside) }},
		)
	}
	return t.steps(checks...)
}

// checkContent checks symbols, libraries, glibc, notices, manifests and hashes.
func (t *tree) checkContent(of target, folder string) error {
	secrets, err := t.secrets()
	if err != nil {
		return err
	}
	for _, b := range bundles(of) {
		if err := release.Check(filepath.Join(folder, b.name()), secrets...); err != nil {
			return fmt.Errorf("%s: %w", b.name(), err)
		}
		fmt.Println(b.name(), "is complete")
	}
	return nil
}

// secrets are folders of this machine, which no program of a release may know.
func (t *tree) secrets() ([]string, error) {
	folders, err := t.output("go", "env", "GOMODCACHE", "GOCACHE")
	return append(strings.Fields(folders), t.root), err
}

// releaseTools are what checks archives, and are not needed to build.
const releaseTools = "scripts/release/requirements-checks.txt"

// checkPython checks that programs need no newer Python than images of Ubuntu 22.04 have, which is older than that of the
// build; that for GPUs also runs on RHEL 9.
func (t *tree) checkPython(of target, outside string) error {
	python, err := t.venv("release", releaseTools, "-r", releaseTools)
	if err != nil {
		return err
	}
	for _, b := range bundles(of) {
		folder := filepath.Join(outside, b.name())
		oldest := map[string][]string{"3.10": {filepath.Join(folder, "examples"), filepath.Join(folder, "clients", "python", "src")}}
		if b.variant == "gpu" {
			oldest["3.9"] = []string{filepath.Join(folder, "add_onnxruntime_gpu.py")}
		}
		for version, programs := range oldest {
			args := []string{"--quiet", "--no-tips", "--feature", "union-types", "--target=" + version + "-", "--violations"}
			if err := t.run(filepath.Join(filepath.Dir(python), "vermin"), slices.Concat(args, programs)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkBills checks the bills of materials with the tools of CycloneDX and SPDX.
func (t *tree) checkBills(of target, folder string) error {
	python, err := t.venv("release", releaseTools, "-r", releaseTools)
	if err != nil {
		return err
	}
	for _, b := range bundles(of) {
		if err := t.run(python, t.path("scripts", "release", "check_sbom.py"), filepath.Join(folder, b.name())); err != nil {
			return err
		}
	}
	return nil
}

// venv makes a Python environment of its own in build, with the packages that arguments of pip name; it is made again
// after a change of a file or of the arguments. It returns its interpreter.
func (t *tree) venv(name, file string, packages ...string) (python string, err error) {
	folder := t.path("build", name+"-venv")
	python = filepath.Join(folder, "bin", "python")
	pins, err := t.contents(file)
	if err != nil {
		return "", err
	}
	return python, t.refresh(python, pins+strings.Join(packages, " "), func() error {
		if err := t.run(t.python(), "-m", "venv", "--clear", folder); err != nil {
			return err
		}
		return t.run(python, slices.Concat([]string{"-m", "pip", "--disable-pip-version-check", "install", "--quiet"}, packages)...)
	})
}

// checkSameBytes builds the commit again in another folder, with an empty cache of the compiler, and compares.
func (t *tree) checkSameBytes(of target, outside string) error {
	if strings.HasSuffix(t.commit(), "-dirty") {
		return fmt.Errorf("there are changes that are not committed, and a second build is of the commit: commit them first")
	}
	again := filepath.Join(outside, "another", "folder")
	if err := t.run("git", "clone", "--quiet", t.root, again); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(again, "build", "stamps"), 0o755); err != nil {
		return err
	}
	// The packages of Python are no part of the archives, but for ONNX Runtime, which is copied.
	if err := os.Symlink(t.path("build", "venv"), filepath.Join(again, "build", "venv")); err != nil {
		return err
	}
	const stamp = "build/stamps/build-venv-bin-python"
	if err := copyFile(t.path(stamp), filepath.Join(again, stamp), 0o644); err != nil {
		return err
	}
	other := *t
	other.root = again
	elsewhere := other.with("GOCACHE="+filepath.Join(outside, "cache"), "GOFLAGS=-modcacherw")
	if err := elsewhere.run("go", "run", "build.go", "package", "-arch", of.arch); err != nil {
		return err
	}
	for _, b := range bundles(of) {
		name := b.name() + ".tar.gz"
		first, err := os.ReadFile(filepath.Join(t.dist(), name))
		if err != nil {
			return err
		}
		second, err := os.ReadFile(filepath.Join(other.dist(), name))
		if err != nil {
			return err
		}
		if !bytes.Equal(first, second) {
			return fmt.Errorf("%s is not the same to the byte when it is built in another folder: its %s is %s", name, release.SumsFile, differences(t.path("build", "package", b.name()), other.path("build", "package", b.name())))
		}
		fmt.Println(name, "is the same to the byte")
	}
	return nil
}

// differences are the lines of the hashes of two folders that are not in both.
func differences(a, b string) string {
	first, errA := release.Sums(a)
	second, errB := release.Sums(b)
	if err := cmp.Or(errA, errB); err != nil {
		return err.Error()
	}
	var differ []string
	for line := range strings.Lines(first) {
		if !strings.Contains(second, line) {
			differ = append(differ, strings.TrimSpace(line))
		}
	}
	return "different in " + strings.Join(differ, ", ")
}

// smokeTest runs the smoke test of an unpacked archive with what its own pages say: a server of PyPI, and the packages
// of examples/requirements.txt. The archive for GPUs first gets its ONNX Runtime, which runs the models on the CPU here.
func (t *tree) smokeTest(b bundle, unpacked string) error {
	const needed = "scripts/release/requirements.txt"
	python, err := t.venv("empty-server", needed, "-r", needed)
	if err != nil {
		return err
	}
	server, err := t.pins(serverPackage)
	if err != nil {
		return err
	}
	// Without what pytriton asks for: only its server is used.
	if err := t.run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", server[0]); err != nil {
		return err
	}
	binary, err := t.one("build/empty-server-venv/lib/python3*/site-packages/pytriton/tritonserver/bin/tritonserver")
	if err != nil {
		return err
	}
	if b.variant == "gpu" {
		if err := t.run(python, filepath.Join(unpacked, "add_onnxruntime_gpu.py")); err != nil {
			return err
		}
	}
	// env -i: nothing of this environment helps.
	clean := []string{"-i", "PATH=/usr/bin:/bin", "HOME=" + filepath.Dir(unpacked)}
	if err := t.run("env", slices.Concat(clean, []string{python, filepath.Join(unpacked, "examples", "smoke.py"), "--tritonserver", binary})...); err != nil {
		return err
	}
	return t.run("env", slices.Concat(clean, []string{filepath.Join(unpacked, "bin", commandFile), "check", filepath.Join(unpacked, "examples", "models", "streaming_lstm")})...)
}

// quickstart runs the commands of the quickstart that is in an archive, with that archive and a server of PyPI.
func (t *tree) quickstart(b bundle) error {
	archive := filepath.Join(t.dist(), b.name()+".tar.gz")
	return t.with("ARCHIVE="+archive).run(t.python(), "-m", "pytest", "-q", "scripts/e2e/test_quickstart.py")
}

// conformance are the end-to-end tests of what the backend promises to models and clients. They are in scripts/e2e.
var conformance = []string{
	"batch_axes", "decoders", "direct", "dtypes", "empty_states", "examples", "free", "initial_states", "install", "lifecycle", "masks",
	"nvidia_configs", "nvidia_loading", "nvidia_logs", "nvidia_sequences", "nvidia_storage", "onnxruntime_configs",
	"request_features", "schedulers", "server_api", "state_sources", "state_updates", "streaming_models", "varying_states",
}

// conformance runs those tests in a folder that has them, the archive, and nothing of the source of the backend.
func (t *tree) conformance(unpacked, outside string) error {
	folder := filepath.Join(outside, "conformance")
	if err := os.MkdirAll(filepath.Join(folder, "build"), 0o755); err != nil {
		return err
	}
	links := map[string]string{
		"docs": filepath.Join(unpacked, "docs"), "README.md": filepath.Join(unpacked, "README.md"),
		"build/install": unpacked, "build/venv": t.path("build", "venv"),
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	if err := copyTree(filepath.Join(unpacked, "examples", "models"), filepath.Join(folder, "models")); err != nil {
		return err
	}
	for _, tests := range []string{"scripts", "scripts/e2e", "scripts/drills", "models"} {
		programs, err := filepath.Glob(t.path(tests, "*.py"))
		if err != nil {
			return err
		}
		for _, program := range programs {
			if err := copyFile(program, filepath.Join(folder, tests, filepath.Base(program)), 0o644); err != nil {
				return err
			}
		}
	}
	if err := copyFile(t.path("scripts", "e2e", "pytest.ini"), filepath.Join(folder, "scripts", "e2e", "pytest.ini"), 0o644); err != nil {
		return err
	}
	// Operators and plugins are compiled from sources of this tree.
	args := []string{"-C", folder, filepath.Join(folder, "build", "venv", "bin", "python"), "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile", "-k", "not plugin and not custom_operators"}
	for _, name := range conformance {
		args = append(args, filepath.Join("scripts", "e2e", "test_"+name+".py"))
	}
	return t.run("env", args...)
}
