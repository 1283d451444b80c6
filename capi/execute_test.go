package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend"
	"tritonstateful/internal/faketriton"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

func TestBatchesGrowAndShrink(t *testing.T) {
	s := serve(t, newEcho())
	for _, size := range []int{1, 64, 3, 65, 0, 2} {
		calls := make([]faketriton.Call, size)
		for i := range calls {
			calls[i] = echoCall(uint64(i+1), int32(i), -int32(i))
		}
		rs := s.execute(t, calls...)
		for i, r := range rs {
			answered(t, r, y(int32(i), -int32(i)), z(7))
		}
	}
}

// read executes one call and returns the request as the model saw it.
func read(t *testing.T, stringIDs bool, call faketriton.Call) backend.Request {
	var seen backend.Request
	in := newEcho()
	in.stringIDs = stringIDs
	in.execute = func(b backend.Batch) {
		seen = b.Requests()[0]
		seen.Sequence.Text = string([]byte(seen.Sequence.Text)) // borrowed until Finish
	}
	s := serve(t, in)
	s.execute(t, call)
	return seen
}

func TestSequenceID(t *testing.T) {
	number := faketriton.Call{Number: 1 << 63}
	text := faketriton.Call{StringID: "séquence", HasStringID: true}
	for _, stringIDs := range []bool{false, true} { // what the client sends counts
		require.Equal(t, backend.SequenceID{Number: 1 << 63}, read(t, stringIDs, number).Sequence)
		require.Equal(t, backend.SequenceID{Text: "séquence"}, read(t, stringIDs, text).Sequence)
		require.True(t, read(t, stringIDs, faketriton.Call{}).Sequence.IsZero())
		require.True(t, read(t, stringIDs, faketriton.Call{HasStringID: true}).Sequence.IsZero())
	}
}

// tokenInstance distinguishes its requests by a state of Triton's.
type tokenInstance struct{ *fakeInstance }

func (tokenInstance) TokenInput() string { return "STATE" }

// TestToken: where Triton keeps the state of a sequence tells its requests from those
// of another that has the same ID.
func TestToken(t *testing.T) {
	var seen []uint64
	in := newEcho()
	in.execute = func(b backend.Batch) {
		for _, r := range b.Requests() {
			seen = append(seen, r.Token)
		}
	}
	s := serve(t, tokenInstance{in})
	one := echoCall(7, 1, 2)
	other, none := one, one
	one.Inputs = append(one.Inputs, faketriton.Input{Name: "STATE", Buffers: [][]byte{{0}}})
	other.Inputs = append(other.Inputs, faketriton.Input{Name: "STATE", Buffers: [][]byte{{0}}})
	s.execute(t, one, other, none)
	require.NotZero(t, seen[0])
	require.NotZero(t, seen[1])
	require.NotEqual(t, seen[0], seen[1])
	require.Zero(t, seen[2], "a server that gives no states")
}

func TestRequestFlags(t *testing.T) {
	for flags := range 4 {
		r := read(t, false, faketriton.Call{Flags: flags})
		require.Equal(t, flags&faketriton.Start != 0, r.Start)
		require.Equal(t, flags&faketriton.End != 0, r.End)
		require.False(t, r.Cancelled)
	}
	require.True(t, read(t, false, faketriton.Call{Cancelled: true}).Cancelled)
}

func TestInputAsItCame(t *testing.T) {
	var seen []backend.Input
	in := newEcho()
	in.execute = func(b backend.Batch) {
		r := b.Requests()[0]
		require.NoError(t, r.Err)
		for _, input := range r.Inputs {
			input.Shape, input.Data = input.Shape.Clone(), append([]byte{}, input.Data...)
			seen = append(seen, input)
		}
	}
	s := serve(t, in)
	odd := faketriton.Input{Name: "X", Type: int(tensor.FP16), Shape: tensor.Shape{1, 0, 3}}
	s.execute(t, faketriton.Call{Inputs: []faketriton.Input{odd}})
	require.Equal(t, []backend.Input{
		{Present: true, DType: tensor.FP16, Shape: tensor.Shape{1, 0, 3}, Data: []byte{}},
		{Data: []byte{}},
	}, seen)
}

func TestBuffersAreJoined(t *testing.T) {
	s := serve(t, newEcho())
	split := func(a, b int32) faketriton.Call {
		call := echoCall(1, 0, 0)
		call.Inputs[0] = x(i32(a)[:1], i32(a)[1:], nil, i32(b))
		return call
	}
	rs := s.execute(t, split(1, 2), echoCall(2, 3, 4), split(5, 6))
	answered(t, rs[0], y(1, 2), z(7))
	answered(t, rs[1], y(3, 4), z(7))
	answered(t, rs[2], y(5, 6), z(7))
}

