package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/cli/scaffold"
	"tritonstateful/internal/modelconfig"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/tensor"
)

// choices makes decisions out of a fuzzer's bytes; when they are used up, it always takes the first.
type choices struct{ data []byte }

func choose[T any](c *choices, from ...T) T {
	if len(c.data) == 0 {
		return from[0]
	}
	b := int(c.data[0])
	c.data = c.data[1:]
	return from[b%len(from)]
}

// tensors are those of a model, with names that go well and badly together.
func (c *choices) tensors() (infos []onnx.TensorInfo) {
	for range choose(c, 2, 0, 1, 3, 4) {
		info := onnx.TensorInfo{
			Name:     choose(c, "x", "s", "new_s", "s_out", "START", "y", "h_in", "h_out", "a'b\\\"\n", "past_len"),
			DType:    choose(c, tensor.FP32, tensor.FP32, tensor.Int64, tensor.FP16, tensor.Bool, tensor.Bytes, tensor.Invalid),
			Optional: choose(c, false, false, false, true),
		}
		if slices.ContainsFunc(infos, func(other onnx.TensorInfo) bool { return other.Name == info.Name }) {
			continue
		}
		for range choose(c, 2, 0, 1, 3) {
			extent := choose[int64](c, tensor.Dynamic, tensor.Dynamic, 1, 2, 3, 0, 1<<31, 1<<62)
			symbol := ""
			if extent == tensor.Dynamic {
				symbol = choose(c, "batch", "batch", "", "T", "past + 1")
			}
			info.Dims, info.Symbols = append(info.Dims, extent), append(info.Symbols, symbol)
		}
		if info.Dims == nil && choose(c, true, false) {
			info.Dims, info.Symbols = tensor.Shape{}, []string{}
		}
		infos = append(infos, info)
	}
	return infos
}

// zeros runs any model: outputs are zeros, with the batch of the inputs.
func zeros(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
	lanes := int64(1)
	for i := range inputs {
		if axis := slices.Index(sig.Inputs[i].Symbols, "batch"); axis >= 0 && axis < len(inputs[i].Shape) {
			lanes = inputs[i].Shape[axis]
		}
	}
	for i := range outputs {
		shape := sig.Outputs[i].Dims.Clone()
		for axis := range shape {
			if shape[axis] < 0 {
				shape[axis] = lanes
			}
		}
		if outputs[i].DType == tensor.Invalid {
			continue
		}
		if size, err := shape.Bytes(outputs[i].DType); err != nil || size > 1<<20 {
			return errors.New("an output is too large")
		}
		runnertest.Allocate(&outputs[i], shape...)
	}
	return nil
}

// FuzzInspect looks at random models with random configurations: nothing may panic, the JSON is what docs/command-inspect.md says,
// and what init would write can be read.
func FuzzInspect(f *testing.F) {
	f.Add([]byte(nil))
	for seed := range byte(40) {
		data := make([]byte, 100)
		for i := range data {
			data[i] = byte(i)*(2*seed+1) ^ seed*37
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{data}
		sig := onnx.Signature{Inputs: c.tensors(), Outputs: c.tensors()}
		open := func(onnx.SessionOptions) (onnx.Runner, error) {
			file := &runnertest.File{Sig: sig, Runs: choose(c, zeros, zeros, nil)}
			file.Heap.Limit = 1 << 28 // a model can ask for any memory, which ONNX Runtime refuses, too
			return file, nil
		}
		given, err := modelconfig.Parse([]byte(choose(c, "", "sequence_batching { oldest { } }", "sequence_batching { direct { } } max_batch_size: 4 ", "dynamic_batching { }") +
			choose(c, "", "", parameter("state_pairs", "<<<s, new_s>>>"), parameter("batch_axes", "* = 0"), parameter("sequences", "free"), parameter("verify", "never"))))
		require.NoError(t, err)
		given.Name, given.Backend = "fuzz", "stateful"
		files := &offline.Files{Name: "fuzz", Directory: "/none", Model: "/none/fuzz.onnx", Given: given}
		model, err := files.Look(open)
		if err != nil {
			return
		}
		result := inspectionOf(model)
		var b bytes.Buffer
		require.NoError(t, (&command{stdout: &b, json: true}).emit(result, nil))
		var again inspection
		require.NoError(t, json.Unmarshal(b.Bytes(), &again))
		require.Equal(t, model.Plan != nil, again.Served)
		require.Equal(t, again.Served, len(again.Questions) == 0)
		for _, field := range []string{"tensors", "questions", "warnings", "notes"} {
			require.NotContains(t, b.String(), `"`+field+`": null`)
		}
		b.Reset()
		require.NoError(t, (&command{stdout: &b}).emit(result, func(w io.Writer) { (&command{}).writeInspection(w, result) }))
		if !again.Served {
			return
		}
		for _, short := range []bool{true, false} {
			text, err := scaffold.Configure(model, scaffold.Options{Scheduler: choose(c, scaffold.Schedulers...), Short: short})
			require.NoError(t, err)
			_, err = modelconfig.Parse([]byte(text))
			require.NoError(t, err, text)
		}
	})
}
