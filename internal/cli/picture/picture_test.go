package picture

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSave: a picture has every series, also one of zeros alone.
func TestSave(t *testing.T) {
	folder := t.TempDir()
	series := []Series{{"one by one", []float64{0, 0, 0}}, {"batched", []float64{0, 1e-6, 2e-6}}, {"nothing", nil}}
	require.NoError(t, Save(filepath.Join(folder, "a.svg"), "model", "difference", series))
	svg, err := os.ReadFile(filepath.Join(folder, "a.svg"))
	require.NoError(t, err)
	for _, text := range []string{"model", "step", "one by one", "batched"} {
		require.Contains(t, string(svg), text)
	}
	require.NoError(t, Save(filepath.Join(folder, "a.png"), "model", "difference", series[:1]))
	file, err := os.ReadFile(filepath.Join(folder, "a.png"))
	require.NoError(t, err)
	drawn, err := png.Decode(bytes.NewReader(file))
	require.NoError(t, err)
	require.Greater(t, drawn.Bounds().Dx(), 300)
	require.ErrorContains(t, Save(filepath.Join(folder, "a.txt"), "model", "difference", series), ".png or .svg")
}
