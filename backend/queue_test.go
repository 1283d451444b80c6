package backend

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// words is a request of the model that answers with all that a sequence has sent.
func words(id uint64, start, end bool, values ...int32) Request {
	return Request{Sequence: SequenceID{Number: id}, Start: start, End: end, Inputs: intInput(tensor.Shape{1, int64(len(values))}, values...)}
}

// TestRequestsOfEqualShapeRunTogether: there are as many runs as there are shapes,
// however they are mixed.
func TestRequestsOfEqualShapeRunTogether(t *testing.T) {
	model, lanes := cacheModel(), []int64(nil)
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		lanes = append(lanes, inputs[0].Shape[0])
		return inner(inputs, outputs)
	}
	in := model.loaded(t, cacheConfig())
	lanes = nil
	got := send(t, in,
		words(1, true, true, 10), words(2, true, true, 20, 21), words(3, true, true, 30, 31, 32), words(4, true, true, 40),
		words(5, true, true, 50, 51, 52), words(6, true, true, 60, 61), words(7, true, true, 70, 71))
	require.Equal(t, []int64{2, 3, 2}, lanes)
	require.Equal(t, []int32{40}, numbers(got[3].outputs[0]))
	require.Equal(t, []int32{50, 51, 52}, numbers(got[4].outputs[0]))
	require.Equal(t, []int32{70, 71}, numbers(got[6].outputs[0]))
}

// TestRequestsOfOneSequenceKeepTheirOrder: whatever shapes they have, and whatever runs
// with whom.
func TestRequestsOfOneSequenceKeepTheirOrder(t *testing.T) {
	c := cacheConfig()
	c.Parameters["max_state_bytes"] = config.Value{String: "1000"}
	in := cacheModel().loaded(t, c)
	rng := rand.New(rand.NewPCG(3, 1))
	for range 300 {
		sent := map[uint64][]int32{}
		succeed(t, in, words(1, true, false, 1), words(2, true, false, 2), words(3, true, false, 3))
		sent[1], sent[2], sent[3] = []int32{1}, []int32{2}, []int32{3}
		var requests []Request
		var want [][]int32
		for step := range int32(8) { // requests without START run first
			id := 1 + rng.Uint64N(3)
			values := make([]int32, 1+rng.IntN(3))
			for i := range values {
				values[i] = 100*step + int32(i)
			}
			sent[id] = append(sent[id], values...)
			requests, want = append(requests, words(id, false, false, values...)), append(want, append([]int32(nil), sent[id]...))
		}
		for i, a := range succeed(t, in, requests...) {
			require.Equal(t, want[i], numbers(a.outputs[0]))
		}
	}
}

// gains is a batch of requests without sequences that differ in what the model takes
// once for a run.
func gains(t *testing.T, n int) (*Instance, *idleBatch) {
	model, c, _ := scaledModel()
	model.run = func(_, _ []onnx.Tensor) error { return nil }
	c.MaxBatchSize = n
	in := model.loaded(t, c)
	b := &idleBatch{}
	for i := range int32(n) {
		b.requests = append(b.requests, scaled(1, i))
	}
	return in, b
}

// TestNoAllocationsForManyRuns: a batch that takes several runs needs no memory for it.
func TestNoAllocationsForManyRuns(t *testing.T) {
	in, b := gains(t, 64)
	in.Execute(b) // ioSets are made
	require.Zero(t, testing.AllocsPerRun(20, func() { in.Execute(b) }))
}

// TestManyRunsTakeLinearTime: 16 times as many requests, of which each needs a run of
// its own, do not take hundreds of times as long.
func TestManyRunsTakeLinearTime(t *testing.T) {
	best := func(n int) time.Duration {
		in, b := gains(t, n)
		least := time.Hour
		for range 5 {
			start := time.Now()
			in.Execute(b)
			least = min(least, time.Since(start))
		}
		return least
	}
	few, many := best(64), best(1024)
	require.Less(t, many, 128*few, fmt.Sprintf("64 requests took %v, 1024 took %v", few, many))
}
