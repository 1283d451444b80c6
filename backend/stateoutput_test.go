package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// tailModel appends its input to a cache whose length stands in front, and lets
// clients see it; the cache has that shape. Its output says nothing of its axes.
func tailModel(batch int64) (*scripted, *config.Config) {
	cache := tensor.Shape{-1, batch, 1}
	if batch == 0 {
		cache = tensor.Shape{-1, 1}
	}
	m := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("Input", tensor.Int32, -1, 1), info("Cache", tensor.Int32, cache...)},
		Outputs: []onnx.TensorInfo{info("Output", tensor.Int32, -1, 1), info("NewCache", tensor.Int32, cache...)},
	}}
	m.run = func(inputs, outputs []onnx.Tensor) error {
		all := append(append([]byte(nil), inputs[1].Data.Bytes...), inputs[0].Data.Bytes...)
		shape := inputs[1].Shape.With(0, inputs[1].Shape[0]+1)
		outputs[1].Data, outputs[1].Shape = statebuffer.Block{Bytes: all, Size: int64(len(all))}, shape
		return nil
	}
	c := cacheConfig()
	c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{1}, tensor.Shape{1}
	c.Outputs = append(c.Outputs, config.TensorConfig{Name: "NewCache", DataType: "TYPE_INT32", Dims: tensor.Shape{-1, 1}})
	return m, c
}

// TestStateOutputAxis: the answer with a state is cut at the state's own batch axis,
// also where only the state's input says which it is. Its length must not be taken for
// lanes: where there are as many, each client would get a part of both caches.
func TestStateOutputAxis(t *testing.T) {
	named := func(m *scripted, _ *config.Config) {
		m.sig.Inputs[0].Symbols[0], m.sig.Inputs[1].Symbols[1], m.sig.Outputs[0].Symbols[0] = "batch", "batch", "batch"
	}
	given := func(_ *scripted, c *config.Config) { c.Parameters["batch_axes"] = config.Value{String: "Cache = 1"} }
	for name, edit := range map[string]func(*scripted, *config.Config){"named": named, "given": given} {
		t.Run(name, func(t *testing.T) {
			m, c := tailModel(-1)
			edit(m, c)
			in := m.loaded(t, c)
			send(t, in, one(1, true, 10))
			send(t, in, one(2, true, 20))
			for step, want := range [][2][]int32{{{10, 11}, {20, 21}}, {{10, 11, 12}, {20, 21, 22}}} {
				got := send(t, in, one(1, false, 11+int32(step)), one(2, false, 21+int32(step)))
				for i := range got {
					require.NoError(t, got[i].err)
					require.Equal(t, want[i], numbers(got[i].outputs[1]))
					require.Equal(t, tensor.Shape{1, int64(step + 2), 1}, got[i].shapes[1])
				}
			}
		})
	}
}

// TestOutputOfStateWithoutBatch: a state that has no batch has none in the answer.
func TestOutputOfStateWithoutBatch(t *testing.T) {
	m, c := tailModel(0)
	c.Parameters["batch_axes"] = config.Value{String: "Cache = none"}
	in := m.loaded(t, c)
	send(t, in, one(1, true, 10))
	got := succeed(t, in, one(1, false, 11))
	require.Equal(t, []int32{10, 11}, numbers(got[0].outputs[1]))
	require.Equal(t, tensor.Shape{1, 2, 1}, got[0].shapes[1])
}

// TestBatchAxesForEach: batch_axes may name each tensor of the model, also those for
// which the backend need not ask; what it says of a state's output must be right.
func TestBatchAxesForEach(t *testing.T) {
	for axes, want := range map[string]string{
		"Input = 0; Output = 0; Sum = 0; NewSum = 0; Extra = 0": "",
		"New* = 1; * = 0":      "", // the pattern may be meant for others
		"Sum = 0; NewSum = 1":  `batch_axes says axis 1 of "NewSum"`,
		"NewSum = none":        `and batch_axes says no axis of "NewSum"`,
		"NewSum = 2":           `parameter batch_axes: "NewSum" has "2"`,
		"Extra = 0; Ekstra= 0": `parameter batch_axes: no tensor named "Ekstra"`,
	} {
		m, c := sumModel(), sumConfig()
		m.sig.Outputs = append(m.sig.Outputs, info("Extra", tensor.Int32, -1))
		c.Parameters["batch_axes"] = config.Value{String: axes}
		_, err := m.instance(t, c, "")
		if want == "" {
			require.NoError(t, err, axes)
			continue
		}
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n", "one fault")
	}
}

// TestStateOutputOfOtherDims: an answer with a state is as large as the state.
func TestStateOutputOfOtherDims(t *testing.T) {
	m, c := sumModel(), sumConfig()
	for _, infos := range [][]onnx.TensorInfo{m.sig.Inputs[1:], m.sig.Outputs[1:]} {
		infos[0].Dims, infos[0].Symbols = tensor.Shape{-1, -1}, []string{"batch", "size"}
	}
	m.sig.Inputs[0].Symbols[0], m.sig.Outputs[0].Symbols[0] = "batch", "batch"
	c.Sequence.States = []config.StateConfig{{InputName: "Sum", OutputName: "NewSum", DataType: "TYPE_INT32", Dims: tensor.Shape{2}}}
	c.Outputs = append(c.Outputs, config.TensorConfig{Name: "NewSum", DataType: "TYPE_INT32", Dims: tensor.Shape{3}})
	_, err := m.instance(t, c, "")
	require.ErrorContains(t, err, `output "NewSum": dims are [3]`)
	for _, open := range []int64{-1, 2} {
		c.Outputs[1].Dims = tensor.Shape{open}
		in := m.loaded(t, c)
		got := send(t, in, Request{Sequence: SequenceID{Number: 1}, Start: true, Inputs: intInput(tensor.Shape{1, 2}, 1, 2)})
		require.Equal(t, tensor.Shape{1, 2}, got[0].shapes[1])
		in.Close()
	}
}
