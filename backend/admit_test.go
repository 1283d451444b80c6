package backend

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// unevenRun is a run as the model of a mask sees it.
type unevenRun struct{ lanes, longest int64 }

// stepOf asks for a step that brings n elements, each of the number 1.
func stepOf(id uint64, start bool, count int) Request {
	r := step(id, start, count)
	for i := range count {
		copy(r.Inputs[0].Data[4*i:], int32s(1))
	}
	return r
}

// unevenInstance has sequences 1 to n of these lengths, and notes its runs from then on.
func unevenInstance(t *testing.T, limit string, lengths ...int) (*Instance, *[]unevenRun) {
	t.Helper()
	_, in, runs := unevenModel(t, limit, lengths...)
	return in, runs
}

func unevenModel(t *testing.T, limit string, lengths ...int) (*scripted, *Instance, *[]unevenRun) {
	t.Helper()
	model, c, _ := maskedModel(0)
	c.MaxBatchSize = 16
	c.Sequence.Oldest.MaxCandidateSequences = 32
	c.Parameters["max_state_memory_bytes"] = config.Value{String: limit}
	runs := &[]unevenRun{}
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		*runs = append(*runs, unevenRun{inputs[1].Shape[0], inputs[1].Shape[1]})
		return inner(inputs, outputs)
	}
	in := model.loaded(t, c)
	for i, length := range lengths {
		require.NoError(t, send(t, in, stepOf(uint64(i+1), true, length))[0].err)
	}
	*runs = nil
	return model, in, runs
}

// TestLongestDoesNotSlowOthers: sequences of unequal length share a run as long as it
// is at most twice as large as what is theirs in it, and every answer is right.
func TestLongestDoesNotSlowOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		lengths []int
		want    []unevenRun
	}{
		"the longest last":      {[]int{3, 3, 3, 3, 3, 3, 3, 3000}, []unevenRun{{7, 3}, {1, 3000}}},
		"the longest first":     {[]int{3000, 3, 3, 3, 3, 3, 3, 3}, []unevenRun{{2, 3000}, {6, 3}}},
		"all equal":             {[]int{5, 5, 5, 5}, []unevenRun{{4, 5}}},
		"within twice":          {[]int{1, 3, 5, 2}, []unevenRun{{4, 5}}},
		"half of them long":     {[]int{10, 1000, 10, 1000}, []unevenRun{{3, 1000}, {1, 10}}},
		"short ones have to go": {[]int{1000, 10, 10, 1000, 10}, []unevenRun{{4, 1000}, {1, 10}}},
	} {
		t.Run(name, func(t *testing.T) {
			in, runs := unevenInstance(t, "0", tt.lengths...)
			var requests []Request
			for i := range tt.lengths {
				requests = append(requests, stepOf(uint64(i+1), false, 1))
			}
			for i, a := range succeed(t, in, requests...) {
				require.Equal(t, []int32{int32(2 * (tt.lengths[i] + 1))}, numbers(a.outputs[0]))
			}
			require.Equal(t, tt.want, *runs)
		})
	}
}

// TestStartsWithOthers: a sequence that starts has nothing yet, and shares a run all
// the same, where others have little.
func TestStartsWithOthers(t *testing.T) {
	for length, want := range map[int][]unevenRun{2: {{4, 2}}, 3: {{3, 3}, {1, 0}}, 4: {{2, 4}, {2, 0}}} {
		in, runs := unevenInstance(t, "0", length)
		send(t, in, stepOf(1, false, 1), stepOf(2, true, 1), stepOf(3, true, 1), stepOf(4, true, 1))
		require.Equal(t, want, *runs, "with length %d", length)
	}
}

// TestPaddedTensorsCount: while a run is put together, what its padding takes counts
// with what sequences hold, and whom there is no room for runs later.
func TestPaddedTensorsCount(t *testing.T) {
	const most = 40_000
	lengths := []int{600, 400, 500, 300, 600, 350, 450, 300}
	held := int64(4096*2 + 2048*6) // caches are kept in powers of two: 4 bytes for each row
	for _, limit := range []int64{0, most} {
		in, runs := unevenInstance(t, fmt.Sprint(limit), lengths...)
		require.Equal(t, held, in.store.Usage().Bytes)
		var requests []Request
		for i := range lengths {
			requests = append(requests, stepOf(uint64(i+1), false, 1))
		}
		for i, a := range send(t, in, requests...) {
			require.NoError(t, a.err, "sequence %d", i+1)
			require.Equal(t, []int32{int32(2 * (lengths[i] + 1))}, numbers(a.outputs[0]))
		}
		if limit == 0 {
			require.Equal(t, []unevenRun{{8, 600}}, *runs)
			continue
		}
		require.Less(t, len(*runs), 8)
		for _, run := range *runs {
			if run.lanes > 1 {
				padded := run.lanes * 4 * (run.longest + 2*(run.longest+1)) // what it reads, what it writes, the mask
				require.LessOrEqual(t, held+padded, limit, "%v", *runs)
			}
		}
	}
}

// TestNoRoomForPadding: where there is none at all, each request runs by itself and none fails.
func TestNoRoomForPadding(t *testing.T) {
	in, runs := unevenInstance(t, "8192", 60, 70, 80)
	for i, a := range succeed(t, in, stepOf(1, false, 1), stepOf(2, false, 1), stepOf(3, false, 1)) {
		require.Equal(t, []int32{int32(2 * (61 + 10*i))}, numbers(a.outputs[0]))
	}
	require.Equal(t, []unevenRun{{3, 80}}, *runs)
	in, runs = unevenInstance(t, "1600", 60, 70, 80)
	succeed(t, in, stepOf(1, false, 1), stepOf(2, false, 1), stepOf(3, false, 1))
	require.Equal(t, []unevenRun{{1, 60}, {1, 70}, {1, 80}}, *runs)
}

// TestPaddingIsGivenBack: when the long sequence is gone, so is what it made the others'
// tensors take, after some runs.
func TestPaddingIsGivenBack(t *testing.T) {
	const long = 1 << 20
	model, in, runs := unevenModel(t, "0", 3, 3)
	in.padded[0] = 2 * long
	turn := func() { send(t, in, stepOf(1, false, 1), stepOf(2, false, 1)) }
	turn()
	before := model.memory.Used()
	require.NoError(t, send(t, in, stepOf(3, true, long))[0].err)
	send(t, in, stepOf(3, false, 1), stepOf(1, false, 1))
	require.Equal(t, unevenRun{2, long}, (*runs)[len(*runs)-1])
	last := stepOf(3, false, 1)
	last.End = true
	send(t, in, last)
	require.Greater(t, model.memory.Used(), before+8<<20)
	for range 150 {
		turn()
	}
	require.Less(t, model.memory.Used(), before+64<<10)
}

// TestUnreadableRequest: it is refused by itself, and the others of its batch are not.
func TestUnreadableRequest(t *testing.T) {
	s := newServer(t)
	s.batch(startOf(1)).ok()
	unreadable := nextOf(2).unreadable(status.Errorf(status.InvalidArg, "the ID is of another type"))
	s.batch(unreadable.with(func(r *Request) { *r = Request{Err: r.Err} }), nextOf(1)).want("the ID is of another type", "")
}
