package picture

import (
	"bytes"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var show = flag.String("show", "", "folder for the pictures, to look at them")

func someSeries() []Series {
	drift := make([]float64, 24)
	for i := range drift {
		drift[i] = 1e-7 * float64(i*i)
	}
	return []Series{
		{"one by one", "same bits", true, 0, make([]float64, 24)},
		{"batched", "within tolerance, at most 5.3e-05", true, 0, drift},
		{"restarted", "different, at most 0.2", false, 0, append([]float64{0.2}, drift[1:]...)},
		{"restored", "same bits", true, 12, make([]float64, 24)},
		{Name: "skipped"},
	}
}

// TestSave: a picture has a panel for every series that was compared.
func TestSave(t *testing.T) {
	folder := t.TempDir()
	if *show != "" {
		folder = *show
	}
	require.NoError(t, Save(filepath.Join(folder, "a.svg"), "model: differences", someSeries()))
	svg, err := os.ReadFile(filepath.Join(folder, "a.svg"))
	require.NoError(t, err)
	for _, text := range []string{"model: differences", "step", "one by one: same bits", "restarted: different", "not compared", "1e-6"} {
		require.Contains(t, string(svg), text)
	}
	require.NotContains(t, string(svg), "skipped")
	for name, series := range map[string][]Series{"b.png": someSeries(), "zeros.png": someSeries()[:1], "none.png": nil} {
		require.NoError(t, Save(filepath.Join(folder, name), "model: differences", series))
		file, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		drawn, err := png.Decode(bytes.NewReader(file))
		require.NoError(t, err)
		require.Greater(t, drawn.Bounds().Dx(), 900)
	}
	require.ErrorContains(t, Save(filepath.Join(folder, "a.txt"), "model", nil), ".png or .svg")
	require.ErrorContains(t, Save(filepath.Join(folder, "none", "a.png"), "model", nil), "writing the picture")
}

func TestBounds(t *testing.T) {
	low, high := bounds([]Series{{Values: []float64{0, 3e-6, 2e-5}}})
	require.InEpsilon(t, 1e-7, low, 1e-9)
	require.InEpsilon(t, 1e-4, high, 1e-9)
	low, high = bounds([]Series{{Values: []float64{0}}})
	require.Less(t, low, high)
	low, high = bounds([]Series{{Values: []float64{1e-300, 1.7e308}}})
	require.Less(t, low, high)
	require.LessOrEqual(t, len(decades(low, high)), 6)
}
