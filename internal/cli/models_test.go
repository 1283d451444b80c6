package cli

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/ortrunner/onnxtest"
)

var update = flag.Bool("update", false, "write the golden files")

// withRuntime are arguments with the real ONNX Runtime; the test is skipped without one.
func withRuntime(t testing.TB, args ...string) []string {
	t.Helper()
	library := os.Getenv("STATEFUL_ORT_LIB")
	if library == "" {
		t.Skip("no ONNX Runtime: set STATEFUL_ORT_LIB to the path of libonnxruntime.so to run this test")
	}
	return append([]string{"--onnxruntime", library}, args...)
}

// golden compares with a file in testdata, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func float(name string, dims ...any) onnxtest.Value {
	return onnxtest.Value{Name: name, Type: onnxtest.Float, Dims: onnxtest.Dims(dims...)}
}

// sums adds up its input: next_sum = sum + x, y = next_sum.
func sums() onnxtest.Model {
	return onnxtest.Model{
		Inputs: []onnxtest.Value{float("x", "batch", 4), float("sum", "batch", 4)},
		Nodes: []onnxtest.Node{
			{Op: "Add", Inputs: []string{"sum", "x"}, Outputs: []string{"next_sum"}},
			{Op: "Identity", Inputs: []string{"next_sum"}, Outputs: []string{"y"}},
		},
		Outputs: []onnxtest.Value{float("y", "batch", 4), float("next_sum", "batch", 4)},
	}
}

// cached appends its input to a cache: next_cache = cache ++ x, y = its mean.
func cached() onnxtest.Model {
	return onnxtest.Model{
		Inputs: []onnxtest.Value{float("x", "batch", "time", 4), float("cache", "batch", "past", 4)},
		Nodes: []onnxtest.Node{
			{Op: "Concat", Inputs: []string{"cache", "x"}, Outputs: []string{"next_cache"}, Attributes: []onnxtest.Attribute{{Name: "axis", Value: int64(1)}}},
			{Op: "ReduceMean", Inputs: []string{"next_cache"}, Outputs: []string{"y"}, Attributes: []onnxtest.Attribute{{Name: "axes", Value: []int64{1}}, {Name: "keepdims", Value: int64(0)}}},
		},
		Outputs: []onnxtest.Value{float("y", "batch", 4), float("next_cache", "batch", "all", 4)},
	}
}

// unclear has a state whose output could be either of two.
func unclear() onnxtest.Model {
	m := sums()
	m.Nodes = append(m.Nodes, onnxtest.Node{Op: "Neg", Inputs: []string{"next_sum"}, Outputs: []string{"sum_out"}})
	m.Outputs = append(m.Outputs, float("sum_out", "batch", 4))
	return m
}

// mixing adds up over the batch, so that its lanes are not isolated.
func mixing() onnxtest.Model {
	m := sums()
	m.Nodes[0] = onnxtest.Node{Op: "ReduceMean", Inputs: []string{"x"}, Outputs: []string{"mean"}, Attributes: []onnxtest.Attribute{{Name: "axes", Value: []int64{0}}}}
	m.Nodes = append([]onnxtest.Node{m.Nodes[0], {Op: "Add", Inputs: []string{"sum", "mean"}, Outputs: []string{"next_sum"}}}, m.Nodes[1:]...)
	return m
}

// file writes a model to NAME.onnx.
func file(t testing.TB, name string, m onnxtest.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".onnx")
	require.NoError(t, os.WriteFile(path, m.Marshal(), 0o644))
	return path
}