func TestLargeJoinedInputIsGivenBack(t *testing.T) {
	var size int
	in := newEcho()
	in.execute = func(b backend.Batch) { size = len(b.Requests()[0].Inputs[0].Data) }
	s := serve(t, in)
	half := make([]byte, 12<<20)
	for range 2 {
		s.execute(t, faketriton.Call{Inputs: []faketriton.Input{x(half, half)}})
		require.Equal(t, 2*len(half), size)
	}
}

func TestUnreadableRequestsAreTheirOwnFault(t *testing.T) {
	s := serve(t, newEcho())
	onDevice := echoCall(2, 1, 2)
	onDevice.Inputs[0].Memory = faketriton.GPU
	pinned := echoCall(3, 3, 4)
	pinned.Inputs[0].Memory = faketriton.Pinned
	missing := echoCall(4, 0, 0)
	missing.Inputs = missing.Inputs[1:]
	optional := echoCall(5, 5, 6)
	optional.Inputs = optional.Inputs[:1]
	rs := s.execute(t, echoCall(1, 1, 1), onDevice, pinned, missing, optional)
	answered(t, rs[0], y(1, 1), z(7))
	refused(t, rs[1], status.Unsupported, `input "X": its data is in GPU memory`)
	answered(t, rs[2], y(3, 4), z(7))
	refused(t, rs[3], status.InvalidArg, `input "X" is missing`)
	answered(t, rs[4], y(5, 6), z(0))
}

func TestUnreadableRequestStillHasItsEnd(t *testing.T) {
	r := read(t, false, faketriton.Call{Number: 5, Flags: faketriton.End})
	require.ErrorContains(t, r.Err, `input "X" is missing`)
	require.True(t, r.End)
	require.Equal(t, uint64(5), r.Sequence.Number)
}

func TestOnlyWantedOutputsAreMade(t *testing.T) {
	s := serve(t, newEcho())
	only, none := echoCall(1, 1, 2), echoCall(2, 3, 4)
	only.Outputs = []string{"Z", "UNKNOWN"}
	none.Outputs = nil
	rs := s.execute(t, only, none)
	answered(t, rs[0], z(7))
	got, err := rs[1].Answer()
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, 1, faketriton.CallsOf("TRITONBACKEND_ResponseOutput"))
}

func TestOutputBufferOnDevice(t *testing.T) {
	s := serve(t, newEcho())
	onDevice, pinned := echoCall(1, 1, 2), echoCall(2, 3, 4)
	onDevice.OutputMemory, pinned.OutputMemory = faketriton.GPU, faketriton.Pinned
	rs := s.execute(t, onDevice, pinned)
	refused(t, rs[0], status.Unsupported, `output "Y": the client's buffer`)
	answered(t, rs[1], y(3, 4), z(7))
}

// TestLanesOfAnyLayout answers from a tensor [2, batch, 2] of which each request
// has one lane or two, one after the other.
func TestLanesOfAnyLayout(t *testing.T) {
	in := newEcho()
	in.outputs = in.outputs[:1]
	batched := []backend.Output{{
		Tensor: i32(
			0, 1, 10, 11, 20, 21,
			100, 101, 110, 111, 120, 121,
		),
		Layout: statebuffer.Layout{Pieces: 2, PieceBytes: 8}, Lanes: 3,
		Shape: tensor.Shape{1, 2, 2}, Batched: true,
	}}
	in.execute = func(b backend.Batch) {
		b.Answer(0, batched, 1, 2)
		b.Answer(1, batched, 0, 1)
		b.Answer(2, batched, 2, 1)
	}
	s := serve(t, in)
	rs := s.execute(t, echoCall(1, 0, 0), echoCall(2, 0, 0), echoCall(3, 0, 0))
	want := func(lanes int64, numbers ...int32) faketriton.Output {
		return faketriton.Output{Name: "Y", Type: int(tensor.Int32), Shape: tensor.Shape{lanes, 2, 2}, Data: i32(numbers...)}
	}
	answered(t, rs[0], want(2, 10, 11, 110, 111, 20, 21, 120, 121))
	answered(t, rs[1], want(1, 0, 1, 100, 101))
	answered(t, rs[2], want(1, 20, 21, 120, 121))
}

// TestLanesOfStrings answers from lanes of different sizes.
func TestLanesOfStrings(t *testing.T) {
	in := newEcho()
	in.outputs = []onnx.IOTensor{{Name: "Y", DType: tensor.Bytes}}
	strings := []backend.Output{{
		Tensor: []byte("onethreesix"), Offsets: []int64{0, 3, 8, 8, 11}, Lanes: 4,
		Shape: tensor.Shape{1, 1}, Batched: true,
	}}
	in.execute = func(b backend.Batch) {
		b.Answer(0, strings, 0, 1)
		b.Answer(1, strings, 1, 3)
		b.Answer(2, strings, 2, 1)
	}
	s := serve(t, in)
	rs := s.execute(t, echoCall(1, 0, 0), echoCall(2, 0, 0), echoCall(3, 0, 0))
	want := func(lanes int64, text string) faketriton.Output {
		return faketriton.Output{Name: "Y", Type: int(tensor.Bytes), Shape: tensor.Shape{lanes, 1}, Data: []byte(text)}
	}
	answered(t, rs[0], want(1, "one"))
	answered(t, rs[1], want(3, "threesix"))
	answered(t, rs[2], want(1, ""))
}

