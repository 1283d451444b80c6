package backend

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// tensors reads "x:FP32[B,3] h:INT64[2,?]": a word is the name of a dynamic axis,
// ? one without a name.
func tensors(t testing.TB, text string) (infos []onnx.TensorInfo) {
	for _, field := range strings.Fields(text) {
		name, rest, _ := strings.Cut(field, ":")
		typeName, extents, _ := strings.Cut(rest, "[")
		dtype, err := tensor.ParseDType("TYPE_" + typeName)
		require.NoError(t, err)
		one := onnx.TensorInfo{Name: name, DType: dtype, Dims: tensor.Shape{}, Symbols: []string{}}
		for extent := range strings.SplitSeq(strings.TrimSuffix(extents, "]"), ",") {
			if extent == "" {
				continue
			}
			n, err := strconv.ParseInt(extent, 10, 64)
			if err != nil {
				n = tensor.Dynamic
			}
			one.Dims = append(one.Dims, n)
			one.Symbols = append(one.Symbols, map[bool]string{true: strings.Trim(extent, "?"), false: ""}[err != nil])
		}
		infos = append(infos, one)
	}
	return infos
}

// fileOnly is a runner that tells of its model and cannot run it, unless runs does.
type fileOnly struct {
	sig    onnx.Signature
	heap   statebuffer.Heap
	runs   func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error
	closed bool
}

func (f *fileOnly) Signature() *onnx.Signature { return &f.sig }

func (f *fileOnly) Memory() statebuffer.Memory { return &f.heap }

func (f *fileOnly) Close() { f.closed = true }

func (f *fileOnly) Run(inputs, outputs []onnx.Tensor) error {
	if f.runs == nil {
		return errors.New("it cannot run")
	}
	return f.runs(&f.sig, inputs, outputs)
}
