package backend

import (
	"log/slog"
	"sync/atomic"
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

// newModel is a model of a configuration, for whose instances open gives the runners.
func newModel(t testing.TB, directory string, cfg []byte, open onnx.OpenRunner) (*Model, *recorder) {
	t.Helper()
	log := newRecorder(slog.LevelInfo)
	var now atomic.Int64
	now.Store(int64(time.Hour))
	model, err := NewModel(ModelInfo{Name: "model", Version: 1, Directory: directory, Config: cfg}, Server{
		Log: slog.New(log), Clock: func() time.Duration { return time.Duration(now.Add(1)) }, Open: open,
	})
	require.NoError(t, err)
	return model, log
}

// instance loads a scripted model for a configuration.
func (s *scripted) instance(t testing.TB, c *config.Config, directory string) (*Instance, error) {
	in, _, err := s.load(t, c, directory)
	return in, err
}

// load is instance, with the log.
func (s *scripted) load(t testing.TB, c *config.Config, directory string) (*Instance, *recorder, error) {
	open := func(onnx.SessionOptions) (onnx.Runner, error) { return s, nil }
	model, log := newModel(t, directory, (&setup{config: c}).json(), open)
	in, err := model.NewInstance(InstanceInfo{Name: "model_0", Kind: "cpu"})
	t.Cleanup(func() {
		if in != nil {
			in.Close()
		}
		require.Zero(t, s.memory.Used())
	})
	return in, log, err
}

// logged is an instance of a scripted model that can be loaded, and its log.
func (s *scripted) logged(t testing.TB, c *config.Config) (*Instance, *recorder) {
	t.Helper()
	in, log, err := s.load(t, c, "")
	require.NoError(t, err)
	return in, log
}

// loaded is an instance of a scripted model that can be loaded.
func (s *scripted) loaded(t testing.TB, c *config.Config) *Instance {
	t.Helper()
	in, _ := s.logged(t, c)
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
