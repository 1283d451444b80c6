package build

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// interpreter writes a program that answers our questions as a Python would.
func interpreter(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	return path
}

func TestPythonFault(t *testing.T) {
	for name, test := range map[string]struct{ script, fault string }{
		"usable":    {`case "$2" in *version*) echo 3 12;; esac`, ""},
		"too old":   {`echo 3 10`, "is 3.10"},
		"ancient":   {`echo "(2, 7)"`, "does not tell its version"},
		"no venv":   {`case "$2" in *venv*) exit 1;; esac; echo 3 12`, "has no venv module"},
		"shim only": {`exit 127`, "is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t.Context(), t.TempDir())
			require.Equal(t, test.fault, tree.pythonFault(interpreter(t, test.script)))
		})
	}
}

func TestFindPythonTakesTheOneThatWasNamed(t *testing.T) {
	named := interpreter(t, `case "$2" in *version*) echo 3 13;; esac`)
	t.Setenv("PYTHON", named)
	found, err := newTree(t.Context(), t.TempDir()).findPython()
	require.NoError(t, err)
	require.Equal(t, named, found)
}

func TestFindPythonSaysWhatToDo(t *testing.T) {
	t.Setenv("PYTHON", "no-such-python")
	_, err := newTree(t.Context(), t.TempDir()).findPython()
	require.ErrorContains(t, err, "no-such-python is not there; install Python 3.11 or newer")
}
