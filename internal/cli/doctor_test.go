package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cli/doctor"
)

// files writes files below the working directory.
func files(t *testing.T, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
}

// TestDoctorPage: the page shows what the command prints for a folder that has some faults, and one that has none.
func TestDoctorPage(t *testing.T) {
	t.Chdir(t.TempDir())
	files(t, map[string]string{
		"service/models/asr/config.pbtxt": `backend: "stateful"` + "\n" + `sequence_batching { oldest { max_candidate_sequences: 64 } }`,
		"service/compose.yaml": "services:\n  triton:\n    image: nvcr.io/nvidia/tritonserver:26.06-py3\n" +
			"    command: tritonserver --model-repository=/models\n    deploy: { replicas: 2 }\n",
	})
	require.NoError(t, os.CopyFS("docs/deploy", os.DirFS(filepath.Join(docs, "deploy"))))
	checkPage(t, "command-doctor.md")
}

// TestDoctorRulesHavePages: what a finding points to is there.
func TestDoctorRulesHavePages(t *testing.T) {
	for i := range doctor.Rules {
		page, anchor, _ := strings.Cut(doctor.Rules[i].Page, "#")
		text, err := os.ReadFile(filepath.Join(docs, page))
		require.NoError(t, err)
		headings := []string{}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") {
				heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
				headings = append(headings, strings.ReplaceAll(strings.NewReplacer(".", "", "`", "", "?", "").Replace(heading), " ", "-"))
			}
		}
		if anchor != "" {
			require.Contains(t, headings, anchor, doctor.Rules[i].ID)
		}
	}
}

func TestDoctorJSON(t *testing.T) {
	t.Chdir(t.TempDir())
	files(t, map[string]string{"m/config.pbtxt": `backend: "stateful" sequence_batching { }`, "n/config.pbtxt": "x: 1"})
	code, out, _ := run(t, "doctor", ".", "--json")
	require.Equal(t, exitFound, code)
	var report struct {
		Schema   int
		Findings []struct{ Rule, Severity, Where, Evidence, Remedy string }
		Unseen   []struct{ Rule, Needs string }
		Fine     []string
		Skipped  []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, "idle-limit", report.Findings[0].Rule)
	require.Equal(t, "problem", report.Findings[0].Severity)
	require.Equal(t, "m/config.pbtxt", report.Findings[0].Where)
	require.Len(t, report.Skipped, 1)
	require.Contains(t, report.Fine, "response-cache")
	require.NotEmpty(t, report.Unseen)
}

func TestDoctorArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"want the URL of a server, a folder or --pid": {"doctor"},
		"is no folder": {"doctor", "nothing"},
	} {
		code, _, errs := run(t, args...)
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, want)
	}
	code, _, errs := run(t, "doctor", "localhost:1")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "connection refused")
}
