package build

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefreshMakesOnlyAfterAChange(t *testing.T) {
	root := &tree{ctx: t.Context(), root: t.TempDir()}
	output, made := root.path("bin", "output"), 0
	write := func() error {
		made++
		return errors.Join(os.MkdirAll(filepath.Dir(output), 0o755), os.WriteFile(output, nil, 0o644))
	}
	for _, step := range []struct {
		why, content string
		before       func() error
		made         int
	}{
		{"nothing is there", "a", nil, 1},
		{"nothing changed", "a", nil, 1},
		{"the content changed", "b", nil, 2},
		{"the output is gone", "b", func() error { return os.Remove(output) }, 3},
	} {
		if step.before != nil {
			require.NoError(t, step.before())
		}
		require.NoError(t, root.refresh(output, step.content, write), step.why)
		require.Equal(t, step.made, made, step.why)
	}
	// One of several outputs is gone, and then all are there.
	other := root.path("bin", "other")
	for range 2 {
		require.NoError(t, root.refresh(output, "b", func() error { return errors.Join(write(), os.WriteFile(other, nil, 0o644)) }, other))
		require.Equal(t, 4, made)
	}
	// After a failure the output may be anything, even if the content is that of an earlier success.
	bad := errors.New("bad")
	require.ErrorIs(t, root.refresh(output, "c", func() error { return bad }), bad)
	require.NoError(t, root.refresh(output, "b", write))
	require.Equal(t, 5, made)
}

func TestStepsGoOnAfterAFailureButNotAfterAnInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var ran []string
	note := func(name string, err error) step {
		return step{name, func() error {
			ran = append(ran, name)
			if name == "last" {
				cancel()
			}
			return err
		}}
	}
	err := (&tree{ctx: ctx}).steps(note("lint", errors.New("bad")), note("build", nil), note("last", nil), note("never", nil))
	require.EqualError(t, err, "FAILED: lint, never")
	require.Equal(t, []string{"lint", "build", "last"}, ran)
}

func TestLoaderIsCompiledOnlyAfterAChange(t *testing.T) {
	root := &tree{ctx: t.Context(), root: t.TempDir()}
	include := regexp.MustCompile(`#include "(.*)"`)
	loader, err := os.ReadFile("../../capi/loader/loader.c")
	require.NoError(t, err)
	sources := []string{"capi/exports.map", "capi/loader/loader.c"}
	for _, header := range include.FindAllSubmatch(loader, -1) {
		sources = append(sources, filepath.Join("capi/loader", string(header[1])))
	}
	for _, name := range sources {
		require.NoError(t, os.MkdirAll(filepath.Dir(root.path(name)), 0o755))
		require.NoError(t, os.WriteFile(root.path(name), nil, 0o600))
	}
	require.NoError(t, os.MkdirAll(root.installed(), 0o755))
	runs := filepath.Join(t.TempDir(), "runs")
	compiler := filepath.Join(t.TempDir(), "compiler") // notes each run and makes the file after -o
	script := "#!/bin/sh\necho run >> " + runs + "\nwhile [ $1 != -o ]; do shift; done; touch $2\n"
	require.NoError(t, os.WriteFile(compiler, []byte(script), 0o755))
	t.Setenv("CC", compiler)
	for i, changed := range append([]string{""}, sources...) {
		if changed != "" {
			require.NoError(t, os.WriteFile(root.path(changed), []byte("// changed"), 0o600))
		}
		for range 2 {
			require.NoError(t, root.loader(host()))
			made, err := os.ReadFile(runs)
			require.NoError(t, err)
			require.Equal(t, i+1, strings.Count(string(made), "run"), "after a change of %q", changed)
		}
	}
}

func TestVerbsShowTheUsage(t *testing.T) {
	t.Chdir(t.TempDir()) // where every verb itself fails
	for _, v := range verbs {
		for _, help := range []string{"-h", "--help"} {
			if !v.hasHelp {
				require.Zero(t, Main([]string{v.name, help}), v.name)
			}
		}
	}
	require.Equal(t, 1, Main([]string{"lint"}))
	require.Equal(t, 1, Main([]string{"lint", "--help", "more"}))
}

func TestClean(t *testing.T) {
	root := &tree{ctx: t.Context(), root: t.TempDir()}
	for _, path := range []string{"build/venv/x", "models/a/1/model.onnx", "models/a/initial_state/mean.bin", "models/a/config.pbtxt"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(root.path(path)), 0o755))
		require.NoError(t, os.WriteFile(root.path(path), nil, 0o600))
	}
	require.NoError(t, root.clean())
	left, err := filepath.Glob(root.path("*", "*", "*"))
	require.NoError(t, err)
	require.Equal(t, []string{root.path("models/a/config.pbtxt")}, left)
	require.NoDirExists(t, root.path("build"))
}

func TestFindPython(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python")
	root := &tree{ctx: t.Context(), root: t.TempDir()}
	t.Setenv("PYTHON", python)
	_, err := root.findPython()
	require.ErrorContains(t, err, python+": install Python 3.11 or newer")
	require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\nexit 0\n"), 0o755))
	found, err := root.findPython()
	require.NoError(t, err)
	require.Equal(t, python, found)
}

func TestSplitTests(t *testing.T) {
	for args, want := range map[string][3]string{
		"./backend -run TestX -v":                  {"./backend -run TestX -v", "", ""},
		"-run TestX":                               {"-run TestX ./...", "", ""},
		"./internal/bench/kserve -count 1":         {"", "./kserve -count 1", ""},
		"scripts/e2e/test_soak.py::test_soak -x":   {"", "", "scripts/e2e/test_soak.py::test_soak -x"},
		"-k idle":                                  {"", "", "-k idle scripts/e2e"},
		"scripts/e2e/test_vad.py -k window":        {"", "", "scripts/e2e/test_vad.py -k window"},
		"./statebuffer scripts/e2e/test_direct.py": {"./statebuffer", "", "scripts/e2e/test_direct.py"},
		"./capi ./internal/bench/... -run Seam":    {"./capi -run Seam", "./... -run Seam", ""},
	} {
		ours, others, python := splitTests(strings.Fields(args))
		require.Equal(t, want, [3]string{strings.Join(ours, " "), strings.Join(others["internal/bench"], " "), strings.Join(python, " ")}, args)
	}
	_, others, _ := splitTests([]string{"./clients/go/stateful", "-race"})
	require.Equal(t, map[string][]string{"clients/go": {"./stateful", "-race"}}, others)
}
