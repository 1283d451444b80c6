package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/ortrunner/onnxtest"
)

// TestInit: the configuration, and that what it says is served.
func TestInit(t *testing.T) {
	for name, c := range map[string]struct {
		model onnxtest.Model
		args  []string
	}{
		"oldest":     {sums(), nil},
		"direct":     {sums(), []string{"--scheduler", "direct"}},
		"free":       {sums(), []string{"--scheduler", "free"}},
		"free_short": {sums(), []string{"--scheduler", "free", "--short"}},
		"short":      {sums(), []string{"--short"}},
		"cached":     {cached(), nil},
		"parameter":  {unclear(), []string{"--parameter", "state_pairs=<<<sum, sum_out>>>"}},
	} {
		t.Run(name, func(t *testing.T) {
			repository := filepath.Join(t.TempDir(), "models")
			args := append([]string{"init", "--json", "--repository", repository, file(t, name, c.model)}, c.args...)
			code, out, errs := run(t, withRuntime(t, args...)...)
			require.Equal(t, exitFine, code, out+errs)
			var result initialization
			require.NoError(t, json.Unmarshal([]byte(out), &result))
			require.Equal(t, filepath.Join(repository, name), result.Directory)
			require.Equal(t, []string{filepath.Join(repository, name, "1", "model.onnx"), filepath.Join(repository, name, "config.pbtxt")}, result.Written)
			written, err := os.ReadFile(result.Written[1])
			require.NoError(t, err)
			golden(t, "init_"+name+".pbtxt", string(written))
			code, out, errs = run(t, withRuntime(t, "inspect", result.Directory)...)
			require.Equal(t, exitFine, code, out+errs)
		})
	}
}

// TestInitWarns: of what has no effect.
func TestInitWarns(t *testing.T) {
	stateless := onnxtest.Model{
		Inputs:  []onnxtest.Value{float("x", "batch", 4)},
		Nodes:   []onnxtest.Node{{Op: "Neg", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Outputs: []onnxtest.Value{float("y", "batch", 4)},
	}
	for want, args := range map[string][]string{
		"--scheduler direct has no effect: the model has no states": {"--scheduler", "direct", file(t, "stateless", stateless)},
		`did you mean "constant_inputs"?`:                           {"--parameter", "constant_input=x = 1", file(t, "sums", sums())},
	} {
		code, out, errs := run(t, withRuntime(t, append([]string{"init", "--repository", t.TempDir()}, args...)...)...)
		require.Equal(t, exitFine, code, out+errs)
		require.Contains(t, out, "warning: ")
		require.Contains(t, out, want)
	}
}

// TestInitKeeps: what the given configuration chooses stays.
func TestInitKeeps(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.pbtxt")
	require.NoError(t, os.WriteFile(config, []byte("max_batch_size: 3 sequence_batching { oldest { max_candidate_sequences: 5 } }"), 0o644))
	repository := t.TempDir()
	code, out, errs := run(t, withRuntime(t, "init", "--json", "--config", config, "--name", "kept", "--repository", repository, file(t, "sums", sums()))...)
	require.Equal(t, exitFine, code, out+errs)
	var result initialization
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Contains(t, result.Config, "max_batch_size: 3")
	require.Contains(t, result.Config, "oldest { max_candidate_sequences: 5 }")
	require.Contains(t, result.Config, `name: "kept"`)
	require.NotContains(t, result.Config, "max_sequence_idle_microseconds")
}

// TestInitAsksFirst: with an open question nothing is written, nor over what is there.
func TestInitAsksFirst(t *testing.T) {
	repository := t.TempDir()
	code, out, _ := run(t, withRuntime(t, "init", "--repository", repository, file(t, "unclear", unclear()))...)
	require.Equal(t, exitFound, code)
	require.Contains(t, out, "open: ")
	entries, err := os.ReadDir(repository)
	require.NoError(t, err)
	require.Empty(t, entries)

	model := file(t, "sums", sums())
	code, _, _ = run(t, withRuntime(t, "init", "--repository", repository, model)...)
	require.Equal(t, exitFine, code)
	config := filepath.Join(repository, "sums", "config.pbtxt")
	require.NoError(t, os.WriteFile(config, []byte("mine"), 0o644))
	code, _, errs := run(t, withRuntime(t, "init", "--repository", repository, model)...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "--force")
	kept, err := os.ReadFile(config)
	require.NoError(t, err)
	require.Equal(t, "mine", string(kept))
	code, _, _ = run(t, withRuntime(t, "init", "--force", "--repository", repository, model)...)
	require.Equal(t, exitFine, code)
}

// TestInitInPlace: a model that is in its folder already stays where it is, and gives the name.
func TestInitInPlace(t *testing.T) {
	repository := t.TempDir()
	model := filepath.Join(repository, "adder", "1", "model.onnx")
	require.NoError(t, os.MkdirAll(filepath.Dir(model), 0o755))
	require.NoError(t, os.WriteFile(model, sums().Marshal(), 0o644))
	code, out, errs := run(t, withRuntime(t, "init", "--json", "--repository", repository, model)...)
	require.Equal(t, exitFine, code, errs)
	var result initialization
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Equal(t, []string{filepath.Join(repository, "adder", "config.pbtxt")}, result.Written)
}

// TestInitUsage: words that are none.
func TestInitUsage(t *testing.T) {
	for _, args := range [][]string{{"init"}, {"init", "x.onnx", "--scheduler", "newest"}, {"init", "x.onnx", "--name", "../x"}, {"init", "x.onnx", "--name", "a/b"}} {
		code, _, _ := run(t, args...)
		require.Equal(t, exitUsage, code, args)
	}
	code, _, errs := run(t, withRuntime(t, "init", file(t, "sums", sums()), "--parameter", "verify")...)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "KEY=VALUE")
}
