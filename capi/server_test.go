package main

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// TestMain checks that no goroutine and no object of Triton is left.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if alive := faketriton.CountAlive(); alive != (faketriton.Alive{}) {
			fmt.Fprintf(os.Stderr, "objects of Triton that were not deleted: %+v\n", alive)
			code = 1
		}
		os.Exit(code)
	}))
}

// fakeModel is a model of the tests; its instances are made by instance.
type fakeModel struct {
	instance func(backend.InstanceInfo) (executor, error)
}

func (m fakeModel) NewInstance(info backend.InstanceInfo) (executor, error) { return m.instance(info) }

// fakeInstance has two inputs and two outputs and does what execute says.
type fakeInstance struct {
	mu              sync.Mutex
	inputs, outputs []onnx.IOTensor
	stringIDs       bool
	execute         func(backend.Batch)
	closed          int
}

func (i *fakeInstance) LargestBatch() int        { return 4 }
func (i *fakeInstance) Inputs() []onnx.IOTensor  { return i.inputs }
func (i *fakeInstance) Outputs() []onnx.IOTensor { return i.outputs }
func (i *fakeInstance) StringIDs() bool          { return i.stringIDs }
func (i *fakeInstance) Close()                   { i.closed++ }

func (i *fakeInstance) Execute(b backend.Batch) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.execute(b)
}

// newEcho is an instance that answers every request with its own inputs.
func newEcho() *fakeInstance {
	e := &echo{}
	return &fakeInstance{
		inputs: []onnx.IOTensor{
			{Name: "X", DType: tensor.Int32},
			{Name: "MASK", DType: tensor.Int32, Optional: true},
		},
		outputs: []onnx.IOTensor{{Name: "Y", DType: tensor.Int32}, {Name: "Z", DType: tensor.Int32}},
		execute: e.execute,
	}
}

// echo answers with Y = X and Z = MASK, or 0 where that is left out. X is one
// pair of numbers, MASK one number.
type echo struct {
	y, z    []byte
	outputs [2]backend.Output
}

var (
	pair   = tensor.Shape{1, 2}
	single = tensor.Shape{1, 1}
)

// computed is the time that the tests' models report for their runs.
var computed = backend.Timing{ComputeStart: 1, ComputeEnd: 1 << 62}

func (e *echo) execute(b backend.Batch) {
	requests := b.Requests()
	n := len(requests)
	e.y, e.z = resize(e.y, 8*n), resize(e.z, 4*n)
	clear(e.z)
	for req := range requests {
		r := &requests[req]
		if r.Err != nil {
			b.Fail(req, r.Err)
			continue
		}
		copy(e.y[8*req:8*req+8], r.Inputs[0].Data)
		copy(e.z[4*req:4*req+4], r.Inputs[1].Data)
	}
	e.outputs[0] = backend.Output{Tensor: e.y, Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 8}, Lanes: n, Shape: pair}
	e.outputs[1] = backend.Output{Tensor: e.z, Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 4}, Lanes: n, Shape: single}
	for req := range requests {
		b.Answer(req, e.outputs[:], req, 1) // ignored where the request failed
	}
	b.Send()
	b.Finish(computed)
}

// server is a fake Triton with one model that has one instance.
type server struct {
	backend  faketriton.Backend
	model    faketriton.Model
	instance faketriton.Instance
}

// serve loads in as the only instance, and unloads it when the test ends.
func serve(t testing.TB, in executor) server {
	return serveModel(t, fakeModel{func(backend.InstanceInfo) (executor, error) { return in, nil }})
}

// serveModel loads one instance of a model, and unloads it when the test ends.
func serveModel(t testing.TB, m model) server {
	faketriton.Reset()
	s := newServer(t, m)
	require.NoError(t, s.model.Initialize())
	require.NoError(t, s.instance.Initialize())
	t.Cleanup(func() {
		require.NoError(t, s.instance.Finalize())
		require.NoError(t, s.model.Finalize())
		require.NoError(t, s.backend.Finalize())
		count, last := faketriton.Violations()
		require.Zero(t, count, last)
	})
	return s
}

