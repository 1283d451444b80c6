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
	"tritonstateful/internal/tensor"
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
		{"B1_end_of_an_unknown_sequence_frees_no_slot", endOfUnknown},
		{"B2_no_sequence_sees_another_ones_state", foreignState},
		{"B3_a_request_that_cannot_be_read_is_refused_alone", unreadableRequest},
		{"B4_a_failed_request_is_not_in_the_run", failedRequestIsNotRun},
		{"B6_a_failed_batch_leaves_nothing_for_the_next", failedBatchLeavesNothing},
		{"B14_pair_without_output", pairWithoutOutput},
		{"B15_end_counts_as_success", endIsSuccess},
		{"B17_the_device_is_the_instances", deviceOfTheInstance},
		{"B26_nothing_is_taken_for_granted", emptyLists},
		{"B27_the_server_counts_idle_time_later", idleGrace},
		{"B29_errors_are_whole_and_name_the_tensor", wholeErrors},
		{"B30_slots_are_accounted_for", slotsAreAccountedFor},
	}
	for _, d := range defects {
		t.Run(d.name, d.test)
	}
}

// TestRegressions has the cases of that backend's history.
func TestRegressions(t *testing.T) {
	cases := []struct {
		name string
		test func(*testing.T)
	}{
		{"6183638_instances_have_equal_totals", equalTotals},
		{"5cb23b3_type_of_each_output", typesOfOutputs},
	}
	for _, c := range cases {
		t.Run(c.name, c.test)
	}
}

func endOfUnknown(t *testing.T) {
	for _, infer := range []string{"0", "1"} {
		s := newServer(t, param("infer_end_requests", infer), slots(8, 8))
		s.batch(startOf(1)).ok() // has slot 0
		s.batch(wholeOf(2)).ok()
		s.batch(endOf(3))
		s.batch(startOf(4), startOf(5)).ok()
		s.batch(nextOf(1), nextOf(4), nextOf(5)).ok()
	}
}

func foreignState(t *testing.T) {
	s := newServer(t, slots(1, 1))
	s.batch(startOf(1)).ok()
	s.batch(startOf(2)).want("too many simultaneous sequences")
	s.batch(nextOf(2)).want("its START was refused")
	s.now += 3 * time.Second
	s.forget(1)
	s.batch(startOf(2)).ok()
	s.batch(nextOf(1)).want("its state expired")
	s.batch(startOf(2)).ok() // over the first one's bytes, from zero
	s.runner.before = func() error { return errInjected }
	s.batch(startOf(2)).code(status.Internal)
	s.runner.before = nil
	s.batch(nextOf(2)).want("its START failed")
}

func unreadableRequest(t *testing.T) {
	s := newServer(t)
	s.batch(startOf(1)).ok()
	unreadable := nextOf(2).unreadable(status.Errorf(status.InvalidArg, "the ID is of another type"))
	s.batch(unreadable.with(func(r *Request) { *r = Request{Err: r.Err} }), nextOf(1)).want("the ID is of another type", "")
}

func failedRequestIsNotRun(t *testing.T) {
	s := newServer(t)
	s.batch(startOf(1), startOf(2).wrongInput(), startOf(3)).want("", "is of type UINT8", "")
	require.Equal(t, []int{2}, s.runner.runs)
}

func failedBatchLeavesNothing(t *testing.T) {
	s := newServer(t)
	s.batch(startOf(1), startOf(2)).ok()
	s.runner.before = func() error { return errInjected }
	s.batch(nextOf(1), endOf(2)).code(status.Internal)
	s.runner.before = nil
	require.Equal(t, 1, s.in.store.Usage().Live, "the END has freed its slot")
	s.batch(nextOf(1), startOf(2)).ok()
}

func pairWithoutOutput(t *testing.T) {
	_, err := load(t, sig(func(s *onnx.Signature) { s.Outputs = s.Outputs[:1] }))
	require.ErrorContains(t, err, `state_pairs: "Accumulate_Out" is not an output of the model`)
}

func endIsSuccess(t *testing.T) {
	s := newServer(t, param("infer_end_requests", "0"))
	s.batch(startOf(1), startOf(2)).ok()
	s.batch(endOf(1), nextOf(2)).ok()
	require.Equal(t, tensor.Shape{1, 1, 1}, s.last.answers[0].shapes[0])
	require.Less(t, time.Duration(0), s.last.timing.ComputeStart)
	s.batch(endOf(2)).ok()
	require.Zero(t, s.last.timing, "no time below zero")
}

func deviceOfTheInstance(t *testing.T) {
	set := newSetup()
	var got onnx.SessionOptions
	s := newServer(t)
	model, err := NewModel(ModelInfo{Name: "model", Config: set.json()}, Server{Log: s.in.log, Clock: s.in.model.server.Clock, Open: func(o onnx.SessionOptions) (onnx.Runner, error) {
		got = o
		return nil, errInjected
	}})
	require.NoError(t, err)
	_, err = model.NewInstance(InstanceInfo{Name: "model_0_3", Kind: "gpu", Device: 3})
	require.ErrorIs(t, err, errInjected)
	require.Equal(t, 3, got.Device)
	require.Equal(t, onnx.TensorRT, got.Provider)
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

// idleGrace: a request that waited in the server's queue for longer than the
// idle limit still finds its state, unless the slot was needed.
func idleGrace(t *testing.T) {
	s := newServer(t)
	s.batch(startOf(1), startOf(2)).ok()
	s.now += 1500 * time.Millisecond
	s.batch(nextOf(1)).ok()
	s.batch(nextOf(2)).ok()
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

func equalTotals(t *testing.T) {
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

func typesOfOutputs(t *testing.T) {
	a := accumulate()
	s := newServer(t, streamsOf(a.of(tensor.Int8), a, a.of(tensor.FP64)))
	outputs := s.in.Outputs()
	require.Equal(t, []tensor.DType{tensor.Int8, tensor.FP32, tensor.FP64}, []tensor.DType{outputs[0].DType, outputs[1].DType, outputs[2].DType})
	o := s.batch(startOf(1)).ok()
	require.Equal(t, []int{20, 80, 160}, []int{len(o.answers[0].outputs[0]), len(o.answers[0].outputs[1]), len(o.answers[0].outputs[2])})
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