// TestAnswersInSeveralSends answers requests with different tensors, in one Send and
// in another.
func TestAnswersInSeveralSends(t *testing.T) {
	in := newEcho()
	in.outputs = in.outputs[:1]
	output := func(a, b int32) []backend.Output {
		return []backend.Output{{Tensor: i32(a, b), Layout: statebuffer.Layout{Pieces: 1, PieceBytes: 8}, Lanes: 1, Shape: pair}}
	}
	in.execute = func(b backend.Batch) {
		b.Answer(2, output(1, 2), 0, 1)
		b.Answer(0, output(3, 4), 0, 1)
		b.Send()
		b.Answer(1, output(5, 6), 0, 1)
		b.Answer(0, output(8, 8), 0, 1) // has its answer
		b.Fail(2, status.Errorf(status.Internal, "late"))
		b.Finish(computed)
		b.Finish(computed) // does nothing
	}
	s := serve(t, in)
	rs := s.execute(t, echoCall(1, 0, 0), echoCall(2, 0, 0), echoCall(3, 0, 0))
	answered(t, rs[0], y(3, 4))
	answered(t, rs[1], y(5, 6))
	answered(t, rs[2], y(1, 2))
}

func TestEveryCodeReachesTheClient(t *testing.T) {
	var code status.Code
	in := newEcho()
	in.execute = func(b backend.Batch) { b.Fail(0, status.Errorf(code, "because %s", "100%s")) }
	s := serve(t, in)
	for code = status.Unknown; code <= status.Cancelled; code++ {
		rs := s.execute(t, echoCall(1, 1, 1))
		refused(t, rs[0], code, "because 100%s")
	}
}

// notReady is an instance that cannot execute.
type notReady struct{ *fakeInstance }

func (notReady) Ready() error { return status.Errorf(status.Unavailable, "the GPU is gone") }

func TestReady(t *testing.T) {
	s := serve(t, notReady{newEcho()})
	failed(t, s.instance.Ready(), status.Unavailable, "the GPU is gone")
}

func TestHostPolicies(t *testing.T) {
	for text, want := range map[string]backend.HostPolicy{
		"": nil, `{}`: nil, `{"cpu":{}}`: {}, `{"near":{"cpu-cores":"0-1"}}`: {"cpu-cores": "0-1"},
	} {
		got, err := readHostPolicy([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	_, err := readHostPolicy([]byte(`["cpu"]`))
	require.ErrorContains(t, err, `host policy "[\"cpu\"]"`)
	require.Equal(t, status.Internal, status.CodeOf(err))
}

// TestTraces: of the requests that the server traces, those that ran get the parts of their run.
func TestTraces(t *testing.T) {
	in := newEcho()
	e := &echo{}
	in.execute = func(b backend.Batch) {
		for req, times := range []backend.RunTimes{
			{Gather: 10, Run: 20, Store: 30, End: 40}, {}, {}, {Gather: 11, End: 21}, {Gather: 12, Run: 22, End: 32},
		} {
			if to := b.Requests()[req].Trace; to != nil {
				*to = times
			}
		}
		e.execute(b)
	}
	calls := make([]faketriton.Call, 5)
	for i := range calls {
		calls[i] = echoCall(uint64(i)+1, 1, 2)
		calls[i].Traced = i != 1
	}
	s := serve(t, in)
	rs := s.execute(t, calls...)
	gather := func(from, to uint64) []faketriton.Activity {
		return []faketriton.Activity{{Name: "stateful_gather_START", At: from}, {Name: "stateful_gather_END", At: to}}
	}
	run := func(from, to uint64) []faketriton.Activity {
		return []faketriton.Activity{{Name: "stateful_run_START", At: from}, {Name: "stateful_run_END", At: to}}
	}
	store := []faketriton.Activity{{Name: "stateful_store_START", At: 30}, {Name: "stateful_store_END", At: 40}}
	require.Equal(t, slices.Concat(gather(10, 20), run(20, 30), store), rs[0].Activities())
	require.Empty(t, rs[2].Activities(), "it did not run")
	require.Equal(t, gather(11, 21), rs[3].Activities(), "its run failed at the first part")
	require.Equal(t, slices.Concat(gather(12, 22), run(22, 32)), rs[4].Activities(), "and at the second")
}

// TestServerWithoutTraces is asked once.
func TestServerWithoutTraces(t *testing.T) {
	s := serve(t, newEcho())
	faketriton.WithoutTraces()
	for range 2 {
		rs := s.execute(t, echoCall(1, 1, 2), echoCall(2, 3, 4))
		answered(t, rs[1], y(3, 4), z(7))
	}
	require.Equal(t, 1, faketriton.CallsOf("TRITONBACKEND_RequestTrace"))
}
