package ortrunner

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// oddValues are texts of each kind at which code that reads them may fail.
var oddValues = map[onnx.Kind][]string{
	onnx.Bool:     {"1", "0"},
	onnx.Integer:  {"-1", "-0", "0", "9223372036854775807", "-9223372036854775808", "2147483648", "+5", "007"},
	onnx.Unsigned: {"-1", "-0", "0", "9223372036854775807", "9223372036854775808", "4294967296", "+5", "007"},
	onnx.Number:   {"NaN", "-Inf", "1e999", "0x1p-2", "1_000", "+.5"},
	onnx.Text:     {"", " ", "\"", "a\nb", ";;;", "1", "-1", "+5", strings.Repeat("9", 5000), strings.Repeat("x;", 5000), "no/where", "1,2,3;4", "NaN", "%s%n"},
}

// TestOddValues: no value of a setting that passes the check ends the process. ONNX Runtime
// throws an exception that no one catches for some that it cannot read.
func TestOddValues(t *testing.T) {
	if !inChild(t) {
		return
	}
	rt, path := testRuntime(t), accumulate(2).Write(t)
	t.Chdir(t.TempDir()) // some settings are names of files to write
	for _, key := range slices.Sorted(maps.Keys(onnx.SessionKeys)) {
		kind := onnx.SessionKeys[key]
		for _, value := range oddValues[kind] {
			checked, err := kind.Check(value)
			if err != nil {
				continue
			}
			fmt.Printf("%s = %.60q\n", key, checked) // the last one is in the output of a process that ends
			opened, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: 2, Session: []onnx.Setting{{Key: key, Value: checked}}})
			if err != nil {
				continue
			}
			r := opened.(*runner)
			x := floats(t, r, tensor.Shape{1, 2}, 1, 2)
			_ = r.Run([]onnx.Tensor{x, x}, leftOpen(r)) // fails for files that cannot be written
			opened.Close()
		}
	}
}

// TestMappedModel: a model in ORT format is mapped into memory, and its answers are those of the file that it was made of.
func TestMappedModel(t *testing.T) {
	rt, model := testRuntime(t), accumulate(2)
	path := filepath.Join(t.TempDir(), "model.ort")
	options, err := newOptions(onnx.SessionOptions{Session: []onnx.Setting{{Key: "session.save_model_format", Value: "ORT"}}},
		func(options *ort.SessionOptions) error { return options.SetOptimizedModelFilePath(path) })
	require.NoError(t, err)
	defer options.Destroy() //nolint:errcheck // fails only for options that do not exist
	session, err := newSession(model.Write(t), options)
	require.NoError(t, err)
	newSharedSession(session, nil).leave()

	opened, err := rt.Open(onnx.SessionOptions{Path: path, IntraOpThreads: 1, Session: []onnx.Setting{
		{Key: "session.use_memory_mapped_ort_model", Value: "1"}, {Key: "session.use_ort_model_bytes_for_initializers", Value: "1"},
	}})
	require.NoError(t, err)
	defer opened.Close()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	require.Contains(t, string(maps), path)
	r := opened.(*runner)
	out := leftOpen(r)
	require.NoError(t, r.Run([]onnx.Tensor{floats(t, r, tensor.Shape{1, 2}, 1, 2), floats(t, r, tensor.Shape{1, 2}, 10, 20)}, out))
	require.Equal(t, []float32{22, 44}, elements[float32](t, out[0]))
}
