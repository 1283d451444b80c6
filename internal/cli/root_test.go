package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// run runs the command and returns what it printed.
func run(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(args, "v1.2.3", &out, &errs)
	return code, out.String(), errs.String()
}

func TestVersion(t *testing.T) {
	code, out, _ := run(t, "--version")
	require.Equal(t, exitFine, code)
	require.Equal(t, "tritonstateful v1.2.3\n", out)
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
