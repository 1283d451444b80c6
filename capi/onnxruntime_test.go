package main

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/tensor"
	"tritonstateful/ortrunner"
	"tritonstateful/ortrunner/onnxtest"
)

// ortInstance is an instance of a model on the real ONNX Runtime, without a server.
type ortInstance struct {
	t  *testing.T
	in *backend.Instance
}

// loadOnORT loads a model for a configuration, as JSON.
func loadOnORT(t *testing.T, model onnxtest.Model, config string) ortInstance {
	t.Helper()
	rt, err := ortrunner.New(ortrunner.Options{Library: builtORT(t), LogLevel: ortLoggingDefault, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	start := time.Now()
	m, err := backend.NewModel(backend.ModelInfo{
		Name: "model", Version: 1, Directory: filepath.Dir(filepath.Dir(model.Write(t))), Config: []byte(config),
	}, backend.Server{
		Log: slog.New(slog.DiscardHandler), Clock: func() time.Duration { return time.Since(start) }, Open: rt.Open,
	})
	require.NoError(t, err)
	in, err := m.NewInstance(backend.InstanceInfo{Name: "model_0", Kind: "cpu"})
	require.NoError(t, err)
	t.Cleanup(in.Close)
	return ortInstance{t, in}
}

// reply is what a client gets: the first output, or an error.
type reply struct {
	err   error
	shape tensor.Shape
	data  []byte
}

// replies is a batch and its answers.
type replies struct {
	requests []backend.Request
	replies  []reply
	pending  []func()
}

func (b *replies) Requests() []backend.Request                          { return b.requests }
func (b *replies) Fail(req int, err error)                              { b.replies[req].err = err }
func (b *replies) Reserve(int, []backend.Output, int, int) (a []uint64) { return a }
func (b *replies) Finish(backend.Timing)                                { b.Send() }
func (b *replies) Describe(int, backend.AnswerParameters)               {}
func (b *replies) Hold(int) backend.Held                                { panic("no ID begins twice") }
func (b *replies) Park(int) func(any)                                   { panic("nothing is resumed") }

func (b *replies) Answer(req int, outputs []backend.Output, lane, lanes int) {
	b.pending = append(b.pending, func() {
		o, r := &outputs[0], &b.replies[req]
		r.shape = o.Shape.Clone()
		for j := lane; j < lane+lanes; j++ {
			for x := range o.Layout.Pieces {
				at := (x*int64(o.Lanes) + int64(j)) * o.Layout.PieceBytes
				r.data = append(r.data, o.Tensor[at:at+o.Layout.PieceBytes]...)
			}
		}
	})
}

func (b *replies) Send() {
	for _, copyOut := range b.pending {
		copyOut()
	}
	b.pending = nil
}

func (s ortInstance) send(requests ...backend.Request) []reply {
	b := &replies{requests: requests, replies: make([]reply, len(requests))}
	s.in.Execute(b)
	return b.replies
}

// wide is a graph's value of floats [batch, width].
func wide(name string, width int) onnxtest.Value {
	return onnxtest.Value{Name: name, Type: onnxtest.Float, Dims: onnxtest.Dims("batch", width)}
}

// f32 is the memory of some numbers.
func f32(numbers ...float32) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint32(b, math.Float32bits(n))
	}
	return b
}

// floatInput is an input of floats.
func floatInput(shape tensor.Shape, elements ...float32) backend.Input {
	return backend.Input{Present: true, DType: tensor.FP32, Shape: shape, Data: f32(elements...)}
}

// TestOutputDeclaredEmpty: a file may say that an extent is 0, where the model writes
// more. What it writes is the answer, each time.
func TestOutputDeclaredEmpty(t *testing.T) {
	s := loadOnORT(t, onnxtest.Model{
		Inputs: []onnxtest.Value{wide("x", 4)},
		Initializers: []onnxtest.Tensor{
			{Name: "picked", Type: onnxtest.Bool, Dims: []int64{4}, Data: []bool{true, false, true, false}},
		},
		Nodes: []onnxtest.Node{{
			Op: "Compress", Inputs: []string{"x", "picked"}, Outputs: []string{"y"},
			Attributes: []onnxtest.Attribute{{Name: "axis", Value: int64(1)}},
		}},
		Outputs: []onnxtest.Value{wide("y", 0)},
	}, `{"name":"model","max_batch_size":4,"input":[{"name":"x","data_type":"TYPE_FP32","dims":[4]}],`+
		`"output":[{"name":"y","data_type":"TYPE_FP32","dims":[-1]}]}`)
	for range 3 {
		got := s.send(backend.Request{Inputs: []backend.Input{floatInput(tensor.Shape{1, 4}, 1, 2, 3, 4)}},
			backend.Request{Inputs: []backend.Input{floatInput(tensor.Shape{1, 4}, 5, 6, 7, 8)}})
		for i, want := range [][]float32{{1, 3}, {5, 7}} {
			require.NoError(t, got[i].err)
			require.Equal(t, tensor.Shape{1, 2}, got[i].shape)
			require.Equal(t, f32(want...), got[i].data)
		}
		got = s.send(backend.Request{Inputs: []backend.Input{floatInput(tensor.Shape{1, 4}, 9, 10, 11, 12)}})
		require.NoError(t, got[0].err)
		require.Equal(t, f32(9, 11), got[0].data)
	}
}

