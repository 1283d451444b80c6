package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// requirements are the pins of the virtual environment, with pip's options.
var requirements = [][]string{
	{"-r", "scripts/requirements.txt", "-c", "scripts/constraints.txt"},
	{"--no-deps", "-r", "scripts/requirements-nodeps.txt"},
}

// python is the interpreter of the virtual environment.
func (t *Tree) python() string { return t.path("build", "venv", "bin", "python") }

// venv makes the virtual environment, anew whenever the pins change.
func (t *Tree) venv() error {
	want, err := t.pins()
	if err != nil {
		return err
	}
	dir := t.path("build", "venv")
	stamp := filepath.Join(dir, "pins")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == want {
		return nil
	}
	if err := t.checkPython(); err != nil {
		return err
	}
	fmt.Println("making build/venv: tritonserver, its client and ONNX Runtime (about 500 MB, once)")
	if err := t.command("python3", "-m", "venv", "--clear", dir).run(); err != nil {
		return fmt.Errorf("%w\nthe venv module of Python may be missing; on Debian and Ubuntu: apt-get install python3-venv", err)
	}
	for _, r := range requirements {
		pip := append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, r...)
		if err := t.command(t.python(), pip...).run(); err != nil {
			return fmt.Errorf("%w\nif a package was not found, check that pip reaches its package index and that Python is 3.11 or later", err)
		}
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

func (t *Tree) checkPython() error {
	const script = `import sys; sys.exit(sys.version_info < (3, 11))`
	if err := t.command("python3", "-c", script).run(); err != nil {
		return fmt.Errorf("python3 must be 3.11 or later, because the pinned ONNX Runtime needs it: %w", err)
	}
	return nil
}

// pins is a digest of everything that decides what is installed.
func (t *Tree) pins() (string, error) {
	sum := sha256.New()
	for _, name := range []string{"requirements.txt", "constraints.txt", "requirements-nodeps.txt"} {
		text, err := os.ReadFile(t.path("scripts", name))
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// inPackages finds the one file or folder in the virtual environment's packages
// that matches a pattern.
func (t *Tree) inPackages(pattern string) (string, error) {
	found, err := filepath.Glob(t.path("build", "venv", "lib", "python3*", "site-packages", pattern))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("want one %s in build/venv, found %d: remove build/venv and try again", pattern, len(found))
	}
	return found[0], nil
}
