package build

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/version"
)

// TestPagesNameTestsThatExist looks for `package.TestName` and
// `scripts/file.py::test_name` in README.md and docs, and for every fuzz target
// in docs/reliability.md.
func TestPagesNameTestsThatExist(t *testing.T) {
	root := filepath.Join("..", "..")
	exist := testNames(t, root)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	named := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile("`([a-z]+\\.(?:Test|Fuzz|Benchmark)\\w+|scripts/\\S+\\.py::test_\\w+)`").FindAllSubmatch(text, -1) {
			require.NotEmpty(t, exist[string(name[1])], "%s names %s, which does not exist", page, name[1])
			named++
		}
	}
	require.Greater(t, named, 100)
	reliability, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	require.NoError(t, err)
	for _, target := range fuzzTargets {
		require.True(t, strings.Contains(string(reliability), "."+target.name+"`"), "docs/reliability.md does not name %s", target.name)
	}
}

// TestEveryFuzzTargetIsFuzzed, and keeps inputs of its own in testdata/fuzz.
func TestEveryFuzzTargetIsFuzzed(t *testing.T) {
	root := filepath.Join("..", "..")
	var listed, found []string
	for _, f := range fuzzTargets {
		listed = append(listed, filepath.Join(f.folder, f.name))
	}
	for name, folder := range testNames(t, root) {
		if _, target, isGo := strings.Cut(name, ".Fuzz"); isGo {
			kept, _ := filepath.Glob(filepath.Join(root, folder, "testdata", "fuzz", "Fuzz"+target, "*"))
			require.NotEmpty(t, kept, "%s has no inputs in testdata/fuzz", name)
			found = append(found, filepath.Join(folder, "Fuzz"+target))
		}
	}
	require.ElementsMatch(t, found, listed)
}

// testNames returns the tests of the repository as pages name them, with their
// folders.
func testNames(t *testing.T, root string) map[string]string {
	t.Helper()
	inGo := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	inPython := regexp.MustCompile(`(?m)^def (test_\w+)\(`)
	names := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel(root, filepath.Dir(path))
		switch name := entry.Name(); {
		case entry.IsDir() && (folder == "." && name == "build" || name == ".git"):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go"):
			for _, test := range matches(t, inGo, path) {
				names[filepath.Base(folder)+"."+test] = folder
			}
		case strings.HasSuffix(name, ".py"):
			for _, test := range matches(t, inPython, path) {
				names[filepath.Join(folder, name)+"::"+test] = folder
			}
		}
		return nil
	}))
	return names
}

func matches(t *testing.T, pattern *regexp.Regexp, path string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, match := range pattern.FindAllSubmatch(text, -1) {
		found = append(found, string(match[1]))
	}
	return found
}

// TestSiteHasEveryPage, where the generator would refuse a page that is not in mkdocs.yml, or a link to a folder.
func TestSiteHasEveryPage(t *testing.T) {
	root := filepath.Join("..", "..")
	nav, err := os.ReadFile(filepath.Join(root, "mkdocs.yml"))
	require.NoError(t, err)
	files, err := linkedFiles(root)
	require.NoError(t, err)
	pages := 0
	for _, file := range files {
		if filepath.Ext(file) == ".md" {
			require.Regexp(t, `(?m): `+regexp.QuoteMeta(file)+`$`, string(nav), "mkdocs.yml does not list the page")
			for _, link := range matches(t, relativeLink, filepath.Join(root, file)) {
				info, err := os.Stat(filepath.Join(root, filepath.Dir(file), link))
				require.False(t, err == nil && info.IsDir(), "%s links to the folder %s: link to a file in it", file, link)
			}
			pages++
		}
	}
	require.Greater(t, pages, 25)
}

// TestVersionIsEverywhere: names of archives and images on the pages, the chart and the client have the version of the library.
func TestVersionIsEverywhere(t *testing.T) {
	root := filepath.Join("..", "..")
	named := regexp.MustCompile(`(?:tritonstateful-|stateful-backend:|git checkout v|(?m:^(?:appV|v)ersion(?:: | = )"?))(\d+\.\d+\.\d+)`)
	files := []string{"README.md", "clients/python/pyproject.toml", "docs/release.md", "docs/quickstart.md", "docs/install.md",
		"docs/more-than-one-server.md", "docs/deploy/Dockerfile.init", "docs/deploy/helm/Chart.yaml", "docs/deploy/helm/values.yaml"}
	for _, file := range files {
		found := matches(t, named, filepath.Join(root, file))
		require.NotEmpty(t, found, file)
		for _, number := range found {
			require.Equal(t, version.Number, number, file)
		}
	}
	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	require.Contains(t, string(changes), "\n## ["+version.Number+"] - ")
}
