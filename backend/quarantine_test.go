package backend

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// wrongToken is what a picky model refuses.
const wrongToken = 99

// picky is an instance of a model that refuses wrongToken, as ONNX Runtime does, and
// else answers with the sum of what a sequence has sent.
type picky struct {
	t     *testing.T
	in    *Instance
	clock time.Duration
	lanes []int // of the runs since the last batch
	// allFail: the model refuses everything.
	allFail bool
	sums    map[uint64]int32 // what each sequence has sent
}

func newPicky(t *testing.T, edit func(*config.Config), on func(*setup)) *picky {
	p := &picky{t: t, sums: map[uint64]int32{}, clock: time.Hour}
	model := sumModel()
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		p.lanes = append(p.lanes, int(inputs[0].Shape[0]))
		for i := range inputs[0].Data.Size / 4 {
			if p.allFail || runnertest.Element(inputs[0].Data.Bytes, tensor.Int32, i) == wrongToken {
				return status.Errorf(status.InvalidArg, "no token %d", wrongToken)
			}
		}
		return inner(inputs, outputs)
	}
	c := sumConfig()
	c.MaxBatchSize, c.Sequence.Oldest.MaxCandidateSequences = 64, 4096
	c.Sequence.MaxIdleMicroseconds = 0
	edit(c)
	in := model.loaded(t, scheduled(c, on))
	p.in, p.lanes = in, nil
	in.model.server.Clock = func() time.Duration { p.clock++; return p.clock }
	return p
}

// token is a request of a sequence.
func token(id uint64, start bool, value int32) Request {
	return Request{Sequence: SequenceID{Number: id}, Start: start, Inputs: intInput(tensor.Shape{1, 2}, value, value)}
}

// batch sends requests and checks that exactly the wrong ones fail, and the sums of the
// others. It returns the lanes of the runs.
func (p *picky) batch(requests ...Request) (lanes []int) {
	p.t.Helper()
	p.lanes = nil
	for i, a := range send(p.t, p.in, slices.Clone(requests)...) {
		r := requests[i]
		value := numbers(r.Inputs[0].Data)[0]
		if value == wrongToken {
			require.EqualError(p.t, a.err, "error during inference: no token 99")
			require.Equal(p.t, status.InvalidArg, status.CodeOf(a.err))
			continue
		}
		require.NoError(p.t, a.err)
		if r.Start {
			p.sums[r.Sequence.Number] = 0
		}
		p.sums[r.Sequence.Number] += value
		require.Equal(p.t, []int32{p.sums[r.Sequence.Number], p.sums[r.Sequence.Number]}, numbers(a.outputs[0]), "sequence %d", r.Sequence.Number)
	}
	return p.lanes
}

// tokens is a batch of n sequences, the first of which sends a value of its own.
func tokens(n uint64, start bool, first int32) (requests []Request) {
	requests = append(requests, token(1, start, first))
	for id := uint64(2); id <= n; id++ {
		requests = append(requests, token(id, start, int32(id)))
	}
	return requests
}

func total(lanes []int) (n int) {
	for _, l := range lanes {
		n += l
	}
	return n
}

// TestFailedRunIsHalved: one that fails alone costs three times the lanes, in a few runs.
func TestFailedRunIsHalved(t *testing.T) { eachScheduler(t, failedRunIsHalved) }

func failedRunIsHalved(t *testing.T, on func(*setup)) {
	t.Parallel()
	for _, n := range []uint64{2, 3, 32, 33, 64} {
		for wrong := range n {
			p := newPicky(t, func(*config.Config) {}, on)
			p.batch(tokens(n, true, 5)...)
			requests := tokens(n, false, 5)
			requests[wrong] = token(wrong+1, false, wrongToken)
			lanes := p.batch(requests...)
			require.LessOrEqual(t, total(lanes), int(3*n+6))
			require.LessOrEqual(t, len(lanes), 13)
			require.Equal(t, []int{int(n)}, newPicky(t, func(*config.Config) {}, on).batch(tokens(n, true, 5)...))
		}
	}
}

