package backend

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// runsOf runs batches of that many requests with a model whose run of n lanes
// takes that long, and returns the sizes of the last batch's runs and the time
// spent over that of whole batches.
func runsOf(s *splitter, batches, requests int, took func(lanes int) time.Duration) (runs []int, ratio float64) {
	var spent, whole time.Duration
	for range batches {
		runs = nil
		s.begin(requests)
		for left := requests; left > 0; {
			n := min(left, s.nextLanes(left))
			runs = append(runs, n)
			s.ran(n, took(n))
			spent += took(n)
			left -= n
		}
		whole += took(requests)
	}
	return runs, float64(spent) / float64(whole)
}

// TestSplitter: a batch is split where that is faster, and only there; finding out costs
// little.
func TestSplitter(t *testing.T) {
	leavesCaches := func(n int) time.Duration { // as the model kvring does
		each := 34 * time.Microsecond
		if n > 8 {
			each += time.Duration(min(n-8, 24)) * time.Microsecond
		}
		return time.Duration(n)*each + 8*time.Microsecond
	}
	computes := func(n int) time.Duration { // as an LSTM does, which reads its weights in every run
		return 300*time.Microsecond + time.Duration(n)*60*time.Microsecond
	}
	tests := []struct {
		name     string
		requests int
		took     func(int) time.Duration
		runs     []int
		ratio    float64 // at most, over 10,000 batches
	}{
		{"large states", 64, leavesCaches, slices.Repeat([]int{8}, 8), 0.63},
		{"large states, not a power of two", 33, leavesCaches, []int{9, 8, 8, 8}, 0.67},
		{"large states, few requests", 9, leavesCaches, []int{9}, 1.01},
		{"a model that computes", 64, computes, []int{64}, 1.01},
		{"a model that computes, a few requests", 8, computes, []int{8}, 1.01},
		{"all sizes equal", 64, func(n int) time.Duration { return time.Duration(n) * time.Millisecond }, []int{64}, 1.001},
		{"three requests", 3, leavesCaches, []int{3}, 1},
		{"one request", 1, leavesCaches, []int{1}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSplitter(true)
			_, ratio := runsOf(&s, 10_000, tt.requests, tt.took)
			s.batches = 10*tryOftenUntil + 1 // the next one tries nothing
			runs, _ := runsOf(&s, 1, tt.requests, tt.took)
			require.Equal(t, tt.runs, runs)
			require.LessOrEqual(t, ratio, tt.ratio)
		})
	}
}

// TestSplitterFollows: when costs change, so do the runs.
func TestSplitterFollows(t *testing.T) {
	cheapParts := func(n int) time.Duration { return time.Duration(n*n) * time.Microsecond }
	cheapWhole := func(n int) time.Duration { return time.Millisecond + time.Duration(n)*time.Microsecond }
	s := newSplitter(true)
	runs, _ := runsOf(&s, 2000, 16, cheapParts)
	require.Len(t, runs, 8)
	_, _ = runsOf(&s, 4000, 16, cheapWhole)
	s.batches = 10*tryOftenUntil + 1
	runs, _ = runsOf(&s, 1, 16, cheapWhole)
	require.Len(t, runs, 1)
}

// TestSplitterOff: nothing is split, and nothing filled.
func TestSplitterOff(t *testing.T) {
	s := newSplitter(false)
	runs, _ := runsOf(&s, 1000, 64, func(n int) time.Duration { return time.Duration(n*n) * time.Microsecond })
	require.Equal(t, []int{64}, runs)
	require.Equal(t, 1, s.lanesFor(1, 64))
}

// TestSingleLane: it runs with an empty one if the model takes far longer for one
// lane than for two, and at times alone, to see whether that is still so.
func TestSingleLane(t *testing.T) {
	s := newSplitter(true)
	require.Equal(t, 1, s.lanesFor(1, 64), "nothing is known")
	for range enoughSamples {
		s.ran(1, 300*time.Microsecond)
		s.ran(2, 70*time.Microsecond)
	}
	single := 0
	for range 10 * trySeldom {
		single += index(s.lanesFor(1, 64) == 1)
	}
	require.Equal(t, 10, single)
	require.Equal(t, 1, s.lanesFor(1, 1), "a batch has no room for another")
	require.Equal(t, 3, s.lanesFor(3, 64))
	for range 64 {
		s.ran(1, 75*time.Microsecond)
	}
	require.Equal(t, 1, s.lanesFor(1, 64))
}

