package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/ortrunner/onnxtest"
)

// trialRuns is the number of runs that a proof took, which may change.
var trialRuns = regexp.MustCompile(`"trial_runs": [1-9]\d*`)

// TestInspect: roles, axes and reasons, as text and as JSON.
func TestInspect(t *testing.T) {
	for name, c := range map[string]struct {
		model onnxtest.Model
		code  int
	}{
		"sums":    {sums(), exitFine},
		"cached":  {cached(), exitFine},
		"unclear": {unclear(), exitFound},
		"mixing":  {mixing(), exitFound},
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, name, c.model)
			code, out, errs := run(t, withRuntime(t, "inspect", path)...)
			require.Equal(t, c.code, code, errs)
			golden(t, "inspect_"+name+".txt", out)
			code, out, _ = run(t, withRuntime(t, "inspect", "--json", path)...)
			require.Equal(t, c.code, code)
			golden(t, "inspect_"+name+".json", trialRuns.ReplaceAllString(out, `"trial_runs": "some"`))
			require.True(t, json.Valid([]byte(out)))
		})
	}
}

// TestQuestionIsDecided: with the line that the question shows, the model is served.
func TestQuestionIsDecided(t *testing.T) {
	path := file(t, "unclear", unclear())
	code, out, _ := run(t, withRuntime(t, "inspect", "--json", path)...)
	require.Equal(t, exitFound, code)
	var result inspection
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Len(t, result.Questions, 1)
	require.Len(t, result.Questions[0].Lines, 1)
	config := filepath.Join(t.TempDir(), "config.pbtxt")
	require.NoError(t, os.WriteFile(config, []byte(result.Questions[0].Lines[0]), 0o644))
	code, out, errs := run(t, withRuntime(t, "inspect", path, "--config", config)...)
	require.Equal(t, exitFine, code, errs)
	require.Contains(t, out, "paired by state_pairs")
}

// TestInspectFaults: what cannot be looked at is an error with the file's name.
func TestInspectFaults(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	model := file(t, "sums", sums())
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{filepath.Join(folder, "none.onnx")}, "none.onnx"},
		{[]string{write("text.onnx", "no model")}, "text.onnx"},
		{[]string{model, "--config", write("a.pbtxt", "backand: \"stateful\"")}, "(line 1:1): unknown field: backand"},
		{[]string{model, "--config", write("b.pbtxt", "backend: \"onnxruntime\"")}, "tritonstateful migrate"},
		{[]string{filepath.Dir(write("platform/config.pbtxt", "platform: \"onnxruntime_onnx\""))}, "platform is \"onnxruntime_onnx\", and there is no backend"},
		{[]string{filepath.Dir(write("both/config.pbtxt", "platform: \"ensemble\""))}, "an ensemble has no model file"},
		{[]string{model, "--config", write("c.pbtxt", "parameters { key: \"verify\" value { string_value: \"maybe\" } }")}, "verify"},
		{[]string{filepath.Dir(write("folder/config.pbtxt", ""))}, "no folder of a version"},
		{[]string{filepath.Dir(filepath.Dir(write("repository/asr/config.pbtxt", "")))}, "is a model repository: want the folder of one of its models, such as"},
	} {
		code, _, errs := run(t, withRuntime(t, append([]string{"inspect"}, c.args...)...)...)
		require.Equal(t, exitFailed, code, c.want)
		require.Contains(t, errs, c.want)
	}
}

// TestInspectLoads: inspect says what a load says, also where the plan alone finds nothing.
func TestInspectLoads(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		code   int
		want   string
	}{
		"slots":   {oldest + parameter("max_candidate_sequence_use_ratio", "0.001"), exitFound, "open: the slots for sequences: there are 0 slots"},
		"cache":   {oldest + "response_cache { enable: true }", exitFound, "open: response_cache is enabled"},
		"unknown": {oldest + parameter("state_pair", "<<<sum, next_sum>>>"), exitFine, `warning: parameter "state_pair" is unknown and has no effect; did you mean "state_pairs"?`},
		"store":   {oldest + parameter("state_store", "valkey://127.0.0.1:1") + parameter("checkpoint", "steps=2"), exitFine, "1 state"},
		"alone":   {oldest + parameter("checkpoint", "steps=2"), exitFine, "warning: parameter checkpoint has no effect without state_store"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := run(t, withRuntime(t, "inspect", repository(t, name, c.config, sums()))...)
			require.Equal(t, c.code, code, errs)
			require.Contains(t, out, c.want)
			require.Equal(t, strings.HasPrefix(c.want, "warning"), strings.Contains(out, "warning"), out)
		})
	}
	config := filepath.Join(t.TempDir(), "config.pbtxt")
	require.NoError(t, os.WriteFile(config, []byte(oldest+parameter("max_candidate_sequence_use_ratio", "0.001")), 0o644))
	code, out, _ := run(t, withRuntime(t, "inspect", file(t, "sums", sums()), "--config", config)...)
	require.Equal(t, exitFound, code, "a file that is in no folder of a version")
	require.Contains(t, out, "there are 0 slots")
}