// TestFailedRunIsHalvedWithoutSequences: also by requests of several lanes, which stay whole.
func TestFailedRunIsHalvedWithoutSequences(t *testing.T) {
	p := newPicky(t, func(c *config.Config) {
		c.Sequence, c.Parameters = nil, map[string]config.Value{"constant_inputs": {String: "Sum = 0"}}
	}, func(*setup) {})
	var requests []Request
	for i := range int32(10) {
		requests = append(requests, Request{Inputs: intInput(tensor.Shape{3, 2}, i, i, i, i, i, i)})
	}
	for range 3 { // no sequence is known again
		requests[7].Inputs = intInput(tensor.Shape{3, 2}, 1, 1, 1, wrongToken, 1, 1)
		for i, a := range send(t, p.in, slices.Clone(requests)...) {
			if i == 7 {
				require.ErrorContains(t, a.err, "no token 99")
				continue
			}
			require.NoError(t, a.err)
			require.Equal(t, tensor.Shape{3, 2}, a.shapes[0])
			require.Equal(t, numbers(requests[i].Inputs[0].Data), numbers(a.outputs[0]))
		}
		require.Equal(t, []int{30, 15, 15, 6, 9, 3, 6}, p.lanes)
		p.lanes = nil
	}
	require.False(t, p.in.quarantine.any(p.clock))
}

// TestQuarantineRunsSeparately: a client that goes on sending what the model refuses costs the others
// one small run, until enough requests have succeeded or enough time has gone by.
func TestQuarantineRunsSeparately(t *testing.T) { eachScheduler(t, quarantineRunsSeparately) }

func quarantineRunsSeparately(t *testing.T, on func(*setup)) {
	p := newPicky(t, func(*config.Config) {}, on)
	p.batch(tokens(32, true, 5)...)
	require.Greater(t, len(p.batch(tokens(32, false, wrongToken)...)), 2)
	for range 20 {
		require.Equal(t, []int{31, 1}, p.batch(tokens(32, false, wrongToken)...))
	}
	for range quarantineRuns {
		require.Equal(t, []int{31, 1}, p.batch(tokens(32, false, 7)...))
	}
	require.Equal(t, []int{32}, p.batch(tokens(32, false, 7)...))

	p.batch(tokens(32, false, wrongToken)...)
	require.Equal(t, []int{31, 1}, p.batch(tokens(32, false, 7)...))
	p.clock += 2 * quarantineFor
	require.Equal(t, []int{32}, p.batch(tokens(32, false, 7)...))
	require.Empty(t, p.in.quarantine.held)
}

// TestStartsRunSeparately: a client that starts again each time, with a wrong value, has
// another ID each time. He costs those that go on nothing but a run of the STARTs.
func TestStartsRunSeparately(t *testing.T) { eachScheduler(t, startsRunSeparately) }

func startsRunSeparately(t *testing.T, on func(*setup)) {
	p := newPicky(t, func(*config.Config) {}, on)
	p.batch(tokens(32, true, 5)...)
	with := func(starts ...Request) []Request { return append(tokens(32, false, 5), starts...) }
	require.Greater(t, len(p.batch(with(token(100, true, wrongToken))...)), 2)
	for id := uint64(101); id < 200; id++ {
		require.Equal(t, []int{32, 1}, p.batch(with(token(id, true, wrongToken))...))
	}
	require.Len(t, p.in.quarantine.held, 2, "the first one, and all STARTs")
	require.Equal(t, []int{32, 2, 1, 1}, p.batch(with(token(2000, true, wrongToken), token(2001, true, 1))...))
	for id := uint64(3000); id < 3000+quarantineRuns; id++ {
		require.Equal(t, []int{32, 1}, p.batch(with(token(id, true, 3))...))
	}
	require.Equal(t, []int{33}, p.batch(with(token(4000, true, 3))...))
}

// TestNoSequenceIsToBlame: where no request of a batch succeeds, values are not what is wrong.
func TestNoSequenceIsToBlame(t *testing.T) { eachScheduler(t, noSequenceIsToBlame) }

func noSequenceIsToBlame(t *testing.T, on func(*setup)) {
	p := newPicky(t, func(*config.Config) {}, on)
	p.batch(tokens(8, true, 5)...)
	p.allFail = true
	for _, a := range send(t, p.in, tokens(8, false, 5)...) {
		require.ErrorContains(t, a.err, "no token")
	}
	p.allFail = false
	require.Equal(t, []int{8}, p.batch(tokens(8, false, 5)...))
	send(t, p.in, token(1, false, wrongToken)) // alone
	require.Equal(t, []int{8}, p.batch(tokens(8, false, 5)...))
}

// TestHalvesCountAsOneAttempt: sequences that run again were started once, and idled once.
func TestHalvesCountAsOneAttempt(t *testing.T) { eachScheduler(t, halvesCountAsOneAttempt) }