// TestSplitterIsForLargeStates: when it is on.
func TestSplitterIsForLargeStates(t *testing.T) {
	t.Parallel()
	of := func(features int64) func(*setup) { return streamsOf(largeStream(features, "bk")) }
	for _, tt := range []struct {
		name  string
		edits []func(*setup)
		want  bool
	}{
		{"large states", []func(*setup){of(splitFrom / 4)}, true},
		{"smaller ones", []func(*setup){of(splitFrom/4 - 1)}, false},
		{"exact batches", []func(*setup){of(splitFrom / 4), param("batch_padding", "none")}, false},
		{"padded", []func(*setup){of(splitFrom / 4), param("batch_padding", "max")}, false},
		{"converted states", []func(*setup){of(splitFrom / 4), param("store_states_as_fp16", "1")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, newServer(t, tt.edits...).in.splitter.on) })
	}
}

// largeStream accumulates that many numbers.
func largeStream(features int64, stateOrder string) stream {
	s := accumulate()
	s.order, s.stateOrder, s.rows, s.features = "bk", stateOrder, 1, features
	return s
}

// cheapest makes a splitter believe that runs of that many lanes cost least.
func cheapest(s *splitter, lanes int) {
	*s = newSplitter(true)
	for i := range s.costs {
		s.costs[i] = cost{mean: 2, samples: enoughSamples}
	}
	s.costs[sizeClass(lanes)].mean = 1
}

// TestSplitBatches: whatever runs a batch is split into, each request gets the answer
// of its own sequence, and no lane is left over to run by itself.
func TestSplitBatches(t *testing.T) { eachQueueing(t, splitBatches) }

func splitBatches(t *testing.T, on func(*setup)) {
	t.Parallel()
	for _, order := range []string{"bk", "kb"} {
		for _, lanes := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s/%d", order, lanes), func(t *testing.T) {
				s := newServer(t, slots(48, 16), streamsOf(largeStream(1024, order)), on)
				rng := rand.New(rand.NewPCG(5, 5))
				cheapest(&s.in.splitter, lanes)
				s.runner.runs = nil
				alive, asked := map[int]bool{}, 0
				for range 60 {
					var asks []ask
					for _, id := range rng.Perm(40)[:4+rng.IntN(13)] {
						a := ask{id: fmt.Sprint(id + 1), start: !alive[id] || rng.IntN(8) == 0, end: rng.IntN(8) == 0}
						alive[id] = !a.end
						asks = append(asks, a)
					}
					s.batch(asks...).ok()
					asked += len(asks)
				}
				require.NotContains(t, s.runner.runs, 1)
				require.LessOrEqual(t, float64(asked)/float64(len(s.runner.runs)), float64(lanes)+1)
			})
		}
	}
}

// TestCutWhereStatesPart: sequences that ran together go on together, in place,
// however requests are ordered, if parts cost about as much as the whole.
func TestCutWhereStatesPart(t *testing.T) { eachQueueing(t, cutWhereStatesPart) }

