package backend

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// TestWrongBatchOfAnOutput: whatever names the batch, and whatever else the shape is,
// an output that has not one extent for each lane there is no answer.
func TestWrongBatchOfAnOutput(t *testing.T) {
	sequences := func() (*scripted, *config.Config) {
		c := cacheConfig()
		c.Parameters["max_state_bytes"] = config.Value{String: "1000"}
		return cacheModel(), c
	}
	nameless := func(m *scripted) {
		withoutSymbols(&m.sig)
	}
	for name, tt := range map[string]struct {
		load  func() (*scripted, *config.Config)
		lanes int64 // of the batch
		out   int   // which output is wrong
		what  string
	}{
		"named": {load: sequences, lanes: 2, what: `output "Output"`},
		"nameless": {lanes: 2, what: `output "Output"`, load: func() (*scripted, *config.Config) {
			m, c := sequences()
			nameless(m)
			c.Parameters["batch_axes"] = config.Value{String: "Input = 0; Cache = 0"}
			return m, c
		}},
		"without max_batch_size": {lanes: 1, what: `output "Output"`, load: func() (*scripted, *config.Config) {
			m, c := sequences()
			c.MaxBatchSize, c.Inputs[0].Dims, c.Outputs[0].Dims = 0, tensor.Shape{-1, -1}, tensor.Shape{-1, -1}
			return m, c
		}},
		"without max_batch_size, told": {lanes: 1, what: `output "Output"`, load: func() (*scripted, *config.Config) {
			m, c := sequences()
			nameless(m)
			c.MaxBatchSize, c.Inputs[0].Dims, c.Outputs[0].Dims = 0, tensor.Shape{-1, -1}, tensor.Shape{-1, -1}
			c.Parameters["batch_axes"] = config.Value{String: "* = 0"}
			return m, c
		}},
		"without sequences": {lanes: 2, what: `output "Output"`, load: func() (*scripted, *config.Config) {
			m, c := copyModel(tensor.Shape{-1, -1}, []string{"batch", "time"}, []string{"batch", "time"})
			c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{-1}, tensor.Shape{-1}
			return m, c
		}},
		"a batch that the file fixes": {lanes: 1, what: `output "Output"`, load: func() (*scripted, *config.Config) {
			m, c := copyModel(tensor.Shape{1, -1}, []string{"", "time"}, []string{"", "time"})
			c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{-1}, tensor.Shape{-1}
			return m, c
		}},
		"a state": {load: sequences, lanes: 2, out: 1, what: `state "Cache"`},
		"a state without max_batch_size": {lanes: 1, out: 1, what: `state "Cache"`, load: func() (*scripted, *config.Config) {
			m, c := sequences()
			c.MaxBatchSize, c.Inputs[0].Dims, c.Outputs[0].Dims = 0, tensor.Shape{-1, -1}, tensor.Shape{-1, -1}
			return m, c
		}},
		"a state that clients see": {lanes: 2, out: 1, what: `output "NewCache"`, load: func() (*scripted, *config.Config) {
			m, c := sequences()
			c.Outputs = append(c.Outputs, config.TensorConfig{Name: "NewCache", DataType: "TYPE_INT32", Dims: tensor.Shape{-1}})
			return m, c
		}},
	} {
		t.Run(name, func(t *testing.T) {
			model, c := tt.load()
			inner := model.run
			var wrong []int64
			model.run = func(inputs, outputs []onnx.Tensor) error {
				err := inner(inputs, outputs)
				if wrong != nil {
					runnertest.Allocate(&outputs[tt.out], wrong...)
				}
				return err
			}
			in := model.loaded(t, c)
			batch := func(start bool) []answer {
				var requests []Request
				for id := range uint64(tt.lanes) {
					requests = append(requests, words(1+id, start, false, 7))
					if c.Sequence == nil {
						requests[id].Sequence = SequenceID{}
					}
				}
				return send(t, in, requests...)
			}
			for _, a := range batch(true) {
				require.NoError(t, a.err)
			}
			for _, shape := range [][]int64{{5, 2}, {0, 2}, {5, 0}, {0, 0}, {2}, {tt.lanes, 2, 2}, {}} {
				wrong = shape
				for _, a := range batch(false) {
					require.ErrorContains(t, a.err, fmt.Sprintf("%s: the model wrote shape %v for ", tt.what, tensor.Shape(shape)))
					require.ErrorContains(t, a.err, "want rank 2")
					require.Equal(t, status.Internal, status.CodeOf(a.err))
					if tt.out == 1 && slices.Contains(shape, 0) && len(c.Outputs) == 1 {
						require.ErrorContains(t, a.err, `write parameters { key: "state_updates" value { string_value: "Cache = keep" } }`)
					}
				}
			}
			wrong = nil
			want := []int32{7}
			if c.Sequence != nil {
				want = []int32{7, 7} // no run that failed has left anything
			}
			for _, a := range batch(false) {
				require.NoError(t, a.err)
				require.Equal(t, want, numbers(a.outputs[0]))
			}
		})
	}
}