func halvesCountAsOneAttempt(t *testing.T, on func(*setup)) {
	p := newPicky(t, func(*config.Config) {}, on)
	p.batch(tokens(16, true, 1)...)
	before := p.in.store.Counters()
	p.batch(append(tokens(16, false, wrongToken), token(20, true, 3), token(21, true, 3))...)
	after := p.in.store.Counters()
	require.EqualValues(t, 2, after.Started-before.Started)
	require.Equal(t, before.Restarted, after.Restarted)
}

// TestQuarantineAllocatesNothing: neither looking for sequences nor running them separately.
func TestQuarantineAllocatesNothing(t *testing.T) {
	s, b := idleServer(t, 32, 8)
	fail := func() {
		for _, r := range b.requests[:3] {
			s.in.quarantine.failed(r.Sequence, s.now)
		}
	}
	fail()
	s.in.Execute(b) // ioSets are made
	fail()
	require.Zero(t, testing.AllocsPerRun(quarantineRuns-2, func() { s.in.Execute(b) }))
	require.Len(t, s.in.quarantine.held, 3)
}

// TestQuarantineIsSmall: and sequences leave it in time.
func TestQuarantineIsSmall(t *testing.T) {
	s, now := &quarantine{}, time.Hour
	for id := range uint64(10 * quarantineMost) {
		s.failed(SequenceID{Number: 1 + id}, now)
	}
	require.Len(t, s.held, quarantineMost)
	require.True(t, s.has(SequenceID{Number: 10 * quarantineMost}), "the last one is among them")
	require.True(t, s.any(now+quarantineFor-1))
	require.False(t, s.any(now+quarantineFor))
}

// TestQuarantineKeepsStrings: the memory of an ID is something else after the batch.
func TestQuarantineKeepsStrings(t *testing.T) {
	s := newServer(t, stringIDs, slots(8, 8))
	s.batch(startOf("alpha"), startOf("beta"), startOf("gamma")).ok()
	runs := 0
	s.runner.before = func() error {
		if runs++; runs == 1 || runs == 2 { // the run of all, and that of the first one
			return status.Errorf(status.InvalidArg, "no such token")
		}
		return nil
	}
	s.batch(nextOf("alpha"), nextOf("beta"), nextOf("gamma")).want("no such token", "", "")
	s.runner.runs = nil
	s.batch(nextOf("alpha"), nextOf("beta"), nextOf("gamma")).ok()
	require.Equal(t, []int{2, 1}, s.runner.runs)
}

const refusedValue = -12345

// TestValuesAmongSplitBatches: whatever is refused in batches that are split, and whatever
// sequence starts or ends, each request has the answer of its own sequence.
func TestValuesAmongSplitBatches(t *testing.T) {
	t.Parallel()
	for _, inferred := range []string{"0", "1"} {
		for _, lanes := range []int{2, 4, 16} {
			t.Run(fmt.Sprintf("inferred=%s/lanes=%d", inferred, lanes), func(t *testing.T) {
				s := newServer(t, slots(48, 16), streamsOf(largeStream(1024, "bk")), param("infer_end_requests", inferred))
				refused := 0 // before or after outputs were written
				s.in.runner = &wrapped{s.runner, func(inputs, outputs []onnx.Tensor) error {
					for i := range inputs[0].Data.Size / 4 {
						if runnertest.Element(inputs[0].Data.Bytes, tensor.FP32, i) == refusedValue {
							if refused++; refused%2 == 0 {
								_ = s.runner.Run(inputs, outputs)
							}
							return status.Errorf(status.InvalidArg, "no such token")
						}
					}
					return s.runner.Run(inputs, outputs)
				}}
				rng := rand.New(rand.NewPCG(11, 5))
				alive := map[int]bool{}
				for range 25 {
					cheapest(&s.in.splitter, lanes)
					var asks []ask
					var want []string
					for _, id := range rng.Perm(40)[:2+rng.IntN(15)] {
						a := ask{id: fmt.Sprint(id + 1), start: !alive[id] || rng.IntN(8) == 0, end: rng.IntN(8) == 0}
						says := ""
						wrong := rng.IntN(12) == 0 || id < 2 && rng.IntN(2) == 0
						if wrong && (inferred == "1" || !a.end) {
							a = a.with(func(r *Request) { runnertest.SetElement(r.Inputs[0].Data, tensor.FP32, 0, refusedValue) })
							says = "no such token"
						}
						alive[id] = !a.end && (says == "" || !a.start)
						asks, want = append(asks, a), append(want, says)
					}
					s.batch(asks...).want(want...)
				}
				require.NotZero(t, refused)
			})
		}
	}
}
