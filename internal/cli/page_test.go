package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cli/capacity"
	"tritonstateful/internal/cli/doctor"
	"tritonstateful/internal/cli/migrate"
	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/cli/parity"
	"tritonstateful/internal/cli/saved"
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

// TestPages: what the pages of inspect, init and check show is what the command prints and writes.
func TestPages(t *testing.T) {
	runtime := withRuntime(t)[1]
	t.Chdir(t.TempDir())
	for name, model := range map[string]onnxtest.Model{"smooth.onnx": smooth(), "unclear.onnx": unclear()} {
		require.NoError(t, os.WriteFile(name, model.Marshal(), 0o644))
	}
	for _, verb := range []string{"inspect", "init", "check"} { // init writes what check reads
		checkPage(t, "command-"+verb+".md", "tritonstateful "+verb, "tritonstateful --onnxruntime "+runtime+" "+verb)
	}

	path := filepath.Join(docs, "command-init.md")
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

// TestPlanPage: the page shows what the command prints, but for numbers.
func TestPlanPage(t *testing.T) {
	runtime := withRuntime(t)[1]
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("model_repository/tracker/1", 0o755))
	require.NoError(t, os.WriteFile("model_repository/tracker/1/model.onnx", wide().Marshal(), 0o644))
	require.NoError(t, os.WriteFile("model_repository/tracker/config.pbtxt", []byte(oldest), 0o644))
	path := filepath.Join(docs, "command-plan.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	now := consoleBlock.ReplaceAllStringFunc(string(text), func(block string) string {
		line, _, _ := strings.Cut(strings.TrimPrefix(block, "```console\n$ "), "\n")
		return "```console\n$ " + line + "\n" + printed(t, strings.Replace(line, "tritonstateful", "tritonstateful --onnxruntime "+runtime, 1)) + "```"
	})
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(now), 0o600))
		return
	}
	require.Equal(t, withoutSizes(string(text)), withoutSizes(now))
}

var (
	sizes  = regexp.MustCompile(`[0-9][0-9.]*( ?[kMGT]?B)?`)
	spaces = regexp.MustCompile(` +`)
)

func withoutSizes(text string) string {
	return spaces.ReplaceAllString(sizes.ReplaceAllString(text, "N"), " ")
}

// TestPagesHaveFields: the page of each verb names all fields of its JSON.
func TestPagesHaveFields(t *testing.T) {
	for verb, results := range map[string][]any{
		"inspect": {inspection{}, offline.Tensor{}, offline.Question{}},
		"init":    {initialization{}},
		"check":   {checked{}, parity.Report{}, parity.Result{}},
		"plan":    {planned{}, capacity.Plan{}, capacity.Policy{}},
		"load":    {loading{}, bar{}, objective{}},
		"doctor":  {doctor.Report{}, doctor.Finding{}, doctor.Unseen{}, doctor.Rule{}},
		"migrate": {migration{}, migrate.Change{}},
		"state":   {saved.Sequence{}, saved.State{}},
	} {
		text, err := os.ReadFile(filepath.Join(docs, "command-"+verb+".md"))
		require.NoError(t, err)
		for _, result := range results {
			of := reflect.TypeOf(result)
			for i := range of.NumField() {
				name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
				if name != "" && name != "-" {
					require.Contains(t, string(text), "`"+name+"`", "%s: %v", verb, of)
				}
			}
		}
	}
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
