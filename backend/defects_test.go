package backend

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// TestDefects has the defects of NVIDIA's stateful_backend that can be shown
// without a server and without a GPU and that no other test shows;
// scripts/e2e/test_nvidia_index.py names the tests of all. Those of the seam (B8
// buffers in several pieces, B12 and B13 ort-logging-level, B19, B20) are in capi;
// those of CUDA (B10, B11, B17, B21, B22) need it; B24 and B28 are no part of a
// backend.
func TestDefects(t *testing.T) {
	defects := []struct {
		name string
		test func(*testing.T)
	}{
		{"B3_a_request_that_cannot_be_read_is_refused_alone", unreadableRequest},
		{"B26_nothing_is_taken_for_granted", emptyLists},
		{"B29_errors_are_whole_and_name_the_tensor", wholeErrors},
		{"B30_slots_are_accounted_for", slotsAreAccountedFor},
	}
	for _, d := range defects {
		t.Run(d.name, d.test)
	}
}

func unreadableRequest(t *testing.T) {
	s := newServer(t)
	s.batch(startOf(1)).ok()
	unreadable := nextOf(2).unreadable(status.Errorf(status.InvalidArg, "the ID is of another type"))
	s.batch(unreadable.with(func(r *Request) { *r = Request{Err: r.Err} }), nextOf(1)).want("the ID is of another type", "")
}

func emptyLists(t *testing.T) {
	for _, text := range []string{"", "{}", `{"max_batch_size":4}`, `{"sequence_batching":{}}`, `{"sequence_batching":{"control_input":[{"name":"x"}],"oldest":{}},"input":[{}],"output":[{}]}`} {
		s := newServer(t)
		model, err := NewModel(ModelInfo{Name: "model", Config: []byte(text)}, s.in.model.server)
		require.NoError(t, err)
		_, err = model.NewInstance(InstanceInfo{Name: "model_0", Kind: "cpu"})
		require.ErrorContains(t, err, "of the model has no source in the configuration", text)
	}
	_, err := config.Parse([]byte("{"))
	require.ErrorContains(t, err, "reading the model configuration")
}

func wholeErrors(t *testing.T) {
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

func slotsAreAccountedFor(t *testing.T) {
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

func TestConfigLimits(t *testing.T) {
	c := &config.Config{}
	require.Zero(t, c.Idle())
	require.Zero(t, c.Candidates())
	c.Sequence = &config.SequenceConfig{MaxIdleMicroseconds: math.MaxUint64}
	require.Less(t, time.Duration(0), 2*c.Idle(), "no overflow")
	require.Equal(t, 1, c.Candidates())
	c.MaxBatchSize = 7
	require.Equal(t, 7, c.Candidates(), "an oldest strategy without the field has as many as a batch")
	c.Sequence.Oldest = &config.OldestConfig{MaxCandidateSequences: 9}
	require.Equal(t, 9, c.Candidates())
}

func TestStringIDs(t *testing.T) {
	for dataType, want := range map[string]bool{"TYPE_STRING": true, "TYPE_UINT64": false, "": false} {
		c := newSetup(stringIDs).config
		c.Sequence.ControlInputs[2].Controls[0].DataType = dataType
		require.Equal(t, want, c.StringIDs())
	}
	require.False(t, newSetup().config.StringIDs())
}

func TestTensorName(t *testing.T) {
	infos := []onnx.TensorInfo{{Name: "Input"}, {Name: "State"}, {Name: "STATE"}}
	require.Equal(t, 0, onnx.TensorName("Input", infos))
	require.Equal(t, 0, onnx.TensorName("INPUT", infos))
	require.Equal(t, 2, onnx.TensorName("STATE", infos), "the exact name wins")
	require.Equal(t, -1, onnx.TensorName("state", infos), "two could be meant")
	require.Equal(t, -1, onnx.TensorName("Other", infos))
	require.Equal(t, "none", onnx.Names(nil))
}

func TestErrorCodes(t *testing.T) {
	require.Equal(t, status.Internal, status.CodeOf(errInjected), "it has no code")
	err := status.Errorf(status.NotFound, "somewhere: %w", errInjected)
	require.ErrorIs(t, err, errInjected)
	require.Equal(t, status.NotFound, status.CodeOf(err))
	require.Equal(t, status.Unavailable, status.CodeOf(status.Errorf(status.Unavailable, "%w", err)), "the outermost counts")
}