// newServer has a backend that is initialised, and nothing else that is.
func newServer(t testing.TB, m model) server {
	s := server{backend: faketriton.NewBackend("{}")}
	s.model = faketriton.NewModel(s.backend, "m", "/models/m", `{"name":"m"}`)
	s.instance = faketriton.NewInstance(s.model, "m_0", 1, 0)
	t.Cleanup(func() {
		s.instance.Delete()
		s.model.Delete()
		s.backend.Delete()
	})
	require.NoError(t, s.initialize(componentsOf(m)))
	return s
}

// initialize is TRITONBACKEND_Initialize with other components.
func (s server) initialize(a assembler) error {
	return initialize(backendObject(s.backend.Pointer()), a)
}

// componentsOf makes a backend of which every model is m.
func componentsOf(m model) assembler {
	return func(settings, *slog.Logger) (components, error) {
		return components{load: func(backend.ModelInfo, backend.Server) (model, error) { return m, nil }}, nil
	}
}

// builtORT is the path of the ONNX Runtime that was built with this library; the
// test is skipped without one.
func builtORT(t testing.TB) string {
	t.Helper()
	const variable = "STATEFUL_ORT_LIB"
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s is not set: want the path of the %s that go run build.go build makes", variable, ortLibrary)
	}
	return path
}

// i32 is the memory of some numbers.
func i32(numbers ...int32) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// x is the input X.
func x(buffers ...[]byte) faketriton.Input {
	return faketriton.Input{Name: "X", Type: int(tensor.Int32), Shape: pair, Buffers: buffers}
}

// mask is the input MASK.
func mask(n int32) faketriton.Input {
	return faketriton.Input{Name: "MASK", Type: int(tensor.Int32), Shape: single, Buffers: [][]byte{i32(n)}}
}

// both are all outputs of an echo.
var both = []string{"Y", "Z"}

// echoCall is an ordinary request to an echo.
func echoCall(id uint64, a, b int32) faketriton.Call {
	return faketriton.Call{Number: id, Inputs: []faketriton.Input{x(i32(a, b)), mask(7)}, Outputs: both}
}

// requests are the calls as Triton has them, deleted when the test ends.
func requests(t testing.TB, calls ...faketriton.Call) []*faketriton.Request {
	var made []*faketriton.Request
	for _, call := range calls {
		r := faketriton.NewRequest(call)
		t.Cleanup(r.Delete)
		made = append(made, r)
	}
	return made
}

// execute sends a batch of calls, each of which is settled when Execute returns.
func (s server) execute(t testing.TB, calls ...faketriton.Call) []*faketriton.Request {
	t.Helper()
	rs := requests(t, calls...)
	require.NoError(t, s.instance.Execute(rs...))
	settled(t, rs)
	return rs
}

// settled checks that each request was answered once and released once.
func settled(t testing.TB, rs []*faketriton.Request) {
	t.Helper()
	for i, r := range rs {
		require.Equal(t, 1, r.Sent(), "answers to request %d", i)
		require.Equal(t, 1, r.Released(), "releases of request %d", i)
		require.Equal(t, 1, r.Statistics().Reports, "reports of request %d", i)
	}
}

// answered checks that a request was answered with these outputs.
func answered(t testing.TB, r *faketriton.Request, want ...faketriton.Output) {
	t.Helper()
	got, err := r.Answer()
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.True(t, r.Statistics().Success)
}

func y(a, b int32) faketriton.Output {
	return faketriton.Output{Name: "Y", Type: int(tensor.Int32), Shape: pair, Data: i32(a, b)}
}

func z(n int32) faketriton.Output {
	return faketriton.Output{Name: "Z", Type: int(tensor.Int32), Shape: single, Data: i32(n)}
}

// refused checks that a request was answered with an error of that code, of
// which text is a part.
func refused(t testing.TB, r *faketriton.Request, code status.Code, text string) {
	t.Helper()
	_, err := r.Answer()
	failed(t, err, code, text)
	require.False(t, r.Statistics().Success)
}

// failed checks an error that the library returned or answered with.
func failed(t testing.TB, err error, code status.Code, text string) {
	t.Helper()
	var theirs *faketriton.Error
	require.ErrorAs(t, err, &theirs)
	require.Equal(t, code, codeNumber(theirs.Code), theirs.Message)
	require.Contains(t, theirs.Message, text)
}

// codeNumber is a TRITONSERVER_Error_Code as ours: the numbers are the same.
func codeNumber(code int) status.Code { return status.Code(code) }
