package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/version"
)

// run runs the command and returns what it printed.
func run(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestVersion(t *testing.T) {
	code, out, _ := run(t, "--version")
	require.Equal(t, exitFine, code)
	require.Equal(t, "tritonstateful "+version.Number+"\n", out)
	code, out, _ = run(t, "version")
	require.Equal(t, exitFine, code)
	require.Contains(t, out, "tritonstateful "+version.Number+", commit unknown, go1.")
	code, out, _ = run(t, "version", "--json")
	require.Equal(t, exitFine, code)
	require.Contains(t, out, `"version": "`+version.Number+`"`)
}

// TestUsage: arguments that make no sense are 64, and on stderr.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"fly"}, {"--fly"}} {
		code, out, errs := run(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.Empty(t, out)
		require.Contains(t, errs, "fly")
	}
}

// TestUsageAsJSON: with --json, scripts read errors where they read results.
func TestUsageAsJSON(t *testing.T) {
	code, out, errs := run(t, "--json", "fly")
	require.Equal(t, exitUsage, code)
	require.Empty(t, errs)
	var result struct {
		Schema int
		Error  string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Equal(t, 1, result.Schema)
	require.Contains(t, result.Error, "fly")
}

// TestCompletion: shells can complete the command.
func TestCompletion(t *testing.T) {
	code, out, _ := run(t, "completion", "bash")
	require.Equal(t, exitFine, code)
	require.Contains(t, out, "bash completion")
}

// TestCompletionOfValues: flags with few values, and a shell that is not supported.
func TestCompletionOfValues(t *testing.T) {
	for want, args := range map[string][]string{
		"oldest\ndirect\nfree\n":     {"__complete", "init", "--scheduler", ""},
		"stateful\nnvidia\ntriton\n": {"__complete", "migrate", "--to", ""},
		":0\n":                       {"__complete", "inspect", ""},
	} {
		code, out, _ := run(t, args...)
		require.Equal(t, exitFine, code)
		require.Contains(t, out, want)
	}
	code, _, errs := run(t, "completion", "tcsh")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "want bash, zsh, fish or powershell")
}

// TestMistakes: what is nearly right is shown what would be.
func TestMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		`there is no verb "inspct": did you mean inspect?`: {"inspct", "x.onnx"},
		`--lanes is "many": want a whole number`:           {"check", "x", "--lanes", "many"},
		`--duration is "10": want a time, such as 10s`:     {"load", "grpc://x", "y", "--duration", "10"},
		`--rate is "fast": want a number`:                  {"plan", "x", "--rate", "fast"},
		"state has no verb: want list":                     {"state"},
		`state has no verb "delete": want list`:            {"state", "delete"},
	} {
		code, _, errs := run(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, errs, want)
	}
}

// TestHelp: each verb has an example, and its flags say what they take.
func TestHelp(t *testing.T) {
	for _, verb := range verbs {
		name, _, _ := strings.Cut(verb(&command{}).Use, " ")
		code, out, _ := run(t, name, "--help")
		require.Equal(t, exitFine, code)
		require.Contains(t, out, "Examples:\n  tritonstateful "+name, name)
		require.NotContains(t, out, "stringArray", name)
	}
}
