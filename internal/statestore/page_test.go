package statestore

import (
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/tensor"
)

// TestScriptOfThePage runs the script of docs/state-store.md on values that were saved.
func TestScriptOfThePage(t *testing.T) {
	python, err := filepath.Abs("../../build/venv/bin/python")
	require.NoError(t, err)
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no Python with numpy: go run build.go installs it")
	}
	page, err := os.ReadFile("../../docs/state-store.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```python\n")
	require.True(t, found)
	program, _, _ := strings.Cut(rest, "```")
	script := filepath.Join(t.TempDir(), "read_state.py")
	require.NoError(t, os.WriteFile(script, []byte(program), 0o600))

	var w Writer
	require.NoError(t, w.Begin([]uint64{12, 345}, []Tensor{
		{"größe", tensor.FP32, tensor.Shape{2, 1}},
		{"empty", tensor.Int64, tensor.Shape{1, 0}},
		{"n", tensor.Int16, tensor.Shape{}},
		{"mask", tensor.Bool, tensor.Shape{1, 2}},
	}))
	binary.LittleEndian.PutUint32(w.Tensor(0), math.Float32bits(1.5))
	binary.LittleEndian.PutUint32(w.Tensor(0)[4:], math.Float32bits(-2))
	binary.LittleEndian.PutUint16(w.Tensor(2), 1000)
	copy(w.Tensor(3), "\x01\x00")
	const want = "epoch 00000000000000ff, step 12, counters (12, 345)\n" +
		"größe FP32 (2, 1) [[ 1.5]\n [-2. ]]\n" +
		"empty INT64 (1, 0) []\n" +
		"n INT16 () 1000\n" +
		"mask BOOL (1, 2) [[ True False]]\n"
	value := w.Seal(Head{Epoch: 255, Step: 12})
	run := func(args ...string) string {
		output, err := exec.Command(python, append([]string{script}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", output)
		return string(output)
	}

	where := newFolder(t)
	s := where.open(t)
	require.NoError(t, s.Save(t.Context(), key, 255, value, minute))
	require.Equal(t, want, run(strings.TrimPrefix(where.url, "file:"), key))

	fetched := filepath.Join(t.TempDir(), "value")
	require.NoError(t, os.WriteFile(fetched, append(value, '\n'), 0o600), "the end of a line is what valkey-cli adds")
	require.Equal(t, want, run(fetched))
}
