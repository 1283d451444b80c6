package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/ortrunner/onnxtest"
)

// TestAdversarialModels: what inspect says of models that are made to mislead it. A model that cannot be served is an error or
// a question with what to do; one that may be another thing than it seems has a warning.
func TestAdversarialModels(t *testing.T) {
	swapped := onnxtest.Model{ // two states of one shape, written in the other order
		Inputs: []onnxtest.Value{float("x", "b", 4), float("h", "b", 4), float("c", "b", 4)},
		Nodes: []onnxtest.Node{
			{Op: "Add", Inputs: []string{"x", "h"}, Outputs: []string{"c_next"}},
			{Op: "Mul", Inputs: []string{"x", "c"}, Outputs: []string{"h_next"}},
			{Op: "Add", Inputs: []string{"h_next", "c_next"}, Outputs: []string{"y"}},
		},
		Outputs: []onnxtest.Value{float("y", "b", 4), float("c_next", "b", 4), float("h_next", "b", 4)},
	}
	nameless := onnxtest.Model{ // as an exporter without names writes them
		Inputs: []onnxtest.Value{float("input.1", "b", 4), float("onnx::Add_1", "b", 4)},
		Nodes: []onnxtest.Node{
			{Op: "Add", Inputs: []string{"input.1", "onnx::Add_1"}, Outputs: []string{"7"}},
			{Op: "Neg", Inputs: []string{"7"}, Outputs: []string{"9"}},
		},
		Outputs: []onnxtest.Value{float("9", "b", 4), float("7", "b", 4)},
	}
	optional := sums() // the first value of the state is in the model, so that it looks like an input that need not be fed
	optional.Inputs[1] = float("sum", 1, 4)
	optional.Initializers = []onnxtest.Tensor{{Name: "sum", Type: onnxtest.Float, Dims: []int64{1, 4}, Data: []float32{1, 1, 1, 1}}}
	square := sums()
	for i := range square.Inputs {
		square.Inputs[i], square.Outputs[i] = float(square.Inputs[i].Name, "n", "m"), float(square.Outputs[i].Name, "n", "m")
	}
	newer := sums()
	newer.Opset = 99
	sequence := sums()
	sequence.Nodes = append(sequence.Nodes, onnxtest.Node{Op: "SequenceConstruct", Inputs: []string{"next_sum"}, Outputs: []string{"all"}})
	sequence.Outputs = append(sequence.Outputs, onnxtest.Value{Name: "all", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 4), Sequence: true})
	whole := sums().Marshal()
	for name, c := range map[string]struct {
		model []byte
		code  int
		want  string
	}{
		"swapped":   {swapped.Marshal(), exitFine, "h -> h_next"},
		"nameless":  {nameless.Marshal(), exitFine, "'<<<onnx::Add_1, 7>>>'"},
		"optional":  {optional.Marshal(), exitFine, "'<<<sum, next_sum>>>'"},
		"square":    {square.Marshal(), exitFound, "initial_states"},
		"newer":     {newer.Marshal(), exitFailed, "export it for an opset"},
		"sequence":  {sequence.Marshal(), exitFailed, `output "all": it is a sequence: only tensors can be served`},
		"truncated": {whole[:len(whole)/2], exitFailed, "truncated, or not an ONNX model"},
		"empty":     {nil, exitFailed, "is empty"},
		"pointer":   {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123\n"), exitFailed, "git lfs pull"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name+".onnx")
			require.NoError(t, os.WriteFile(path, c.model, 0o600))
			code, out, errs := run(t, withRuntime(t, "inspect", path)...)
			require.Equal(t, c.code, code, out+errs)
			require.Contains(t, out+errs, c.want)
			code, out, errs = run(t, withRuntime(t, "inspect", path, "--json")...)
			require.Equal(t, c.code, code)
			require.True(t, json.Valid([]byte(out)))
			require.Empty(t, errs)
		})
	}
}

// TestCustomOperators: a library of operators next to the model is used to look at it, goes into the model's folder, and is
// used to check it. Without it, the error says where to name it.
func TestCustomOperators(t *testing.T) {
	withRuntime(t)
	m := sums()
	m.Nodes[1] = onnxtest.Node{Op: "Twice", Domain: "com.example", Inputs: []string{"next_sum"}, Outputs: []string{"y"}}
	path := file(t, "twice", m)
	headers, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/yalue/onnxruntime_go").Output()
	require.NoError(t, err)
	library := filepath.Join(filepath.Dir(path), "ops.so")
	built, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-I"+strings.TrimSpace(string(headers)), "-o", library,
		filepath.Join("..", "..", "ortrunner", "testdata", "customop.c")).CombinedOutput()
	require.NoError(t, err, "%s", built)
	code, _, errs := run(t, withRuntime(t, "inspect", path)...)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "model_operations { op_library_filename }")
	config := filepath.Join(t.TempDir(), "config.pbtxt")
	require.NoError(t, os.WriteFile(config, []byte(`model_operations { op_library_filename: "ops.so" }`), 0o600))
	code, out, errs := run(t, withRuntime(t, "inspect", path, "--config", config)...)
	require.Equal(t, exitFine, code, out+errs)
	repository := t.TempDir()
	code, out, errs = run(t, withRuntime(t, "init", path, "--config", config, "--repository", repository)...)
	require.Equal(t, exitFine, code, out+errs)
	require.FileExists(t, filepath.Join(repository, "twice", "ops.so"))
	code, r := check(t, filepath.Join(repository, "twice"))
	require.Equal(t, exitFine, code, r.Results)
}
