package backend

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// stringTensor is a tensor of strings as the server has it.
func stringTensor(all ...string) (data []byte) {
	for _, text := range all {
		data = append(binary.NativeEndian.AppendUint32(data, uint32(len(text))), text...)
	}
	return data
}

// echoModel has strings of one input as its output, and a state that counts runs.
func echoModel() (*scripted, *config.Config) {
	s, c := sumModel(), sumConfig()
	s.sig.Inputs[0] = info("Input", tensor.Bytes, -1, 2)
	s.sig.Outputs[0] = info("Output", tensor.Bytes, -1, 2)
	s.run = func(inputs, outputs []onnx.Tensor) error {
		outputs[0].Data = statebuffer.Block{Bytes: []byte(string(inputs[0].Data.Bytes)), Size: inputs[0].Data.Size}
		outputs[0].Shape = inputs[0].Shape
		return nil
	}
	c.Inputs[0].DataType, c.Outputs[0].DataType = "TYPE_STRING", "TYPE_STRING"
	return s, c
}

// TestStrings: strings of any length find their way through a batch.
func TestStrings(t *testing.T) {
	for _, padding := range []string{"none", "max"} {
		model, c := echoModel()
		c.Parameters["batch_padding"] = config.Value{String: padding}
		in := model.loaded(t, c)
		request := func(id uint64, data []byte) Request {
			return Request{Sequence: SequenceID{Number: id}, Start: true, Inputs: []Input{{Present: true, DType: tensor.Bytes, Shape: tensor.Shape{1, 2}, Data: data}}}
		}
		all := [][]byte{stringTensor("one", ""), stringTensor("", "a long text of many words"), stringTensor("größe", "\x00")}
		got := send(t, in, request(1, all[0]), request(2, all[1]), request(3, all[2]))
		for i, a := range got {
			require.NoError(t, a.err)
			require.Equal(t, all[i], a.outputs[0])
			require.Equal(t, tensor.Shape{1, 2}, a.shapes[0])
		}
		for _, bad := range [][]byte{stringTensor("one"), stringTensor("one", "two", "three"), stringTensor("one", "two")[:10], {255, 255, 255, 255}, nil} {
			got := send(t, in, request(1, append([]byte(nil), bad...)), request(2, all[1]))
			require.ErrorContains(t, got[0].err, `input "Input"`, "%q", bad)
			require.Equal(t, status.InvalidArg, status.CodeOf(got[0].err))
			require.Equal(t, all[1], got[1].outputs[0])
		}
	}
}

func TestStringsNotInferred(t *testing.T) {
	model, c := echoModel()
	c.Parameters["infer_end_requests"] = config.Value{String: "0"}
	in := model.loaded(t, c)
	got := succeed(t, in, Request{Sequence: SequenceID{Number: 1}, End: true, Inputs: []Input{{}}})
	require.Equal(t, tensor.Shape{1, 1}, got[0].shapes[0])
	require.Equal(t, stringTensor(""), got[0].outputs[0], "one string, empty")
}

// TestOptionalInput: one that the model has a default for may be left out;
// requests with and without it do not share a run.
func TestOptionalInput(t *testing.T) {
	model, c := sumModel(), sumConfig()
	bias := info("Bias", tensor.Int32, -1, 2)
	bias.Optional = true
	model.sig.Inputs = append(model.sig.Inputs, bias)
	var present []bool
	model.run = func(inputs, _ []onnx.Tensor) error {
		present = append(present, inputs[2].DType != tensor.Invalid)
		return nil
	}
	c.Inputs = append(c.Inputs, config.TensorConfig{Name: "Bias", DataType: "TYPE_INT32", Dims: tensor.Shape{2}, Optional: true})
	in := model.loaded(t, c)
	require.True(t, in.Inputs()[1].Optional)
	present = nil
	one := intInput(tensor.Shape{1, 2}, 1, 2)
	request := func(id uint64, with bool) Request {
		r := Request{Sequence: SequenceID{Number: id}, Start: true, Inputs: append(append([]Input(nil), one...), Input{})}
		if with {
			r.Inputs[1] = one[0]
		}
		return r
	}
	succeed(t, in, request(1, true), request(2, false), request(3, true))
	require.Equal(t, []bool{true, false}, present)
}

// TestStringsOfSeveralRows: padding is the strings of one lane, also where the first
// request has several.
func TestStringsOfSeveralRows(t *testing.T) {
	m := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("Input", tensor.Bytes, -1, 2)},
		Outputs: []onnx.TensorInfo{info("Output", tensor.Bytes, -1, 2)},
	}}
	var given []byte
	m.run = func(inputs, outputs []onnx.Tensor) error {
		given = append([]byte(nil), inputs[0].Data.Bytes...)
		outputs[0].Data, outputs[0].Shape = statebuffer.Block{Bytes: given, Size: int64(len(given))}, inputs[0].Shape
		return nil
	}
	c := &config.Config{
		Name: "model", MaxBatchSize: 4, Parameters: map[string]config.Value{"batch_padding": {String: "max"}},
		Inputs:  []config.TensorConfig{{Name: "Input", DataType: "TYPE_STRING", Dims: tensor.Shape{2}}},
		Outputs: []config.TensorConfig{{Name: "Output", DataType: "TYPE_STRING", Dims: tensor.Shape{2}}},
	}
	in := m.loaded(t, c)
	got := succeed(t, in, Request{Inputs: []Input{{Present: true, DType: tensor.Bytes, Shape: tensor.Shape{2, 2}, Data: stringTensor("a", "bc", "", "d")}}})
	require.Equal(t, stringTensor("a", "bc", "", "d"), got[0].outputs[0])
	require.Equal(t, stringTensor("a", "bc", "", "d", "a", "bc", "a", "bc"), given)
}

// TestPaddingRepeatsInputs: padding lanes have the first lane's inputs, so that a model that
// takes no zeros runs, wherever its batch is and from wherever the inputs come.
func TestPaddingRepeatsInputs(t *testing.T) {
	for batch, want := range [][]int32{{1, 2, 3, 4, 5, 6, 1, 2, 3, 1, 2, 3}, {1, 4, 1, 1, 2, 5, 2, 2, 3, 6, 3, 3}} {
		m, c := copyModel(tensor.Shape{3, 3}.With(batch, tensor.Dynamic), make([]string, 2), make([]string, 2))
		var given []int32
		inner := m.run
		m.run = func(inputs, outputs []onnx.Tensor) error {
			given = numbers(inputs[0].Data.Bytes)
			return inner(inputs, outputs)
		}
		c.MaxBatchSize, c.Parameters["batch_padding"] = 4, config.Value{String: "max"}
		c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{3}, tensor.Shape{3}
		in := m.loaded(t, c)
		got := succeed(t, in, Request{Inputs: intInput(tensor.Shape{2, 3}, 1, 2, 3, 4, 5, 6)})
		require.Equal(t, []int32{1, 2, 3, 4, 5, 6}, numbers(got[0].outputs[0]))
		require.Equal(t, want, given)
	}
}
