package build

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClean removes what is built, and leaves what is in the repository.
func TestClean(t *testing.T) {
	root := t.TempDir()
	write := func(path string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	for _, path := range []string{"build/venv/x", "models/a/1/model.onnx", "models/a/initial_state/mean.bin", "models/a/config.pbtxt", "models/generate.py"} {
		write(path)
	}
	require.NoError(t, newTree(context.Background(), root).clean())
	var left []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			path, err = filepath.Rel(root, path)
			left = append(left, path)
		}
		return err
	}))
	require.Equal(t, []string{"models/a/config.pbtxt", "models/generate.py"}, left)
	require.NoDirExists(t, filepath.Join(root, "models", "a", "initial_state"))
}
