package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/ortrunner/onnxtest"
)

// smooth keeps a level of each channel: level_out = 0.9 level + 0.1 x, which rounds the same way on every processor.
func smooth() onnxtest.Model {
	return onnxtest.Model{
		Inputs: []onnxtest.Value{float("x", "batch", 8), float("level", "batch", 8)},
		Nodes: []onnxtest.Node{
			{Op: "Mul", Inputs: []string{"level", "old"}, Outputs: []string{"kept"}},
			{Op: "Mul", Inputs: []string{"x", "new"}, Outputs: []string{"added"}},
			{Op: "Add", Inputs: []string{"kept", "added"}, Outputs: []string{"level_out"}},
			{Op: "Identity", Inputs: []string{"level_out"}, Outputs: []string{"y"}},
		},
		Initializers: []onnxtest.Tensor{
			{Name: "old", Type: onnxtest.Float, Dims: []int64{1}, Data: []float32{0.9}},
			{Name: "new", Type: onnxtest.Float, Dims: []int64{1}, Data: []float32{0.1}},
		},
		Outputs: []onnxtest.Value{float("y", "batch", 8), float("level_out", "batch", 8)},
	}
}

// fileBlock is a block of a page that shows a file.
var fileBlock = regexp.MustCompile("(?s)(<!-- file: (.*?) -->\n```\n)(.*?)```")

// TestCommandPage: what docs/command.md shows is what the command prints and writes.
func TestCommandPage(t *testing.T) {
	runtime := withRuntime(t)[1]
	t.Chdir(t.TempDir())
	for name, model := range map[string]onnxtest.Model{"smooth.onnx": smooth(), "unclear.onnx": unclear()} {
		require.NoError(t, os.WriteFile(name, model.Marshal(), 0o644))
	}
	checkPage(t, "command.md", "$ tritonstateful", "$ tritonstateful", "tritonstateful in", "tritonstateful --onnxruntime "+runtime+" in", "tritonstateful check", "tritonstateful --onnxruntime "+runtime+" check")

	path := filepath.Join(docs, "command.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	now := fileBlock.ReplaceAllStringFunc(string(text), func(block string) string {
		parts := fileBlock.FindStringSubmatch(block)
		content, err := os.ReadFile(parts[2])
		require.NoError(t, err)
		return parts[1] + string(content) + "```"
	})
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(now), 0o600))
		return
	}
	require.Equal(t, string(text), now, "the file that the page shows")
}

// TestCommandPageHasVerbs: the page lists every verb that help does.
func TestCommandPageHasVerbs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docs, "command.md"))
	require.NoError(t, err)
	for _, verb := range verbs {
		name, _, _ := strings.Cut(verb(&command{}).Use, " ")
		require.True(t, strings.Contains(string(text), "| [`"+name+"`]("), "the table has no row for %s", name)
	}
}
