package planner

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// npyFile is a file of format version 1.
func npyFile(header string, data []byte) []byte {
	file := append([]byte(npyMagic), 1, 0)
	file = binary.LittleEndian.AppendUint16(file, uint16(len(header)))
	return append(append(file, header...), data...)
}

// FuzzNPY: whatever a file holds, an array that is accepted has the bytes that
// its shape says.
func FuzzNPY(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(npyMagic))
	f.Add(npyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }", make([]byte, 8)))
	f.Add(npyFile("{'descr': '|b1', 'fortran_order': True, 'shape': (3,), }", make([]byte, 3)))
	f.Add(npyFile("{'descr': '<i8', 'fortran_order': False, 'shape': (9223372036854775807, 2), }", nil))
	f.Add(npyFile("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", make([]byte, 8)))
	f.Add(append([]byte(npyMagic), 2, 0, 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, file []byte) {
		dtype, shape, data, err := ParseNPY(file)
		if err != nil {
			return
		}
		want, err := shape.Bytes(dtype)
		require.NoError(t, err)
		require.EqualValues(t, want, len(data))
	})
}

// FuzzInitialValue: shapes and numbers of the parameter initial_states.
func FuzzInitialValue(f *testing.F) {
	f.Add("1.5[2,3]", uint8(tensor.FP32), uint8(1))
	f.Add("-7", uint8(tensor.Int8), uint8(0))
	f.Add("ones[9223372036854775807,2]", uint8(tensor.FP16), uint8(0))
	f.Add("file:../../etc/passwd", uint8(tensor.Uint8), uint8(2))
	f.Add("nan[]", uint8(tensor.BF16), uint8(3))
	f.Fuzz(func(t *testing.T, text string, dtype, rank uint8) {
		s := &plan.State{DType: tensor.DType(dtype % 15), Axis: 0, Dims: tensor.Shape{1, -1, 3, -1}[:1+rank%4]}
		s.Shape = s.Dims.Clone()
		sig := &onnx.Signature{Inputs: []onnx.TensorInfo{{Name: "s", DType: s.DType, Dims: s.Dims.With(0, tensor.Dynamic)}}}
		pl := &planner{params: &config.Parameters{}, sig: sig, files: func(string) ([]byte, error) { return []byte(text), nil }}
		if err := pl.initialFromText(s, text); err != nil {
			return
		}
		want, err := s.Shape.Bytes(s.DType)
		require.NoError(t, err)
		require.EqualValues(t, want, len(s.Value))
	})
}