// positives keeps of x the rows that begin with a number above 0, of as many columns as
// y has; a model with a state adds x up.
func positives(y onnxtest.Value, width int64, state bool) onnxtest.Model {
	cut := func(to string, end int64) onnxtest.Node {
		return onnxtest.Node{Op: "Slice", Inputs: []string{"x", "0", fmt.Sprint(end), "1"}, Outputs: []string{to}}
	}
	ints := func(name string, n int64) onnxtest.Tensor {
		return onnxtest.Tensor{Name: name, Type: onnxtest.Int64, Dims: []int64{1}, Data: []int64{n}}
	}
	m := onnxtest.Model{
		Inputs:       []onnxtest.Value{{Name: "x", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", "m")}},
		Initializers: []onnxtest.Tensor{ints("0", 0), ints("1", 1), {Name: "zero", Type: onnxtest.Float, Data: []float32{0}}},
		Nodes: []onnxtest.Node{
			cut("first", 1),
			{Op: "Squeeze", Inputs: []string{"first", "1"}, Outputs: []string{"head"}},
			{Op: "Greater", Inputs: []string{"head", "zero"}, Outputs: []string{"positive"}},
			cut("part", width),
			{
				Op: "Compress", Inputs: []string{"part", "positive"}, Outputs: []string{"y"},
				Attributes: []onnxtest.Attribute{{Name: "axis", Value: int64(0)}},
			},
		},
		Outputs: []onnxtest.Value{y},
	}
	if width > 1 {
		m.Initializers = append(m.Initializers, ints(fmt.Sprint(width), width))
	}
	if state {
		m.Inputs = append(m.Inputs, wide("s", 4))
		m.Nodes = append(m.Nodes, onnxtest.Node{Op: "Add", Inputs: []string{"x", "s"}, Outputs: []string{"s_out"}})
		m.Outputs = append(m.Outputs, wide("s_out", 4))
	}
	return m
}

// TestFewerRowsThanRequests: where a model leaves out the row of a request, that request
// fails, and no other gets its neighbour's, however the output is declared.
func TestFewerRowsThanRequests(t *testing.T) {
	open := onnxtest.Value{Name: "y", Type: onnxtest.Float, Dims: onnxtest.Dims("batch", "n")}
	const io = `"input":[{"name":"x","data_type":"TYPE_FP32","dims":[%s4]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[%s]}]}`
	const wrote = "want rank 2"
	for name, tt := range map[string]struct {
		y      onnxtest.Value
		width  int64
		state  bool
		config string
		want   string
	}{
		"fixed":                            {wide("y", 4), 4, false, `{"name":"model","max_batch_size":4,` + fmt.Sprintf(io, "", "4"), "the computed output shape for this run is {0,4}"},
		"open":                             {open, 4, false, `{"name":"model","max_batch_size":4,` + fmt.Sprintf(io, "", "-1"), wrote},
		"empty":                            {wide("y", 0), 0, false, `{"name":"model","max_batch_size":4,` + fmt.Sprintf(io, "", "-1"), wrote},
		"sequences":                        {open, 4, true, `{"name":"model","max_batch_size":4,"sequence_batching":{"oldest":{"max_candidate_sequences":8}},` + fmt.Sprintf(io, "", "-1"), wrote},
		"sequences without max_batch_size": {open, 4, true, `{"name":"model","sequence_batching":{"oldest":{"max_candidate_sequences":8}},` + fmt.Sprintf(io, "-1,", "-1,-1"), wrote},
	} {
		t.Run(name, func(t *testing.T) {
			// Runs at load would show it, and the model be refused.
			unproved := `{"parameters":{"verify":{"string_value":"never"}},` + tt.config[1:]
			s := loadOnORT(t, positives(tt.y, tt.width, tt.state), unproved)
			for step := range 3 {
				request := func(id uint64, first float32) backend.Request {
					return backend.Request{
						Sequence: backend.SequenceID{Number: id}, Start: step == 0,
						Inputs: []backend.Input{floatInput(tensor.Shape{1, 4}, first, 2, 3, float32(id))},
					}
				}
				wrong := float32(-1)
				if step == 0 {
					wrong = 1 // all begin
				}
				got := s.send(request(1, 1), request(2, wrong), request(3, 1))
				for i, id := range []float32{1, 2, 3} {
					if id == 2 && step > 0 {
						require.ErrorContains(t, got[i].err, "error during inference: ")
						require.ErrorContains(t, got[i].err, tt.want)
						continue
					}
					require.NoError(t, got[i].err)
					require.Equal(t, tensor.Shape{1, tt.width}, got[i].shape)
					require.Equal(t, string(f32([]float32{1, 2, 3, id}[:tt.width]...)), string(got[i].data))
				}
			}
		})
	}
}
