package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestTable: columns, and nothing else.
func TestTable(t *testing.T) {
	table := newTable("tensor", "role")
	table.AppendRow([]any{"x", "input"})
	table.AppendRow([]any{"audio_signal", "input"})
	require.Equal(t, "tensor        role\nx             input\naudio_signal  input", table.Render())
}

// TestColors: only terminals get them.
func TestColors(t *testing.T) {
	var b bytes.Buffer
	p := (&command{}).colors(&b)
	require.Equal(t, "good bad note bold", p.good("good")+" "+p.bad("bad")+" "+p.note("note")+" "+p.bold("bold"))
	require.Equal(t, "\x1b[32mgood\x1b[0m", palette{on: true}.good("good"))
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	require.False(t, (&command{}).colors(file).on)
}

func TestArguments(t *testing.T) {
	var usage usageError
	require.ErrorAs(t, arguments("MODEL.onnx")(&cobra.Command{Use: "inspect"}, nil), &usage)
	require.NoError(t, arguments("MODEL.onnx")(&cobra.Command{Use: "inspect"}, []string{"m.onnx"}))
}

// TestNoRuntime: the error says what to do.
func TestNoRuntime(t *testing.T) {
	_, err := (&command{library: "/none/lib.so"}).runtime()
	require.ErrorContains(t, err, "no ONNX Runtime at /none/lib.so: want --onnxruntime")
	_, err = firstThatExists(backendRuntimes("/none/bin/tritonstateful"))
	if err != nil { // else this machine has the backend in the server's folder
		require.ErrorContains(t, err, "/none/backends/stateful/libonnxruntime_stateful.so or "+backendFolder)
	}
}

// TestRuntimeOfAnInstalledBackend: the command and the backend are in one folder, or the command is somewhere else.
func TestRuntimeOfAnInstalledBackend(t *testing.T) {
	folder := t.TempDir()
	near := filepath.Join(folder, "backends", "stateful", "libonnxruntime_stateful.so")
	require.NoError(t, os.MkdirAll(filepath.Dir(near), 0o755))
	require.NoError(t, os.WriteFile(near, nil, 0o600))
	found, err := firstThatExists(backendRuntimes(filepath.Join(folder, "bin", "tritonstateful")))
	require.NoError(t, err)
	require.Equal(t, near, found)
	found, err = firstThatExists([]string{filepath.Join(folder, "none"), near})
	require.NoError(t, err)
	require.Equal(t, near, found)
}
