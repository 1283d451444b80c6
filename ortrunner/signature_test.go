package ortrunner

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
)

// TestSignature reads names, types, fixed, named and nameless axes, the order and
// the description of a graph.
func TestSignature(t *testing.T) {
	r := open(t, onnxtest.Model{
		Description: "state_pairs: a,b\nsecond line",
		Inputs: []onnxtest.Value{
			{Name: "z", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 3, "", "time")},
			{Name: "a", Type: onnxtest.Int64, Dims: onnxtest.Dims()},
			{Name: "default", Type: onnxtest.Bool, Dims: onnxtest.Dims(2)},
			{Name: "any", Type: onnxtest.Float16},
		},
		Initializers: []onnxtest.Tensor{
			{Name: "default", Type: onnxtest.Bool, Dims: []int64{2}, Data: []bool{true, false}},
			{Name: "hidden", Type: onnxtest.Float, Dims: []int64{1}, Data: []float32{1}},
		},
		Nodes: []onnxtest.Node{
			{Op: "Add", Inputs: []string{"z", "hidden"}, Outputs: []string{"y"}},
			{Op: "Identity", Inputs: []string{"a"}, Outputs: []string{"b"}},
			{Op: "Identity", Inputs: []string{"default"}, Outputs: []string{"c"}},
			{Op: "Identity", Inputs: []string{"any"}, Outputs: []string{"d"}},
		},
		Outputs: []onnxtest.Value{
			{Name: "y", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", 3, "", "time")},
			{Name: "b", Type: onnxtest.Int64, Dims: onnxtest.Dims()},
			{Name: "c", Type: onnxtest.Bool, Dims: onnxtest.Dims(2)},
			{Name: "d", Type: onnxtest.Float16},
		},
	})
	z := onnx.TensorInfo{Name: "z", DType: tensor.FP32, Dims: tensor.Shape{-1, 3, -1, -1}, Symbols: []string{"batch", "", "", "time"}}
	y := z
	y.Name = "y"
	require.Equal(t, &onnx.Signature{
		Inputs: []onnx.TensorInfo{
			z,
			{Name: "a", DType: tensor.Int64, Dims: tensor.Shape{}, Symbols: []string{}},
			{Name: "any", DType: tensor.FP16},
			{Name: "default", DType: tensor.Bool, Dims: tensor.Shape{2}, Symbols: []string{""}, Optional: true},
		},
		Outputs: []onnx.TensorInfo{
			y,
			{Name: "b", DType: tensor.Int64, Dims: tensor.Shape{}, Symbols: []string{}},
			{Name: "c", DType: tensor.Bool, Dims: tensor.Shape{2}, Symbols: []string{""}},
			{Name: "d", DType: tensor.FP16},
		},
		Description: "state_pairs: a,b\nsecond line",
		Operators:   map[string]int{"Add": 1, "Identity": 3},
	}, r.Signature())
}

// TestOperatorsUnknown: a model in ONNX Runtime's own format loads, and may have any operator.
func TestOperatorsUnknown(t *testing.T) {
	rt, from := testRuntime(t), accumulate(2).Write(t)
	path := filepath.Join(filepath.Dir(from), "model.ort")
	options, err := newOptions(onnx.SessionOptions{}, func(o *ort.SessionOptions) error {
		return errors.Join(o.SetOptimizedModelFilePath(path), o.AddSessionConfigEntry("session.save_model_format", "ORT"))
	})
	require.NoError(t, err)
	session, err := newSession(from, options)
	require.NoError(t, err)
	require.NoError(t, options.Destroy())
	newSharedSession(session, nil).leave()

	r, err := rt.Open(onnx.SessionOptions{Path: path})
	require.NoError(t, err)
	defer r.Close()
	require.Len(t, r.Signature().Inputs, 2)
	require.Nil(t, r.Signature().Operators)
	require.True(t, r.Signature().Unread)
	require.NotEmpty(t, r.Signature().EndsOnEmpty())
}

// TestUnservedTypes loads models with tensors that Triton cannot have.
func TestUnservedTypes(t *testing.T) {
	for name, c := range map[string]struct {
		value onnxtest.Value
		want  string
	}{
		"float8":   {onnxtest.Value{Type: onnxtest.Float8, Dims: onnxtest.Dims(1)}, `input "x": elements of type FLOAT8E4M3FN`},
		"sequence": {onnxtest.Value{Type: onnxtest.Float, Dims: onnxtest.Dims(1), Sequence: true}, `input "x": it is a sequence: only tensors can be served: export the model with tensors only (a classifier that skl2onnx converts, with the option zipmap=False)`},
	} {
		t.Run(name, func(t *testing.T) {
			in, out := c.value, c.value
			in.Name, out.Name = "x", "y"
			model := onnxtest.Model{
				Inputs:  []onnxtest.Value{in},
				Nodes:   []onnxtest.Node{{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}}},
				Outputs: []onnxtest.Value{out},
				Opset:   19, // float8
			}
			_, err := testRuntime(t).Open(onnx.SessionOptions{Path: model.Write(t)})
			require.ErrorContains(t, err, c.want)
			require.Equal(t, status.Unsupported, status.CodeOf(err))
		})
	}
}

// TestComplex is a type that ONNX Runtime itself refuses.
func TestComplex(t *testing.T) {
	value := onnxtest.Value{Name: "x", Type: onnxtest.Complex64, Dims: onnxtest.Dims(1)}
	model := onnxtest.Model{Inputs: []onnxtest.Value{value}, Outputs: []onnxtest.Value{value}}
	_, err := testRuntime(t).Open(onnx.SessionOptions{Path: model.Write(t)})
	require.ErrorContains(t, err, "model file 1/model.onnx: ")
	require.ErrorContains(t, err, "complex64")
}
