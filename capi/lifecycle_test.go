package main

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/version"
)

func TestLifeOfABackend(t *testing.T) {
	faketriton.Reset()
	in := newEcho()
	var info backend.ModelInfo
	var given backend.Server
	var of backend.InstanceInfo
	b := faketriton.NewBackend(`{"cmdline":{"ort-logging-level":"0","backend-directory":"/b"}}`)
	defer b.Delete()
	m := faketriton.NewModel(b, "streaming", "/models/streaming", `{"name":"streaming"}`)
	defer m.Delete()
	i := faketriton.NewInstance(m, "streaming_0_1", 2, 3)
	defer i.Delete()
	s := server{b, m, i}

	require.NoError(t, s.initialize(func(config settings, log *slog.Logger) (components, error) {
		require.Equal(t, settings{ortLogging: 0, defaultBatch: 4, metrics: true}, config)
		require.NotNil(t, log)
		return components{
			onnxRuntime: "1.31.1",
			open:        func(onnx.SessionOptions) (onnx.Runner, error) { return nil, errors.New("opened") },
			load: func(mi backend.ModelInfo, h backend.Server) (model, error) {
				info, given = mi, h
				return fakeModel{func(ii backend.InstanceInfo) (executor, error) { of = ii; return in, nil }}, nil
			},
		}, nil
	}))
	line, _ := faketriton.LastLog()
	require.Contains(t, line, "version="+version.Number+" commit=unknown onnxruntime=1.31.1")
	require.NoError(t, m.Initialize())
	info.ReportMemory([]backend.MemoryUse{{Device: backend.HostMemory, Bytes: 5}, {Device: 3, Bytes: 1 << 40}})
	require.Equal(t, "0:0=5 2:3=1099511627776", m.Memory())
	info.ReportMemory([]backend.MemoryUse{{Device: backend.HostMemory, Bytes: 6}})
	require.Equal(t, "0:0=6", m.Memory())
	info.ReportMemory = nil // it cannot be compared
	require.Equal(t, backend.ModelInfo{
		Name: "streaming", Version: 1, Directory: "/models/streaming", Config: []byte(`{"name":"streaming"}`),
	}, info)
	_, err := given.Open(onnx.SessionOptions{})
	require.EqualError(t, err, "opened")
	require.InDelta(t, systemClock(), given.Clock(), float64(time.Second))

	i.SetHostPolicy(`{"gpu_3":{"numa-node":"1","cpu-cores":"4-7"}}`)
	failed(t, i.Ready(), status.Internal, "used before it was initialised")
	require.NoError(t, i.Initialize())
	require.Equal(t, backend.InstanceInfo{Name: "streaming_0_1", Kind: "gpu", Device: 3,
		HostPolicy: backend.HostPolicy{"numa-node": "1", "cpu-cores": "4-7"}}, of)
	require.NoError(t, i.Ready())
	require.NoError(t, i.Execute(requests(t, echoCall(1, 2, 3))...))

	require.NoError(t, i.Finalize())
	require.Equal(t, 1, in.closed)
	require.NoError(t, m.Finalize())
	require.NoError(t, b.Finalize())
}

func TestAttributes(t *testing.T) {
	s := serve(t, newEcho())
	parallel, kind, err := s.backend.Attributes()
	require.NoError(t, err)
	require.True(t, parallel)
	require.Equal(t, 1, kind, "TRITONSERVER_INSTANCEGROUPKIND_CPU")
}

func TestInitializeAgain(t *testing.T) {
	for range 3 { // Triton may: in one process, after Finalize
		s := newServer(t, fakeModel{})
		require.NoError(t, s.backend.Finalize())
	}
}

