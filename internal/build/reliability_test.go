package build

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReliabilityPage: every test that docs/reliability.md and docs/gpu.md name
// exists, and each promise has the figures of its tests.
func TestReliabilityPage(t *testing.T) {
	root := filepath.Join("..", "..")
	checkTestNames(t, filepath.Join(root, "docs", "gpu.md"))
	page, inGo, inPython := checkTestNames(t, filepath.Join(root, "docs", "reliability.md"))
	require.Greater(t, len(inGo), 30)
	require.Greater(t, len(inPython), 10)
	rows := regexp.MustCompile(`(?m)^\|[^|\n]*\|[^|\n]*\.(?:Test|Fuzz|Benchmark|py::)[^|\n]*\|([^|\n]*)\|$`).FindAllStringSubmatch(page, -1)
	for _, row := range rows {
		require.Regexp(t, `\d`, row[1], "%s: figures are missing: run scripts/promises.py", row[0])
	}
	require.Greater(t, len(rows), 20)
	for _, target := range fuzzTargets {
		require.True(t, strings.Contains(page, "."+target.name+"`"), "the page does not name %s", target.name)
	}
}

// checkTestNames is the text of a page and the tests that it names, in Go and in
// Python, which all exist.
func checkTestNames(t *testing.T, file string) (page string, inGo, inPython [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	root := filepath.Join("..", "..")
	folders := map[string]string{
		"backend": "backend", "statebuffer": "statebuffer", "tensor": "internal/tensor", "capi": "capi", "ortrunner": "ortrunner",
		"cuda": "internal/cuda", "kernels": "internal/cuda/kernels", "devicememory": "internal/devicememory", "gpuinfo": "internal/gpuinfo",
		"kserve": "internal/bench/kserve", "onnxfile": "internal/onnxfile",
	}
	inGo = regexp.MustCompile("`([a-z]+)\\.((?:Test|Fuzz|Benchmark)\\w+)`").FindAllStringSubmatch(string(text), -1)
	for _, name := range inGo {
		folder, known := folders[name[1]]
		require.True(t, known, "%s names no package of ours", name[0])
		require.True(t, strings.Contains(sources(t, filepath.Join(root, folder, "*_test.go")), "\nfunc "+name[2]+"("), "there is no %s", name[0])
	}
	inPython = regexp.MustCompile("`(scripts/\\S+\\.py)::(test_\\w+)`").FindAllStringSubmatch(string(text), -1)
	for _, name := range inPython {
		require.True(t, strings.Contains(sources(t, filepath.Join(root, name[1])), "\ndef "+name[2]+"("), "there is no %s", name[0])
	}
	return string(text), inGo, inPython
}

// sources are all files of a pattern, one behind the other.
func sources(t *testing.T, pattern string) string {
	paths, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, paths, pattern)
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}