// TestWrongBatchByOneValue: where what one sends makes the model write fewer lanes, that is
// the error of who sent it.
func TestWrongBatchByOneValue(t *testing.T) {
	model := cacheModel()
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		err := inner(inputs, outputs)
		if slices.Contains(numbers(inputs[0].Data.Bytes), wrongToken) {
			runnertest.Allocate(&outputs[0], inputs[0].Shape[0]-1, 3)
		}
		return err
	}
	in := model.loaded(t, cacheConfig())
	got := send(t, in, words(1, true, false, 1), words(2, true, false, wrongToken), words(3, true, false, 3), words(4, true, false, 4))
	for i, want := range map[int]int32{0: 1, 2: 3, 3: 4} {
		require.NoError(t, got[i].err)
		require.Equal(t, []int32{want}, numbers(got[i].outputs[0]))
	}
	require.ErrorContains(t, got[1].err, `output "Output": the model wrote shape [0,3]`)
}

// hollowModel has a state and an output of no elements, by its file.
func hollowModel() (*scripted, *config.Config) {
	m, c := sumModel(), sumConfig()
	m.sig.Inputs[1].Dims = tensor.Shape{-1, 0}
	m.sig.Outputs[0].Dims, m.sig.Outputs[1].Dims = tensor.Shape{-1, 0}, tensor.Shape{-1, -1}
	m.nameBatch()
	c.Outputs[0].Dims = tensor.Shape{-1}
	return m, c
}

// TestDeclaredEmpty: an output of no elements, by the file, has those that the model
// writes, again in each run; a state of none has none, or its run fails.
func TestDeclaredEmpty(t *testing.T) {
	m, c := hollowModel()
	extent := int64(2)
	state := []int64{-1, 0}
	m.run = func(inputs, outputs []onnx.Tensor) error {
		lanes := inputs[0].Shape[0]
		runnertest.Allocate(&outputs[0], lanes, extent)
		copy(outputs[0].Data.Bytes, inputs[0].Data.Bytes)
		shape := slices.Clone(state)
		if shape[0] < 0 {
			shape[0] = lanes
		}
		runnertest.Allocate(&outputs[1], shape...)
		return nil
	}
	in := m.loaded(t, c)
	both := func(start bool) []answer {
		request := func(id uint64) Request {
			return Request{Sequence: SequenceID{Number: id}, Start: start, Inputs: intInput(tensor.Shape{1, 2}, int32(id), int32(10*id))}
		}
		return send(t, in, request(1), request(2))
	}
	for step := range 3 {
		for i, a := range both(step == 0) {
			require.NoError(t, a.err)
			require.Equal(t, tensor.Shape{1, 2}, a.shapes[0])
			require.Equal(t, []int32{int32(i + 1), int32(10 * (i + 1))}, numbers(a.outputs[0]))
		}
	}
	extent = 0
	for _, a := range both(false) {
		require.NoError(t, a.err)
		require.Equal(t, tensor.Shape{1, 0}, a.shapes[0])
	}
	for _, wrong := range [][]int64{{-1, 3}, {5, 0}, {-1}} {
		state = wrong
		for _, a := range both(false) {
			require.ErrorContains(t, a.err, `state "Sum": the model wrote shape`)
			require.ErrorContains(t, a.err, "want [1,0], because")
			require.Equal(t, status.Internal, status.CodeOf(a.err))
		}
	}
}

// TestErrorsAreWhole: an error is not cut, however long, names the tensor, and has no line of
// the source code.
func TestErrorsAreWhole(t *testing.T) {
	long := strings.Repeat("a very long story ", 100)
	s := newServer(t)
	s.batch(startOf(1)).ok()
	s.runner.before = func() error { return status.Errorf(status.InvalidArg, "%s", long) }
	s.batch(nextOf(1)).want("error during inference: " + long)
	require.NotContains(t, s.last.answers[0].err.Error(), ".go")
	s.runner.before = nil
	_, err := load(t, configEdit(func(c *config.Config) { c.Sequence.ControlInputs = nil }), sig(func(s *onnx.Signature) { s.Inputs[2].Name = "Anfang" }))
	require.ErrorContains(t, err, `"Anfang"`)
	require.NotContains(t, err.Error(), resetName)
}
