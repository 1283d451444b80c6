package backend

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// floatModel keeps a state of floats; run gets the values of a run, of two for each
// lane, and makes them the output and the new state.
func floatModel(run func(x, s []float32)) *scripted {
	m := &scripted{sig: onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("Input", tensor.FP32, -1, 2), info("Sum", tensor.FP32, -1, 2)},
		Outputs: []onnx.TensorInfo{info("Output", tensor.FP32, -1, 2), info("NewSum", tensor.FP32, -1, 2)},
	}}
	read := func(t *onnx.Tensor) (f []float32) {
		for at := 0; at < len(t.Data.Bytes); at += 4 {
			f = append(f, math.Float32frombits(binary.NativeEndian.Uint32(t.Data.Bytes[at:])))
		}
		return f
	}
	m.run = func(inputs, outputs []onnx.Tensor) error {
		x, s := read(&inputs[0]), read(&inputs[1])
		run(x, s)
		for k, values := range [][]float32{x, s} {
			for i, v := range values {
				binary.NativeEndian.PutUint32(outputs[k].Data.Bytes[4*i:], math.Float32bits(v))
			}
		}
		return nil
	}
	return m
}

func floatConfig() *config.Config {
	c := sumConfig()
	c.Inputs[0].DataType, c.Outputs[0].DataType = "TYPE_FP32", "TYPE_FP32"
	return c
}

// TestLanesIsolated: where nothing says which axis is the batch, a model in which one
// lane sees another is not served. One with chance in it cannot be judged.
func TestLanesIsolated(t *testing.T) {
	sums := func(x, s []float32) {
		for i := range x {
			s[i] += x[i]
			x[i] = s[i]
		}
	}
	forward := func(x, s []float32) { // lane 1 sees lane 0
		for i := range x {
			if s[i] += x[i]; i >= 2 {
				x[i] += x[i-2]
			}
		}
	}
	backward := func(x, s []float32) { // the state of lane 0 sees lane 1
		if len(x) > 2 {
			s[0] += x[3]
		}
	}
	chance := float32(0)
	noisy := func(x, _ []float32) {
		chance++
		for i := range x {
			x[i] += chance
		}
	}
	for name, c := range map[string]struct {
		run  func(x, s []float32)
		axes string
		want string
	}{
		"isolated":           {sums, "", ""},
		"forward":            {forward, "", `output "Output" of one request changes`},
		"backward":           {backward, "", `output "NewSum" of one request changes`},
		"the operator knows": {forward, "* = 0", ""},
		"chance":             {noisy, "", `two runs on the same inputs differ: if the batch is there, write parameters { key: 'batch_axes' value { string_value: '* = 0' } }`},
		"told of chance":     {noisy, "* = 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := floatConfig()
			if c.axes != "" {
				cfg.Parameters["batch_axes"] = config.Value{String: c.axes}
			}
			_, err := floatModel(c.run).instance(t, cfg, "")
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.Equal(t, status.InvalidArg, status.CodeOf(err))
		})
	}
}

// TestLanesIsolatedOnDevice: the CPU judges, since the host cannot write the memory of a
// GPU; if it cannot open the model, a warning says so.
func TestLanesIsolatedOnDevice(t *testing.T) {
	model := floatModel(func(x, s []float32) { s[0] += x[len(x)-1] })
	cfg := floatConfig()
	cfg.Parameters["ort_ep"] = config.Value{String: "cuda"}
	load := func(onCPU error) (*recorder, error) {
		m, log := newModel(t, "", (&setup{config: cfg}).json(), func(o onnx.SessionOptions) (onnx.Runner, error) {
			if o.Provider == onnx.CPU {
				return model, onCPU
			}
			return &gpu{Runner: model, t: t}, nil
		})
		in, err := m.NewInstance(InstanceInfo{Name: "model_0_0", Kind: "gpu"})
		if err == nil {
			in.Close()
		}
		return log, err
	}
	_, err := load(nil)
	require.ErrorContains(t, err, `would not be independent: output "NewSum"`)
	_, err = load(errors.New("injected"))
	require.ErrorContains(t, err, "opened on the CPU: injected")
	model.nameBatch()
	log, err := load(errors.New("injected"))
	require.NoError(t, err)
	require.Len(t, log.having("could not verify that"), 1)
}

// TestLanesIsolatedOfLowerRank: what the model writes in the trial may have fewer axes
// than it has told of.
func TestLanesIsolatedOfLowerRank(t *testing.T) {
	m := crossModel(func(byte, int64) {})
	withoutSymbols(&m.sig)
	m.sig.Inputs[1].Dims, m.sig.Outputs[1].Dims = tensor.Shape{1, -1}, tensor.Shape{1, -1}
	inner := m.run
	m.run = func(inputs, outputs []onnx.Tensor) error {
		err := inner(inputs, outputs)
		outputs[1].Shape = outputs[1].Shape[:1]
		return err
	}
	in := m.loaded(t, crossConfig())
	require.ErrorContains(t, send(t, in, one(1, true, 1))[0].err, `state "Cross": the model wrote shape [1]`)
}

// TestLanesIsolatedWithAMask: a mask in the trial hides nothing, and is as long as the
// model wants it.
func TestLanesIsolatedWithAMask(t *testing.T) {
	for _, mask := range []string{"mask(Sum)", "mask(Sum, Input:1)"} {
		m, c := floatModel(nil), floatConfig()
		more := int64(index(mask != "mask(Sum)")) * 2
		m.sig.Inputs[1], m.sig.Outputs[1] = info("Sum", tensor.FP32, -1, -1), info("NewSum", tensor.FP32, -1, -1)
		m.sig.Inputs = append(m.sig.Inputs, info("Mask", tensor.Int32, -1, -1))
		m.run = func(inputs, outputs []onnx.Tensor) error {
			if length := inputs[1].Shape[1] + more; inputs[2].Shape[1] != length {
				return status.Errorf(status.InvalidArg, "the mask has shape %v for a length of %d", inputs[2].Shape, length)
			}
			sum := 0.0 // of all lanes, as far as the mask lets it see
			for i := range 2 * inputs[0].Shape[0] {
				sum += runnertest.Element(inputs[0].Data.Bytes, tensor.FP32, i) * runnertest.Element(inputs[2].Data.Bytes, tensor.Int32, 0)
			}
			runnertest.SetElement(outputs[0].Data.Bytes, tensor.FP32, 0, sum)
			outputs[1].Data, outputs[1].Shape = inputs[1].Data, inputs[1].Shape
			return nil
		}
		c.Parameters["batch_axes"], c.Parameters["derived_inputs"] = config.Value{String: "Sum = 0; Mask = 0"}, config.Value{String: "Mask = " + mask}
		_, err := m.instance(t, c, "")
		require.ErrorContains(t, err, `output "Output" of one request changes`)
	}
}
