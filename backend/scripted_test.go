package backend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// scripted is a Runner whose model is a function.
type scripted struct {
	sig    onnx.Signature
	memory statebuffer.Heap
	run    func(inputs, outputs []onnx.Tensor) error
}

func (s *scripted) Signature() *onnx.Signature { return &s.sig }
func (s *scripted) Memory() statebuffer.Memory { return &s.memory }
func (s *scripted) Close()                     {}

// Run gives outputs that are left open the extents of the first input where the
// model leaves theirs open; the function may give them others.
func (s *scripted) Run(inputs, outputs []onnx.Tensor) error {
	for k := range outputs {
		out := &outputs[k]
		if out.DType == tensor.Invalid || out.DType == tensor.Bytes || out.Data.Size > 0 {
			continue
		}
		out.Shape = s.sig.Outputs[k].Dims.Clone()
		for i, d := range out.Shape {
			if d < 0 && i < len(inputs[0].Shape) {
				out.Shape[i] = inputs[0].Shape[i]
			}
		}
		if bytes, err := out.Shape.Bytes(out.DType); err == nil {
			out.Data = statebuffer.Block{Bytes: make([]byte, bytes), Size: bytes}
		}
	}
	return s.run(inputs, outputs)
}

// instance loads a scripted model for a configuration.
func (s *scripted) instance(t testing.TB, c *config.Config, directory string) (*Instance, error) {
	set := &setup{config: c}
	now := time.Hour
	model, err := NewModel(ModelInfo{Name: "model", Version: 1, Directory: directory, Config: set.json()}, Server{
		Log: newServer(t).in.log, Clock: func() time.Duration { now++; return now },
		Open: func(onnx.SessionOptions) (onnx.Runner, error) { return s, nil },
	})
	require.NoError(t, err)
	in, err := model.NewInstance(InstanceInfo{Name: "model_0", Kind: "cpu"})
	t.Cleanup(func() {
		if in != nil {
			in.Close()
		}
		require.Zero(t, s.memory.Used())
	})
	return in, err
}

// loaded is an instance of a scripted model that can be loaded.
func (s *scripted) loaded(t testing.TB, c *config.Config) *Instance {
	t.Helper()
	in, err := s.instance(t, c, "")
	require.NoError(t, err)
	return in
}

// nameBatch gives the first axis of every tensor the batch's name.
func (s *scripted) nameBatch() {
	for _, infos := range [][]onnx.TensorInfo{s.sig.Inputs, s.sig.Outputs} {
		for i := range infos {
			infos[i].Symbols[0] = "batch"
		}
	}
}

// addInput adds an input, the first axis of which is the batch.
func (s *scripted) addInput(name string, dtype tensor.DType, dims ...int64) {
	i := info(name, dtype, dims...)
	i.Symbols[0] = "batch"
	s.sig.Inputs = append(s.sig.Inputs, i)
}

// wrapped is another Runner whose Run is a function.
type wrapped struct {
	onnx.Runner
	run func(inputs, outputs []onnx.Tensor) error
}

func (w *wrapped) Run(inputs, outputs []onnx.Tensor) error { return w.run(inputs, outputs) }
