package ortrunner

import (
	"encoding/binary"
	"log/slog"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
	"tritonstateful/statebuffer"
)

// TestMain checks that no goroutine is left: a session on a GPU has one.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// library is the path of a real ONNX Runtime; the test is skipped without one.
func library(t testing.TB) string {
	t.Helper()
	path := os.Getenv("STATEFUL_ORT_LIB")
	if path == "" {
		t.Skip("no ONNX Runtime: set STATEFUL_ORT_LIB to the path of libonnxruntime.so to run this test")
	}
	return path
}

func testRuntime(t testing.TB) *Runtime {
	t.Helper()
	rt, err := New(Options{Library: library(t), LogLevel: 3, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return rt
}

// open loads a model on one thread and closes it when the test ends.
func open(t testing.TB, model onnxtest.Model) *runner {
	t.Helper()
	opened, err := testRuntime(t).Open(onnx.SessionOptions{Path: model.Write(t), IntraOpThreads: 1})
	require.NoError(t, err)
	t.Cleanup(opened.Close)
	return opened.(*runner)
}

// blockOf is a block that holds the given bytes.
func blockOf(t testing.TB, r *runner, data []byte) statebuffer.Block {
	t.Helper()
	block, err := r.Memory().Alloc(int64(len(data)))
	require.NoError(t, err)
	copy(block.Bytes, data)
	return block
}

// tensorOf is a tensor with the given elements, a slice of numbers or bools.
func tensorOf(t testing.TB, r *runner, d tensor.DType, shape tensor.Shape, elements any) onnx.Tensor {
	t.Helper()
	return onnx.Tensor{Data: blockOf(t, r, bytesOf(elements)), DType: d, Shape: shape}
}

// bytesOf is a slice of numbers or bools as they are in memory.
func bytesOf(elements any) []byte {
	data, err := binary.Append(nil, binary.NativeEndian, elements)
	if err != nil {
		panic(err)
	}
	return data
}

func floats(t testing.TB, r *runner, shape tensor.Shape, elements ...float32) onnx.Tensor {
	t.Helper()
	return tensorOf(t, r, tensor.FP32, shape, elements)
}

func appendFloat(b []byte, f float32) []byte {
	return binary.NativeEndian.AppendUint32(b, math.Float32bits(f))
}

// zeros is a tensor to be written to.
func zeros(t testing.TB, r *runner, d tensor.DType, shape tensor.Shape) onnx.Tensor {
	t.Helper()
	bytes, err := shape.Bytes(d)
	require.NoError(t, err)
	block, err := r.Memory().Alloc(bytes)
	require.NoError(t, err)
	return onnx.Tensor{Data: block, DType: d, Shape: shape}
}

// elements reads a tensor as numbers of type T.
func elements[T any](t testing.TB, x onnx.Tensor) []T {
	t.Helper()
	values := make([]T, binary.Size(x.Data.Bytes)/binary.Size(*new(T)))
	_, err := binary.Decode(x.Data.Bytes, binary.NativeEndian, values)
	require.NoError(t, err)
	return values
}

// wide is a graph's value of floats [batch, width].
func wide(name string, width int) onnxtest.Value {
	return onnxtest.Value{Name: name, Type: onnxtest.Float, Dims: onnxtest.Dims("batch", width)}
}

// accumulate is new = old + x, y = 2 * new, with [batch, width] each.
func accumulate(width int) onnxtest.Model {
	return onnxtest.Model{
		Inputs: []onnxtest.Value{wide("x", width), wide("old", width)},
		Nodes: []onnxtest.Node{
			{Op: "Add", Inputs: []string{"old", "x"}, Outputs: []string{"new"}},
			{Op: "Add", Inputs: []string{"new", "new"}, Outputs: []string{"y"}},
		},
		Outputs: []onnxtest.Value{wide("y", width), wide("new", width)},
	}
}

// nonZero is where x, a list, is not zero.
func nonZero() onnxtest.Model {
	return onnxtest.Model{
		Inputs:  []onnxtest.Value{{Name: "x", Type: onnxtest.Float, Dims: onnxtest.Dims("n")}},
		Nodes:   []onnxtest.Node{{Op: "NonZero", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Outputs: []onnxtest.Value{{Name: "y", Type: onnxtest.Int64, Dims: onnxtest.Dims(1, "found")}},
	}
}

// leftOpen are the outputs of a model, for the runner to allocate.
func leftOpen(r onnx.Runner) []onnx.Tensor {
	var outputs []onnx.Tensor
	for _, info := range r.Signature().Outputs {
		outputs = append(outputs, onnx.Tensor{DType: info.DType})
	}
	return outputs
}
