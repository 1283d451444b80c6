package main

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// modelFile is an onnx.Runner that only describes its model: y = f(x), with the
// state h.
type modelFile struct {
	onnx.Runner
	closed int
}

func (f *modelFile) Close() { f.closed++ }

func (f *modelFile) Memory() statebuffer.Memory { return &statebuffer.Heap{} }

func (f *modelFile) Run(_, _ []onnx.Tensor) error {
	return errors.New("this is not a model")
}

func (f *modelFile) Signature() *onnx.Signature {
	info := func(name string, features int64) onnx.TensorInfo {
		return onnx.TensorInfo{Name: name, DType: tensor.FP32, Dims: tensor.Shape{tensor.Dynamic, features}, Symbols: []string{"batch", ""}}
	}
	return &onnx.Signature{
		Inputs:  []onnx.TensorInfo{info("x", 3), info("h", 2)},
		Outputs: []onnx.TensorInfo{info("y", 3), info("h_out", 2)},
	}
}

// threeLines is a configuration that leaves out all that the model file says.
const threeLines = `{"backend":"stateful","name":"m","sequence_batching":{}}`

const completed = `{"backend":"stateful","name":"m","max_batch_size":64,"sequence_batching":{},
	"input":[{"name":"x","data_type":"TYPE_FP32","dims":[3]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[3]}]}`

// newIncomplete is a server whose model is three lines, and what it was loaded
// with.
func newIncomplete(t *testing.T, open onnx.OpenRunner) (s server, loaded *backend.ModelInfo) {
	loaded = &backend.ModelInfo{}
	s = server{backend: faketriton.NewBackend("{}")}
	s.model = faketriton.NewModel(s.backend, "m", "/models/m", threeLines)
	t.Cleanup(func() {
		require.NoError(t, s.backend.Finalize())
		s.model.Delete()
		s.backend.Delete()
	})
	require.NoError(t, s.initialize(func(settings, *slog.Logger) (components, error) {
		return components{open: open, load: func(info backend.ModelInfo, _ backend.Server) (model, error) {
			*loaded = info
			return fakeModel{}, nil
		}}, nil
	}))
	return s, loaded
}

func TestAutoComplete(t *testing.T) {
	faketriton.Reset()
	file := &modelFile{}
	s, loaded := newIncomplete(t, func(o onnx.SessionOptions) (onnx.Runner, error) {
		require.Equal(t, "/models/m/1/model.onnx", o.Path)
		return file, nil
	})
	s.model.AutoComplete(true)
	require.NoError(t, s.model.Initialize())
	require.Equal(t, 1, file.closed)
	require.JSONEq(t, completed, s.model.Config())
	require.JSONEq(t, completed, string(loaded.Config), "the model is loaded with what Triton took")
	require.Equal(t, "m", loaded.Name)
	require.NoError(t, s.model.Finalize())

	require.NoError(t, s.model.Initialize())
	require.Equal(t, 1, file.closed, "nothing is missing, so the file is left alone")
	require.Equal(t, 1, faketriton.CallsOf("TRITONBACKEND_ModelSetConfig"))
	require.NoError(t, s.model.Finalize())
	count, last := faketriton.Violations()
	require.Zero(t, count, last)
}

// TestAutoCompleteOff: with --disable-auto-complete-config nothing is filled in.
func TestAutoCompleteOff(t *testing.T) {
	faketriton.Reset()
	s, loaded := newIncomplete(t, func(onnx.SessionOptions) (onnx.Runner, error) { panic("opened") })
	require.NoError(t, s.model.Initialize())
	require.Equal(t, threeLines, string(loaded.Config))
	require.NoError(t, s.model.Finalize())
}

func TestAutoCompleteOfAFileThatCannotBeRead(t *testing.T) {
	faketriton.Reset()
	s, _ := newIncomplete(t, func(onnx.SessionOptions) (onnx.Runner, error) {
		return nil, status.Errorf(status.NotFound, "there is no model.onnx")
	})
	s.model.AutoComplete(true)
	failed(t, s.model.Initialize(), status.NotFound, "there is no model.onnx")
	require.NoError(t, s.model.Finalize())
}

// TestEveryCallOfAutoCompleteFailsOnce makes the n-th ABI call of a load fail, for
// every n.
func TestEveryCallOfAutoCompleteFailsOnce(t *testing.T) {
	faketriton.Reset()
	file := &modelFile{}
	s, loaded := newIncomplete(t, func(onnx.SessionOptions) (onnx.Runner, error) { return file, nil })
	before := faketriton.CountAlive()
	for n := 1; ; n++ {
		fresh := s
		fresh.model = faketriton.NewModel(s.backend, "m", "/models/m", threeLines)
		fresh.model.AutoComplete(true)
		*loaded = backend.ModelInfo{}
		faketriton.FailAt(n)
		err := fresh.model.Initialize()
		reached := faketriton.Calls() >= n
		faketriton.FailAt(0)
		if err == nil { // where only the log or the deletion of a message failed
			require.JSONEq(t, completed, string(loaded.Config), "when call %d failed", n)
		} else {
			failed(t, err, status.Unavailable, "injected failure")
		}
		require.NoError(t, fresh.model.Finalize())
		fresh.model.Delete()
		require.Equal(t, before, faketriton.CountAlive(), "when call %d failed", n)
		if !reached {
			require.NoError(t, err)
			require.Greater(t, n, 20, "the sweep is as long as a load has calls")
			return
		}
	}
}
