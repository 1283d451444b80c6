package ortrunner

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner/onnxtest"
)

// serialize is Triton's form of strings.
func serialize(words ...string) []byte {
	data := []byte{}
	for _, w := range words {
		data = binary.NativeEndian.AppendUint32(data, uint32(len(w)))
		data = append(data, w...)
	}
	return data
}

func stringIdentity() onnxtest.Model {
	return onnxtest.Model{
		Inputs:  []onnxtest.Value{{Name: "x", Type: onnxtest.String, Dims: onnxtest.Dims("n", "m")}},
		Nodes:   []onnxtest.Node{{Op: "Identity", Inputs: []string{"x"}, Outputs: []string{"y"}}},
		Outputs: []onnxtest.Value{{Name: "y", Type: onnxtest.String, Dims: onnxtest.Dims("n", "m")}},
	}
}

// TestStrings passes strings through, of any bytes and lengths, in several shapes
// one after the other.
func TestStrings(t *testing.T) {
	r := open(t, stringIdentity())
	for _, c := range []struct {
		shape tensor.Shape
		words []string
	}{
		{tensor.Shape{1, 2}, []string{"hello", "world"}},
		{tensor.Shape{1, 2}, []string{"", "nul \x00 inside, \xff and é"}},
		{tensor.Shape{3, 1}, []string{strings.Repeat("long ", 10_000), "b", "c"}},
		{tensor.Shape{0, 2}, nil},
		{tensor.Shape{1, 1}, []string{""}},
	} {
		data := serialize(c.words...)
		x := onnx.Tensor{Data: blockOf(t, r, data), DType: tensor.Bytes, Shape: c.shape}
		out := leftOpen(r)
		require.NoError(t, r.Run([]onnx.Tensor{x}, out))
		require.Equal(t, tensor.Bytes, out[0].DType)
		require.Equal(t, c.shape, out[0].Shape)
		require.Equal(t, data, out[0].Data.Bytes)
	}
}

// TestBadStrings passes bytes that are not strings.
func TestBadStrings(t *testing.T) {
	r := open(t, stringIdentity())
	good := serialize("ab", "cd")
	for name, c := range map[string]struct {
		data  []byte
		shape tensor.Shape
		want  string
	}{
		"no prefix":    {good[:7], tensor.Shape{1, 2}, "7 bytes end before string 1 of 2"},
		"cut":          {good[:11], tensor.Shape{1, 2}, "string 1 of 2 has 2 bytes"},
		"too many":     {good, tensor.Shape{1, 1}, "6 bytes are left"},
		"wrong length": {[]byte{255, 255, 255, 255, 1}, tensor.Shape{1, 1}, "has 4294967295 bytes"},
		"wrong shape":  {good, tensor.Shape{1 << 40, 2}, "12 bytes end before string 2"},
		"overflow":     {good, tensor.Shape{1 << 40, 1 << 40}, "63 bits"},
		"empty":        {nil, tensor.Shape{1, 1}, "0 bytes end before string 0 of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			x := onnx.Tensor{Data: blockOf(t, r, c.data), DType: tensor.Bytes, Shape: c.shape}
			err := r.Run([]onnx.Tensor{x}, leftOpen(r))
			require.ErrorContains(t, err, `input "x": `)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
		})
	}
	x := onnx.Tensor{Data: blockOf(t, r, good), DType: tensor.Bytes, Shape: tensor.Shape{1, 2}}
	err := r.Run([]onnx.Tensor{x}, []onnx.Tensor{x})
	require.ErrorContains(t, err, `output "y": strings have no fixed size`)
}

func FuzzCheckStrings(f *testing.F) {
	f.Add(serialize("ab", "", "c"), int64(3))
	f.Add([]byte{1, 0, 0}, int64(1))
	f.Fuzz(func(t *testing.T, data []byte, count int64) {
		if checkStrings(data, count) != nil || count < 0 {
			return
		}
		words := make([]string, 0)
		for rest := data; len(rest) > 0; {
			end := 4 + int(binary.NativeEndian.Uint32(rest))
			words, rest = append(words, string(rest[4:end])), rest[end:]
		}
		require.EqualValues(t, count, len(words))
		require.Equal(t, data, serialize(words...))
	})
}