func cutWhereStatesPart(t *testing.T, on func(*setup)) {
	for _, tt := range []struct {
		name  string
		costs [4]float64 // of a lane in runs of 1, 2 to 3, 4 to 7, and 8
		runs  []int
	}{
		{"parts cost less", [4]float64{9, 1, 1, 2}, []int{3, 5}},
		{"parts cost as much", [4]float64{9, 2, 2, 2}, []int{3, 5}},
		{"small parts cost more", [4]float64{9, 3, 2, 2}, []int{8}},
		{"parts cost more", [4]float64{9, 3, 3, 2}, []int{8}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, slots(48, 16), streamsOf(largeStream(1024, "bk")), on)
			s.batch(startOf(1), startOf(2), startOf(3)).ok()
			s.batch(startOf(9)).ok()
			s.batch(startOf(11), startOf(12), startOf(13), startOf(14), startOf(15)).ok()
			s.in.splitter = newSplitter(true)
			for i, mean := range tt.costs {
				s.in.splitter.costs[i] = cost{mean: mean, samples: enoughSamples}
			}
			s.runner.runs = nil
			s.batch(nextOf(12), nextOf(3), nextOf(14), nextOf(1), nextOf(11), nextOf(15), nextOf(2), nextOf(13)).ok()
			require.Equal(t, tt.runs, s.runner.runs)
			require.Equal(t, 1, s.last.sends, "all are answered at once")
		})
	}
}

// TestSplitBatchesAllocateNothing: not even while their answers wait.
func TestSplitBatchesAllocateNothing(t *testing.T) {
	s, b := idleServer(t, 32, 16, streamsOf(largeStream(1024, "bk")))
	cheapest(&s.in.splitter, 4)
	s.in.Execute(b)
	require.NotEmpty(t, s.in.waiting)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.in.Execute(b) }))
}

// TestPartFails: when one of a batch's runs fails, those of the others are answered,
// and its own can be sent again.
func TestPartFails(t *testing.T) { eachScheduler(t, partFails) }

func partFails(t *testing.T, on func(*setup)) {
	for failing := range 3 {
		s := newServer(t, slots(48, 16), streamsOf(largeStream(1024, "bk")), on)
		var starts, steps []ask
		for id := range 12 {
			starts = append(starts, startOf(id+1))
			steps = append(steps, nextOf(id+1))
		}
		s.batch(starts...).ok()
		cheapest(&s.in.splitter, 4)
		run := 0
		s.runner.before = func() error {
			run++
			if run == failing+1 {
				return errors.New("out of luck")
			}
			return nil
		}
		s.batch(steps...)
		failed := 0
		for _, a := range s.last.answers {
			if a.err != nil {
				require.ErrorContains(t, a.err, "out of luck")
				failed++
			}
		}
		require.Equal(t, 4, failed)
		require.Equal(t, 3, run)
		s.batch(steps...).ok()
	}
}

// TestSingleLaneStaysFilled: what two lanes take is not held to be the cost of one.
func TestSingleLaneStaysFilled(t *testing.T) {
	s := newServer(t, slots(48, 16), streamsOf(largeStream(1024, "bk")))
	s.runner.before = func() error { s.now += 70; return nil }
	s.batch(startOf(1)).ok()
	s.in.splitter = newSplitter(true)
	s.in.splitter.costs[0] = cost{mean: 300, samples: enoughSamples}
	s.in.splitter.costs[1] = cost{mean: 35, samples: enoughSamples}
	s.runner.runs = nil
	for range trySeldom - 1 {
		s.batch(nextOf(1)).ok()
	}
	require.NotContains(t, s.runner.runs, 1)
}

// TestRequestsOfSeveralLanes: without sequences a request may have several lanes, and as
// many requests share a run as fit.
func TestRequestsOfSeveralLanes(t *testing.T) {
	names := []string{"batch", ""}
	model, c := copyModel(tensor.Shape{tensor.Dynamic, 1}, names, names)
	c.Inputs[0].Dims, c.Outputs[0].Dims = tensor.Shape{1}, tensor.Shape{1}
	var runs []int // lanes of each
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		runs = append(runs, int(inputs[0].Shape[0]))
		return inner(inputs, outputs)
	}
	in := model.loaded(t, c)
	runs = nil
	var requests []Request
	for i, rows := range []int64{4, 3, 1, 2} {
		values := slices.Repeat([]int32{int32(i + 1)}, int(rows))
		requests = append(requests, Request{Inputs: intInput(tensor.Shape{rows, 1}, values...)})
	}
	for i, got := range succeed(t, in, slices.Clone(requests)...) {
		require.Equal(t, requests[i].Inputs[0].Data, got.outputs[0])
	}
	require.Equal(t, []int{8, 2}, runs)
}
