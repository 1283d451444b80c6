package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// scaledModel adds an input without a batch axis, which has a default, to every
// element; bound notes what was given for it, nil where nothing was.
func scaledModel() (model *scripted, c *config.Config, bound *[][]int32) {
	model, c, bound = sumModel(), sumConfig(), new([][]int32)
	model.sig.Inputs, model.sig.Outputs = model.sig.Inputs[:1], model.sig.Outputs[:1]
	gain := info("Gain", tensor.Int32, 1)
	gain.Optional = true
	model.sig.Inputs = append(model.sig.Inputs, gain)
	model.run = func(inputs, _ []onnx.Tensor) error {
		*bound = append(*bound, nil)
		if inputs[1].DType != tensor.Invalid {
			(*bound)[len(*bound)-1] = numbers(inputs[1].Data.Bytes)
		}
		return nil
	}
	c.Sequence, c.Parameters = nil, nil
	c.Inputs = append(c.Inputs, config.TensorConfig{Name: "Gain", DataType: "TYPE_INT32", Dims: tensor.Shape{1}, Optional: true})
	return model, c, bound
}

func scaled(rows int64, gains ...int32) Request {
	r := Request{Inputs: append(intInput(tensor.Shape{rows, 2}, make([]int32, 2*rows)...), Input{})}
	if len(gains) > 0 {
		r.Inputs[1] = intInput(tensor.Shape{int64(len(gains)), 1}, gains...)[0]
	}
	return r
}

// TestInputWithoutBatchAxis: the model takes it once, whatever the number of lanes;
// requests that differ in it, or leave it out, do not share a run.
func TestInputWithoutBatchAxis(t *testing.T) {
	model, c, bound := scaledModel()
	in := model.loaded(t, c)
	*bound = nil
	got := send(t, in, scaled(1), scaled(2, 7, 7), scaled(1, 7), scaled(1, 8), scaled(2, 7, 9), scaled(2, 7))
	require.Equal(t, [][]int32{nil, {7}, {8}}, *bound)
	for _, a := range got[:4] {
		require.NoError(t, a.err)
	}
	require.ErrorContains(t, got[4].err, `input "Gain" differs within the batch`)
	require.ErrorContains(t, got[5].err, `input "Gain" has shape [1,1]`)
}

// TestLeadingInputLeftOut: the batch is that of the first input that is there.
func TestLeadingInputLeftOut(t *testing.T) {
	model, c, _ := scaledModel()
	c.Inputs[0], c.Inputs[1] = c.Inputs[1], c.Inputs[0]
	in := model.loaded(t, c)
	r := scaled(3)
	r.Inputs[0], r.Inputs[1] = r.Inputs[1], r.Inputs[0]
	got := succeed(t, in, r)
	require.Equal(t, tensor.Shape{3, 2}, got[0].shapes[0])
}

// TestTextIDControl: a model gets the correlation IDs as strings; a padding lane
// has an empty one.
func TestTextIDControl(t *testing.T) {
	model, c := sumModel(), sumConfig()
	model.sig.Inputs = append(model.sig.Inputs, info("ID", tensor.Bytes, -1, 1))
	var ids []byte
	model.run = func(inputs, _ []onnx.Tensor) error {
		ids = append([]byte(nil), inputs[2].Data.Bytes...)
		return nil
	}
	c.Sequence.ControlInputs = []config.ControlConfig{{Name: "ID", Controls: []config.Control{{Kind: config.ControlCorrID, DataType: "TYPE_STRING"}}}}
	c.Parameters["batch_padding"] = config.Value{String: "max"}
	in := model.loaded(t, c)
	require.Equal(t, stringTensor("", "", "", ""), ids, "while warming up")
	request := func(id string) Request {
		return Request{Sequence: SequenceID{Text: id}, Start: true, Inputs: intInput(tensor.Shape{1, 2}, 1, 2)}
	}
	succeed(t, in, request("a"), request("größer"), request("c"))
	require.Equal(t, stringTensor("a", "größer", "c", ""), ids)
}

