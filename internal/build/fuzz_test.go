package build

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryFuzzTargetIsFuzzed, and keeps inputs of its own in testdata/fuzz.
func TestEveryFuzzTargetIsFuzzed(t *testing.T) {
	root := filepath.Join("..", "..")
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	var found []fuzzTarget
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && filepath.Dir(path) == root && entry.Name() == "build":
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range target.FindAllStringSubmatch(string(text), -1) {
			folder, _ := filepath.Rel(root, filepath.Dir(path))
			kept, _ := filepath.Glob(filepath.Join(root, folder, "testdata", "fuzz", match[1], "*"))
			require.NotEmpty(t, kept, "%s of %s has no inputs in testdata/fuzz", match[1], folder)
			found = append(found, fuzzTarget{folder: folder, name: match[1]})
		}
		return err
	}))
	var fuzzed []fuzzTarget
	for _, f := range fuzzTargets {
		require.Positive(t, f.inputs, f.name)
		require.FileExists(t, filepath.Join(root, f.module, "go.mod"))
		fuzzed = append(fuzzed, fuzzTarget{folder: filepath.Join(f.module, f.folder), name: f.name})
	}
	require.ElementsMatch(t, found, fuzzed)
}