func TestInitializeRefuses(t *testing.T) {
	faketriton.Reset()
	never := func(settings, *slog.Logger) (components, error) { panic("assembled") }
	try := func(config string) error {
		b := faketriton.NewBackend(config)
		defer b.Delete()
		defer func() { require.NoError(t, b.Finalize()) }()
		return server{backend: b}.initialize(never)
	}
	require.ErrorContains(t, try(`{`), "backend configuration")
	require.ErrorContains(t, try(`{"cmdline":{"ort-logging-level":"loud"}}`), "want 0 (verbose)")

	defer faketriton.SetAPIVersion(1, 19)
	faketriton.SetAPIVersion(2, 0)
	require.ErrorContains(t, try(""), "TRITONBACKEND API 2.0")
	faketriton.SetAPIVersion(1, 7)
	require.ErrorContains(t, try(""), "want 1.8")
}

// TestInitializeWithoutONNXRuntime goes through the exported function, with the
// components that the library is really made of: a test binary has no ONNX Runtime next
// to it.
func TestInitializeWithoutONNXRuntime(t *testing.T) {
	faketriton.Reset()
	b := faketriton.NewBackend("{}")
	defer b.Delete()
	failed(t, b.Initialize(), status.NotFound, ortLibrary+" is missing: copy the whole folder")
	require.NoError(t, b.Finalize())
	s := server{backend: b}
	require.ErrorContains(t, s.initialize(func(s settings, log *slog.Logger) (components, error) {
		return assembleOver("/nowhere/libonnxruntime.so", s, log)
	}), "/nowhere")
}

func TestModelThatDoesNotLoad(t *testing.T) {
	faketriton.Reset()
	b := faketriton.NewBackend("{}")
	defer b.Delete()
	m := faketriton.NewModel(b, "m", "/m", "{}")
	defer m.Delete()
	s := server{backend: b, model: m}
	var load func(backend.ModelInfo, backend.Server) (model, error)
	require.NoError(t, s.initialize(func(settings, *slog.Logger) (components, error) {
		return components{load: func(i backend.ModelInfo, h backend.Server) (model, error) { return load(i, h) }}, nil
	}))
	load = func(backend.ModelInfo, backend.Server) (model, error) {
		return nil, status.Errorf(status.InvalidArg, "state_pairs: want one")
	}
	failed(t, m.Initialize(), status.InvalidArg, "state_pairs: want one")
	require.NoError(t, m.Finalize())
	load = func(backend.ModelInfo, backend.Server) (model, error) { panic("because") }
	failed(t, m.Initialize(), status.Internal, "because")
	require.NoError(t, m.Finalize())
	require.NoError(t, b.Finalize())
}

func TestInstanceThatDoesNotLoad(t *testing.T) {
	faketriton.Reset()
	s := newServer(t, fakeModel{func(backend.InstanceInfo) (executor, error) {
		return nil, errors.New("corrupt file")
	}})
	require.NoError(t, s.model.Initialize())
	failed(t, s.instance.Initialize(), status.Internal, "corrupt file")
	failed(t, s.instance.Execute(), status.Internal, "used before it was initialised")
	require.NoError(t, s.instance.Finalize())
	require.NoError(t, s.model.Finalize())
	require.NoError(t, s.backend.Finalize())
}

// TestInstancesInParallel loads and runs instances at once, as Triton does at
// its start.
func TestInstancesInParallel(t *testing.T) {
	faketriton.Reset()
	s := newServer(t, fakeModel{func(backend.InstanceInfo) (executor, error) { return newEcho(), nil }})
	require.NoError(t, s.model.Initialize())
	var all sync.WaitGroup
	errs := make([]error, 8)
	rs := make([][]*faketriton.Request, len(errs))
	for n := range errs {
		rs[n] = requests(t, echoCall(1, int32(n), 1), echoCall(2, int32(n), 2))
		all.Go(func() {
			i := faketriton.NewInstance(s.model, "m", 1, 0)
			defer i.Delete()
			err := i.Initialize()
			if err == nil {
				err = i.Execute(rs[n]...)
			}
			errs[n] = errors.Join(err, i.Finalize())
		})
	}
	all.Wait()
	for n, err := range errs {
		require.NoError(t, err)
		settled(t, rs[n])
		answered(t, rs[n][1], y(int32(n), 2), z(7))
	}
	require.NoError(t, s.model.Finalize())
	require.NoError(t, s.backend.Finalize())
}
