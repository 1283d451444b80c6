package backend

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// TestLengthOfAnInputLeftOut: an input that a request leaves out has the length 0,
// whether its shape is fixed or not, and the length of an earlier run does not show.
func TestLengthOfAnInputLeftOut(t *testing.T) {
	for name, extent := range map[string]int64{"any length": -1, "fixed length": 2} {
		t.Run(name, func(t *testing.T) {
			model, c := cacheModel(), cacheConfig()
			if extent > 0 { // everything is of fixed shape, so that ioSets are used again
				model, c = sumModel(), sumConfig()
			}
			extra := info("Extra", tensor.Int32, -1, extent)
			extra.Symbols, extra.Optional = []string{"batch", ""}, true
			model.sig.Inputs = append(model.sig.Inputs, extra)
			c.Inputs = append(c.Inputs, config.TensorConfig{Name: "Extra", DataType: "TYPE_INT32", Dims: tensor.Shape{extent}, Optional: true})
			for _, name := range []string{"before", "after"} {
				model.addInput(name, tensor.Int32, -1, 1)
			}
			model.nameBatch()
			var before, after []int32
			inner := model.run
			model.run = func(inputs, outputs []onnx.Tensor) error {
				before, after = numbers(inputs[3].Data.Bytes), numbers(inputs[4].Data.Bytes)
				return inner(inputs[:2], outputs)
			}
			c.Parameters["derived_inputs"] = config.Value{String: "before = length_before(Extra:1); after = length_after(Extra:1)"}
			in := model.loaded(t, c)
			ask := func(start, extra bool) {
				t.Helper()
				r := Request{Sequence: SequenceID{Number: 1}, Start: start, Inputs: append(intInput(tensor.Shape{1, 2}, 1, 2), Input{})}
				if extra {
					r.Inputs[1] = intInput(tensor.Shape{1, 2}, 3, 4)[0]
				}
				require.NoError(t, send(t, in, r)[0].err)
			}
			for i, step := range []struct {
				extra         bool
				before, after int32
			}{{false, 0, 0}, {true, 0, 2}, {false, 2, 2}} {
				ask(i == 0, step.extra)
				require.Equal(t, []int32{step.before}, before, "step %d", i)
				require.Equal(t, []int32{step.after}, after, "step %d", i)
			}
		})
	}
}
