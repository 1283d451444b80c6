package build

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// emulator is what runs programs for arm64 on a machine of another kind.
const emulator = "qemu-aarch64-static"

// processors is what /proc/cpuinfo has on a server with two cores (Neoverse N1, as in Graviton2): the emulator shows that
// of this machine, of which ONNX Runtime can make nothing.
const processors = `processor	: %d
BogoMIPS	: 243.75
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x3
CPU part	: 0xd0c
CPU revision	: 1

`

// arm64 builds and tests the archive for arm64 on a machine of another kind, with an emulator: the pure-Go and C tests, the
// command, and the smoke test in a real tritonserver for arm64.
func (t *tree) arm64() error {
	of, err := targetFor("arm64")
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(emulator); err != nil {
		return fmt.Errorf("the emulator %s was not found: apt-get install qemu-user-static", emulator)
	}
	if err := t.buildFor(of); err != nil {
		return err
	}
	if err := t.archives(bundles(of)); err != nil {
		return err
	}
	run, err := t.emulated(of)
	if err != nil {
		return err
	}
	wheel, err := t.wheel(of)
	if err != nil {
		return err
	}
	unpacked := t.path("build", "package", bundles(of)[0].name())
	emulated := t.compiling(of).with(
		"STATEFUL_ORT_LIB="+filepath.Join(t.backendFor(of), ortFile),
		"STATEFUL_TRITON_LIB_DIR="+filepath.Join(wheel, "nvidia_pytriton.libs"))
	goTest := []string{"test", "-timeout=30m", "-exec=" + run + "-test"}
	return t.steps(
		step{"content", func() error { return t.checkContent(of, filepath.Dir(unpacked)) }},
		step{"pure Go", func() error { return emulated.with("CGO_ENABLED=0").run("go", slices.Concat(goTest, emulatedPure)...) }},
		step{"C", func() error {
			return emulated.run("go", slices.Concat(goTest, []string{skipNotEmulated()}, emulatedC)...)
		}},
		step{"command", func() error {
			return t.run(run, filepath.Join(unpacked, "bin", commandFile), "check", filepath.Join(unpacked, "examples", "models", "streaming_lstm"))
		}},
		step{"smoke test", func() error {
			server := run + "-tritonserver"
			script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", run, filepath.Join(wheel, "pytriton", "tritonserver", "bin", "tritonserver"))
			if err := os.WriteFile(server, []byte(script), 0o755); err != nil {
				return err
			}
			return t.run(t.python(), filepath.Join(unpacked, "examples", "smoke.py"), "--tritonserver", server, "--timeout", "300")
		}},
	)
}

// emulatedPure and emulatedC are the tests that run under the emulator.
var (
	emulatedPure = []string{"./internal/tensor", "./internal/onnxfile", "./internal/status", "./statebuffer",
		"./backend/checkpoint", "./backend/config", "./backend/plan/..."}
	emulatedC = []string{"./ortrunner", "./capi"}
)

// notEmulated are those of emulatedC that are left out, and why.
var notEmulated = []struct{ why, test string }{
	{"it needs a fake CUDA driver that g++ compiles for this machine", "TestSignals"},
	{"it ends after two minutes, which can be too few", "TestHostileFiles"},
	{"it measures the memory of the process, of which the emulator is a part", "TestTrim"},
}

// skipNotEmulated prints the tests that are left out, and returns the option of go test for that.
func skipNotEmulated() string {
	var names []string
	for _, left := range notEmulated {
		fmt.Printf("left out: %s: %s\n", left.test, left.why)
		names = append(names, left.test)
	}
	return "-skip=^(" + strings.Join(names, "|") + ")$"
}

// emulated makes a program that runs those for arm64, and what they need of a system, in build/arm64. It returns its path. With
// "-test" it is one for go test -exec, whose programs can start themselves again: their first argument is a script.
func (t *tree) emulated(of target) (string, error) {
	folder := t.path("build", of.arch)
	system, libraries, program := filepath.Join(folder, "system"), filepath.Join(folder, "libraries"), filepath.Join(folder, "run")
	if err := os.MkdirAll(filepath.Join(system, "proc"), 0o755); err != nil {
		return "", err
	}
	info := fmt.Sprintf(processors, 0) + fmt.Sprintf(processors, 1)
	if err := os.WriteFile(filepath.Join(system, "proc", "cpuinfo"), []byte(info), 0o644); err != nil {
		return "", err
	}
	const crossLibraries = "/usr/aarch64-linux-gnu/lib" // of libc6-dev-arm64-cross
	lib := filepath.Join(system, "lib")
	if err := os.RemoveAll(lib); err != nil {
		return "", err
	}
	if err := os.Symlink(crossLibraries, lib); err != nil {
		return "", err
	}
	if err := t.refresh(libraries, "zlib1g", func() error { return t.debianLibrary(of, "zlib1g", libraries) }); err != nil {
		return "", err
	}
	command := fmt.Sprintf("exec %s -cpu neoverse-n1 -L %s -E LD_LIBRARY_PATH=%s", emulator, system, libraries)
	script := fmt.Sprintf("#!/bin/sh\n%s \"$@\"\n", command)
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		return "", err
	}
	// The kernel cannot run a program for arm64 that a test starts: so it is told another name of its own, that of a script.
	script = fmt.Sprintf(`#!/bin/sh
program=$1
shift
cat > "$program.again" <<END
#!/bin/sh
%s -0 "$program.again" "$program" "\$@"
END
chmod +x "$program.again"
exec "$program.again" "$@"
`, command)
	return program, os.WriteFile(program+"-test", []byte(script), 0o755)
}

// debianLibrary copies the libraries of a package of Debian for another processor into a folder: tritonserver needs libz, which is
// not in its wheel. Nothing is installed.
func (t *tree) debianLibrary(of target, name, to string) error {
	work := t.path("build", of.arch, "debian")
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	var options []string
	for option, value := range map[string]string{"Dir::State::lists": "lists", "Dir::Cache": "cache"} {
		if err := os.MkdirAll(filepath.Join(work, value, "partial"), 0o755); err != nil {
			return err
		}
		options = append(options, "-o", option+"="+filepath.Join(work, value))
	}
	options = append(options, "-o", "APT::Architecture="+of.arch, "-o", "APT::Architectures::="+of.arch, "-o", "Dir::State::status=/dev/null",
		"-o", "APT::Sandbox::User=root")
	if err := t.run("apt-get", slices.Concat(options, []string{"--quiet=2", "update"})...); err != nil {
		return err
	}
	relative, err := filepath.Rel(t.root, work)
	if err != nil {
		return err
	}
	if err := t.in(relative).run("apt-get", slices.Concat(options, []string{"--quiet=2", "download", name})...); err != nil {
		return err
	}
	archive, err := onlyMatch(filepath.Join(work, name+"_*.deb"))
	if err != nil {
		return err
	}
	if err := t.run("dpkg", "-x", archive, filepath.Join(work, "files")); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(work, "files", "*", "*", "lib*.so.*"))
	if err != nil {
		return err
	}
	for _, library := range found {
		if strings.Count(filepath.Base(library), ".") > 2 {
			continue // what the link with the short name leads to
		}
		if err := copyFile(library, filepath.Join(to, filepath.Base(library)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
