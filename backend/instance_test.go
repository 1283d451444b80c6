package backend

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

func preferred(sizes ...int) func(*setup) {
	return func(s *setup) { s.config.Sequence.Oldest.PreferredBatchSizes = sizes }
}

// TestPadding: how many lanes the model runs with for 1 to 8 requests.
func TestPadding(t *testing.T) {
	exact, most := []int{1, 2, 3, 4, 5, 6, 7, 8}, []int{8, 8, 8, 8, 8, 8, 8, 8}
	tests := []struct {
		name  string
		edits []func(*setup)
		lanes []int
	}{
		{"default", nil, exact},
		{"default with preferred sizes", []func(*setup){preferred(2, 5)}, exact},
		{"none", []func(*setup){preferred(2, 5), param("batch_padding", "none")}, exact},
		{"auto", []func(*setup){preferred(2, 5), param("batch_padding", "auto")}, exact},
		{"preferred", []func(*setup){preferred(5, 2), param("batch_padding", "preferred")}, []int{2, 2, 5, 5, 5, 8, 8, 8}},
		{"preferred without sizes", []func(*setup){param("batch_padding", "preferred")}, most},
		{"max", []func(*setup){preferred(2, 5), param("batch_padding", "max")}, most},
		{"always_pad_to_max_batch", []func(*setup){preferred(2, 5), param("always_pad_to_max_batch", "1")}, []int{2, 2, 5, 5, 5, 8, 8, 8}},
		{"always_pad_to_max_batch off", []func(*setup){preferred(2, 5), param("always_pad_to_max_batch", "0")}, exact},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, tt.edits...)
			for n := 1; n <= 8; n++ {
				var asks []ask
				for id := range n {
					asks = append(asks, startOf(id+1))
				}
				s.batch(asks...).ok()
				for lane := n; lane < tt.lanes[n-1]; lane++ {
					require.True(t, s.runner.resets[n-1][lane], "a padding lane is a start")
				}
			}
			require.Equal(t, tt.lanes, s.runner.runs)
		})
	}
}

// TestWarmUp: the model runs once with each size that batches will have.
func TestWarmUp(t *testing.T) {
	tests := []struct {
		name  string
		edits []func(*setup)
		want  []int
	}{
		{"default", nil, []int{1, 8}},
		{"preferred sizes", []func(*setup){preferred(4, 2, 8)}, []int{1, 2, 4, 8}},
		{"padded to them", []func(*setup){preferred(4, 2), param("batch_padding", "preferred")}, []int{2, 4, 8}},
		{"padded to the largest", []func(*setup){preferred(4, 2), param("batch_padding", "max")}, []int{8}},
		{"a batch of one", []func(*setup){slots(2, 1)}, []int{1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := load(t, append(tt.edits, param("verify", "never"))...)
			require.NoError(t, err)
			defer s.in.Close()
			require.Equal(t, tt.want, s.runner.runs)
			require.Zero(t, s.in.store.Usage().Live)
		})
	}
}

// TestWarmUpAfterAProof: the proof has run one lane in the same session.
func TestWarmUpAfterAProof(t *testing.T) {
	s, err := load(t)
	require.NoError(t, err)
	defer s.in.Close()
	runs := s.runner.runs
	require.Equal(t, 1, runs[0])
	require.Equal(t, 8, runs[len(runs)-1])
	require.Greater(t, runs[len(runs)-2], 1, "%v", runs)
}

// TestWarmUpOfAModelThatFailsOnZeros: a length of nothing is no reason to refuse a model.
func TestWarmUpOfAModelThatFailsOnZeros(t *testing.T) {
	model := sumModel()
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		for i := range inputs[0].Data.Size / 4 {
			if runnertest.Element(inputs[0].Data.Bytes, tensor.Int32, i) == 0 {
				return errInjected
			}
		}
		return inner(inputs, outputs)
	}
	in := model.loaded(t, sumConfig())
	request := Request{Sequence: SequenceID{Number: 1}, Start: true, Inputs: intInput(tensor.Shape{1, 2}, 5, 6)}
	require.Equal(t, []int32{5, 6}, numbers(send(t, in, request)[0].outputs[0]), "nothing of the warm-up is left")
}

// TestFailedLoads: the error says what failed, and nothing is left; load
// looks after that.
func TestFailedLoads(t *testing.T) {
	_, err := load(t, func(s *setup) {
		s.model = newAccumulator(s.memory, s.streams...)
		s.model.before = func() error { return errInjected }
	})
	require.ErrorContains(t, err, `warming up with a batch of 1`)
	require.Equal(t, status.InvalidArg, status.CodeOf(err))
	for _, kind := range []string{"auto", "model", ""} {
		_, err = load(t, func(s *setup) { s.kind = kind })
		require.ErrorContains(t, err, "the instance's kind is "+kind+": want instance_group [{ kind: KIND_CPU }]")
	}
	allocations := 0
	probe := &testMemory{before: func(operation string) error { allocations += index(operation == "alloc"); return nil }}
	unproved := param("verify", "never") // memory for proofs that is not there is no reason to fail
	s, err := load(t, withMemory(probe), unproved)
	require.NoError(t, err)
	s.in.Close()
	require.Zero(t, probe.Used())
	for n := range allocations {
		t.Run(fmt.Sprintf("allocation %d", n), func(t *testing.T) {
			m, calls := &testMemory{}, 0
			m.before = func(operation string) error {
				if operation != "alloc" {
					return nil
				}
				if calls++; calls == n+1 {
					return errInjected
				}
				return nil
			}
			_, err := load(t, withMemory(m), unproved)
			require.ErrorIs(t, err, errInjected)
			require.Equal(t, status.Internal, status.CodeOf(err))
			require.Zero(t, m.Used())
		})
	}
}

// TestSlotsAreAccountedFor: the load report has how many slots chunks and thresholds allow.
func TestSlotsAreAccountedFor(t *testing.T) {
	s := newServer(t, configEdit(func(c *config.Config) { c.MaxBatchSize, c.Sequence.Oldest.MaxCandidateSequences = 16, 1280 }),
		param("initial_buffer_size", "512"), param("subsequent_buffer_size", "100"), param("buffer_alloc_threshold", "32"), param("buffer_dealloc_threshold", "200"))
	require.Equal(t, 1112, s.in.store.Usage().Total)
	require.Len(t, s.log.having("1112"), 1, "the load report has the number")
}

// TestInstancesHaveEqualTotals: each instance of a model has as many slots as the first.
func TestInstancesHaveEqualTotals(t *testing.T) {
	s := newServer(t)
	for range 3 {
		other := newAccumulator(s.memory, accumulate())
		s.in.model.server.Open = func(onnx.SessionOptions) (onnx.Runner, error) { return other, nil }
		in, err := s.in.model.NewInstance(InstanceInfo{Name: "model_1", Kind: "cpu"})
		require.NoError(t, err)
		require.Equal(t, s.in.store.Usage().Total, in.store.Usage().Total)
		in.Close()
	}
}
