// Package runnertest has what tests of those who use runners share: signatures that are
// written as text, runners whose model is a Go function, and elements of tensors as numbers.
package runnertest

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// Tensors reads "x:FP32[B,3] h:INT64[2,?]": a word is the name of a dynamic axis,
// ? one without a name.
func Tensors(t testing.TB, text string) (infos []onnx.TensorInfo) {
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

// File is a runner that describes its model and cannot run it, unless Runs does. One
// goroutine uses a File.
type File struct {
	Sig    onnx.Signature
	Heap   statebuffer.Heap
	Runs   func(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error
	Closed bool
}

// NewFile returns a runner that describes a model with these tensors, as Tensors reads them.
func NewFile(t testing.TB, inputs, outputs string) *File {
	return &File{Sig: onnx.Signature{Inputs: Tensors(t, inputs), Outputs: Tensors(t, outputs)}}
}

// Allocate makes out a tensor of zeros of that shape, as a model does whose outputs are left
// to it.
func Allocate(out *onnx.Tensor, shape ...int64) {
	bytes, err := tensor.Shape(shape).Bytes(out.DType)
	if err != nil {
		panic(err)
	}
	out.Shape, out.Data = slices.Clone(shape), statebuffer.Block{Bytes: make([]byte, bytes), Size: bytes}
}

// Signature implements onnx.Runner.
func (f *File) Signature() *onnx.Signature { return &f.Sig }

// Memory implements onnx.Runner.
func (f *File) Memory() statebuffer.Memory { return &f.Heap }

// Close implements onnx.Runner.
func (f *File) Close() { f.Closed = true }

// Run implements onnx.Runner.
func (f *File) Run(inputs, outputs []onnx.Tensor) error {
	if f.Runs == nil {
		return errors.New("it cannot run")
	}
	return f.Runs(&f.Sig, inputs, outputs)
}
