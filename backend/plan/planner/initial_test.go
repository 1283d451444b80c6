package planner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInitialFilesStayInside: a name or a link that leads out of the folder
// initial_state is an error, in a value and in a file.
func TestInitialFilesStayInside(t *testing.T) {
	model := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	folder := filepath.Join(model, "initial_state")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "sub"), 0o755))
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(model, "config.pbtxt"), []byte("config"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "good"), []byte("good"), 0o644))
	require.NoError(t, os.Symlink("good", filepath.Join(folder, "link")))
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "absolute")))
	require.NoError(t, os.Symlink("../config.pbtxt", filepath.Join(folder, "relative")))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(folder, "folder")))
	read := initialFiles(model)
	for _, name := range []string{"good", "link", "sub/../good", "./good"} {
		data, err := read(name)
		require.NoError(t, err, name)
		require.Equal(t, "good", string(data))
	}
	for _, name := range []string{
		"../config.pbtxt", "sub/../../config.pbtxt", outside, "absolute", "relative", "folder/secret", "", ".", "sub", "nothing", "good/more", "a\x00b",
	} {
		data, err := read(name)
		require.Error(t, err, name)
		require.Empty(t, data, name)
	}
	_, err := initialFiles(filepath.Join(model, "elsewhere"))("good")
	require.ErrorContains(t, err, "the model's folder initial_state")
}