// TestVaryingStateWithoutBatchAxis: every sequence has its length, and runs alone.
func TestVaryingStateWithoutBatchAxis(t *testing.T) {
	model, c := cacheModel(), cacheConfig()
	for _, infos := range [][]onnx.TensorInfo{model.sig.Inputs, model.sig.Outputs} {
		for i := range infos {
			infos[i] = info(infos[i].Name, tensor.Int32, -1)
		}
	}
	model.run = func(inputs, outputs []onnx.Tensor) error {
		all := append(append([]byte(nil), inputs[1].Data.Bytes...), inputs[0].Data.Bytes...)
		for i := range outputs {
			outputs[i].Data = statebuffer.Block{Bytes: all, Size: int64(len(all))}
			outputs[i].Shape = tensor.Shape{int64(len(all)) / 4}
		}
		return nil
	}
	c.Parameters["batch_axes"] = config.Value{String: "* = none"}
	in := model.loaded(t, c)
	send(t, in, words(1, true, false, 10), words(2, true, false, 20, 21))
	got := send(t, in, words(2, false, false, 22), words(1, false, false, 11))
	require.Equal(t, []int32{20, 21, 22}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{10, 11}, numbers(got[1].outputs[0]))
}

// TestInitialShapeOtherThanTheOutputs: where the input's extent is open, a state
// may begin with another one than the output always has.
func TestInitialShapeOtherThanTheOutputs(t *testing.T) {
	model, c := cacheModel(), cacheConfig()
	model.sig.Outputs[1].Dims = tensor.Shape{-1, 3}
	c.Parameters["initial_states"] = config.Value{String: "Cache = 0[1]"}
	in := model.loaded(t, c)
	require.Len(t, in.plan.Varying, 1)
	require.Equal(t, tensor.Shape{1, 1}, in.plan.Varying[0].Shape)

	model, c = cacheModel(), cacheConfig()
	model.sig.Inputs[1].Dims = tensor.Shape{-1, 3}
	c.Parameters["initial_states"] = config.Value{String: "Cache = 0[1]"}
	_, err := model.instance(t, c, "")
	require.ErrorContains(t, err, "shape [1] does not fit the state's [1,3]")
}

// TestFilledInputOfFixedBatch: where batch_axes takes the only element of an input
// that the backend fills for its batch, runs have one lane; more elements cannot be, and a
// pattern is not meant for them.
func TestFilledInputOfFixedBatch(t *testing.T) {
	for _, p := range [][3]string{
		{"constant_inputs", "rate = 16000", "* = 0"},
		{"constant_inputs", "rate = 16000", "* = 0; rate = 0"}, {"derived_inputs", "rate = steps", "* = 0; rate = 0"},
	} {
		for extent := range int64(3) {
			if extent == 0 && p[2] == "* = 0" {
				continue
			}
			m, c := deltaModel(func([]int32) {}), deltaConfig()
			m.sig.Inputs = append(m.sig.Inputs, info("rate", tensor.Int32, extent))
			inner := m.run
			m.run = func(inputs, outputs []onnx.Tensor) error {
				require.Equal(t, tensor.Shape{extent}, inputs[2].Shape)
				return inner(inputs, outputs)
			}
			c.Parameters[p[0]], c.Parameters["batch_axes"] = config.Value{String: p[1]}, config.Value{String: p[2]}
			in, err := m.instance(t, c, "")
			if extent != 1 && p[2] != "* = 0" {
				require.ErrorContains(t, err, `input "rate": batch_axes names axis 0 of [`)
				require.ErrorContains(t, err, `], which is fixed`)
				continue
			}
			require.NoError(t, err)
			succeed(t, in, one(1, true, 1), one(2, true, 2))
		}
	}
}
