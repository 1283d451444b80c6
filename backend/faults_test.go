package backend

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

var errInjected = errors.New("injected")

// testMemory is a Heap that asks before each call.
type testMemory struct {
	statebuffer.Heap
	before func(operation string) error
}

func (m *testMemory) ask(operation string) error {
	if m.before == nil {
		return nil
	}
	return m.before(operation)
}

func (m *testMemory) Alloc(bytes int64) (statebuffer.Block, error) {
	if err := m.ask("alloc"); err != nil {
		return statebuffer.Block{}, err
	}
	return m.Heap.Alloc(bytes)
}

func (m *testMemory) Gather(t []statebuffer.Transfer) error {
	return errors.Join(m.Heap.Gather(t), m.ask("gather"))
}

// Scatter has done its work when it fails: it must not count as not done.
func (m *testMemory) Scatter(t []statebuffer.Transfer) error {
	return errors.Join(m.Heap.Scatter(t), m.ask("scatter"))
}

func withMemory(m *testMemory) func(*setup) { return func(s *setup) { s.memory = m } }

// failing fails one call of an operation, the next one.
func failing(m *testMemory, operation string, fail func() error) {
	m.before = func(op string) error {
		if op != operation {
			return nil
		}
		m.before = nil
		return fail()
	}
}

// TestFailedRun: an error or a panic of the model is the answer to the requests
// of the run, the states stay, and clients can try again.
func TestFailedRun(t *testing.T) { eachQueueing(t, failedRun) }

func failedRun(t *testing.T, on func(*setup)) {
	tests := []struct {
		name string
		fail func() error
		want string
	}{
		{"error", func() error { return errInjected }, "error during inference: injected"},
		{"error with a code", func() error { return status.Errorf(status.Unavailable, "busy") }, "error during inference: busy"},
		{"panic", func() error { panic("injected") }, "internal error of the stateful backend"},
		{"nil pointer", func() error { var r *Request; return r.Err }, "internal error of the stateful backend"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, on)
			s.batch(startOf(1), startOf(2), startOf(3)).ok()
			fails := func(asks ...ask) {
				t.Helper()
				s.runner.before = func() error { s.runner.before = nil; return tt.fail() }
				s.batch(asks...).want(all(len(asks), tt.want)...)
			}
			fails(nextOf(1), nextOf(2))
			s.batch(nextOf(1), nextOf(2)).ok()
			fails(startOf(4), nextOf(1), startOf(2), endOf(3))
			s.endAgain(3)
			s.batch(nextOf(4), nextOf(2), nextOf(3), nextOf(1)).want("its START failed", "its START failed", "no such sequence", "")
			s.batch(startOf(4), startOf(2), startOf(3)).ok()
			require.Len(t, s.log.having("panic while a batch ran"), 2*index(s.log.having("panic") != nil))
		})
	}
}

// TestBadValueFailsAlone: a value that the model refuses, such as a token beyond its
// vocabulary, is the error of its own request, and of none that shared the run.
func TestBadValueFailsAlone(t *testing.T) {
	const bad = 99
	code := status.InvalidArg
	refusing := func(model *scripted) *scripted {
		inner := model.run
		model.run = func(inputs, outputs []onnx.Tensor) error {
			for i := range inputs[0].Data.Size / 4 {
				if runnertest.Element(inputs[0].Data.Bytes, tensor.Int32, i) == bad {
					return status.Errorf(code, "no token %d", bad)
				}
			}
			return inner(inputs, outputs)
		}
		return model
	}
	request := func(id uint64, start, end bool, value int32) Request { return words(id, start, end, value, value) }
	sums, cache := sumConfig(), cacheConfig()
	cache.Parameters["max_state_bytes"] = config.Value{String: "1000"}
	for name, tt := range map[string]struct {
		model  *scripted
		config *config.Config
		last   []int32 // what the last answer of sequence 1 is, which sent 1, 2 and 3
	}{
		"fixed":   {sumModel(), sums, []int32{6, 6}},
		"varying": {cacheModel(), cache, []int32{1, 1, 2, 2, 3, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			in := refusing(tt.model).loaded(t, tt.config)
			check := func(answers []answer, good ...bool) []answer {
				t.Helper()
				for i := range good {
					if good[i] {
						require.NoError(t, answers[i].err)
					} else {
						require.Error(t, answers[i].err)
						require.Equal(t, status.InvalidArg, status.CodeOf(answers[i].err))
					}
				}
				return answers
			}
			got := check(send(t, in, request(1, true, false, 1), request(2, true, false, bad), request(3, true, false, 1)), true, false, true)
			require.EqualError(t, got[1].err, "error during inference: no token 99")
			code = status.Internal // a length beyond an input
			got = send(t, in, request(8, true, true, 5), request(9, true, true, bad))
			require.NoError(t, got[0].err)
			require.Equal(t, status.Internal, status.CodeOf(got[1].err))
			code = status.InvalidArg
			check(send(t, in, request(1, false, false, 2), request(2, false, false, 2), request(3, false, false, bad)), true, false, false)
			got = check(send(t, in, request(3, false, true, bad), request(1, false, true, 3), request(2, true, true, 4)), false, true, true)
			require.Equal(t, tt.last, numbers(got[1].outputs[0]))
			require.Zero(t, in.store.Usage().Live)
		})
	}
}

// TestSecondRunFails: of a batch that takes two runs, the first one counts.
func TestSecondRunFails(t *testing.T) {
	for _, fail := range []func() error{func() error { return errInjected }, func() error { panic(errInjected) }} {
		s := newServer(t)
		s.batch(startOf(7), startOf(8)).ok()
		runs := 0
		s.runner.before = func() error {
			if runs++; runs == 2 {
				return fail()
			}
			return nil
		}
		o := s.batch(startOf(7), endOf(7), nextOf(8))
		require.Error(t, o.answers[0].err)
		require.NoError(t, o.answers[1].err)
		require.NoError(t, o.answers[2].err)
		s.batch(nextOf(7), nextOf(8)).want("its START failed", "")
	}
}

// TestPanicFailsOnlyItsRun: the requests of a batch that were not in the run that
// panicked are served.
func TestPanicFailsOnlyItsRun(t *testing.T) {
	model := cacheModel()
	inner, panics := model.run, false
	model.run = func(inputs, outputs []onnx.Tensor) error {
		if panics {
			panics = false
			panic("injected")
		}
		return inner(inputs, outputs)
	}
	in := model.loaded(t, cacheConfig())
	succeed(t, in, words(1, true, false, 10), words(2, true, false, 20), words(3, true, false, 30))
	panics = true
	got := send(t, in, words(1, false, false, 11), words(2, false, true, 21, 22), words(3, false, false, 31, 32), words(4, true, false, 40, 41, 42))
	require.ErrorContains(t, got[0].err, "internal error of the stateful backend")
	require.Equal(t, []int32{20, 21, 22}, numbers(got[1].outputs[0]))
	require.Equal(t, []int32{30, 31, 32}, numbers(got[2].outputs[0]))
	require.Equal(t, []int32{40, 41, 42}, numbers(got[3].outputs[0]))
	got = send(t, in, words(1, false, false, 12), words(4, false, false, 43))
	require.Equal(t, []int32{10, 12}, numbers(got[0].outputs[0]))
	require.Equal(t, []int32{40, 41, 42, 43}, numbers(got[1].outputs[0]))
}

// TestFailedMemory: a failed gather changes nothing; after a failed scatter
// what the slots hold is not known, so their sequences are lost.
func TestFailedMemory(t *testing.T) { eachQueueing(t, failedMemory) }

func failedMemory(t *testing.T, on func(*setup)) {
	for _, how := range []struct {
		name string
		fail func() error
		code status.Code
	}{
		{"error", func() error { return errInjected }, status.Internal},
		{"panic", func() error { panic(errInjected) }, status.Internal},
	} {
		t.Run("gather "+how.name, func(t *testing.T) {
			m := &testMemory{}
			s := newServer(t, withMemory(m), on)
			s.batch(startOf(1), startOf(3), startOf(5)).ok()
			failing(m, "gather", how.fail)
			s.batch(nextOf(1), startOf(2), endOf(3)).code(how.code)
			s.endAgain(3)
			s.batch(nextOf(1), nextOf(2), nextOf(3), nextOf(5)).want("", "its START failed", "no such sequence", "")
		})
		t.Run("scatter "+how.name, func(t *testing.T) {
			m := &testMemory{}
			s := newServer(t, withMemory(m), on)
			s.batch(startOf(1), startOf(3), startOf(5)).ok()
			failing(m, "scatter", how.fail)
			s.batch(nextOf(1), startOf(2), endOf(3)).code(how.code)
			s.forget(1, 3)
			s.batch(nextOf(1), nextOf(2), nextOf(5)).want("its state could not be stored", "its state could not be stored", "")
			s.batch(startOf(1), startOf(2), startOf(3)).ok()
		})
	}
}

// TestFailedChunk: that no memory is found for more slots is a warning, after
// all answers are out; the next attempts wait.
func TestFailedChunk(t *testing.T) { eachQueueing(t, failedChunk) }

func failedChunk(t *testing.T, on func(*setup)) {
	m := &testMemory{}
	s := newServer(t, withMemory(m), param("initial_buffer_size", "8"), param("subsequent_buffer_size", "8"),
		param("buffer_alloc_threshold", "8"), param("buffer_dealloc_threshold", "16"), on)
	fails := 0
	m.before = func(string) error { return nil }
	s.batch(startOf(1)).ok() // 7 free: fewer than 8
	require.Equal(t, 2, s.in.store.Usage().Chunks)
	m.before = func(op string) error {
		if op == "alloc" {
			fails++
			require.True(t, s.last.finished, "requests wait for an allocation")
			return errInjected
		}
		return nil
	}
	for id := range 8 {
		s.batch(startOf(10 + id)).ok()
	}
	require.Equal(t, 1, fails, "the next attempt waits")
	require.Len(t, s.log.having("WARN could not allocate more slots"), 1)
	s.now += time.Second
	s.batch(nextOf(1)).ok()
	require.Equal(t, 2, fails)
	m.before = func(string) error { panic(errInjected) }
	s.now += time.Minute
	s.forget(1, 10, 11, 12, 13, 14, 15, 16, 17)
	m.before = nil
	s.batch(startOf(1)).ok()
}

// TestPanicBetweenBatches: when all answers are out, nothing may reach the server
// any more.
func TestPanicBetweenBatches(t *testing.T) { eachScheduler(t, panicBetweenBatches) }

func panicBetweenBatches(t *testing.T, on func(*setup)) {
	m := &testMemory{}
	s := newServer(t, withMemory(m), param("initial_buffer_size", "8"), param("subsequent_buffer_size", "8"),
		param("buffer_alloc_threshold", "8"), param("buffer_dealloc_threshold", "16"), on)
	failing(m, "alloc", func() error { panic(errInjected) })
	require.NotPanics(t, func() { s.batch(startOf(1)).ok() })
	s.batch(nextOf(1)).ok()
}

// sweep is a fault at the n-th call of anything.
type sweep struct {
	at, calls int
	panics    bool
}

func (s *sweep) call(string) error {
	s.calls++
	if s.calls != s.at {
		return nil
	}
	if s.panics {
		panic(errInjected)
	}
	return errInjected
}

// TestFaultSweep makes the n-th call of memory, model or server fail, for every n
// of a story. After each: all was answered once, no sequence has a state that is
// not its own, all slots are accounted for, and the server works.
func TestFaultSweep(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		for _, inferred := range []string{"0", "1"} {
			t.Run(fmt.Sprintf("panics=%v/inferred=%s", panics, inferred), func(t *testing.T) {
				for n := 1; ; n++ {
					fault := &sweep{at: n, panics: panics}
					sweepOnce(t, fault, inferred)
					if fault.calls < n {
						require.Greater(t, n, 15, "the story is too short to mean much")
						return
					}
				}
			})
		}
	}
}

func sweepOnce(t *testing.T, fault *sweep, inferred string) {
	m := &testMemory{}
	s := newServer(t, withMemory(m), param("infer_end_requests", inferred), param("initial_buffer_size", "8"),
		param("subsequent_buffer_size", "8"), param("buffer_alloc_threshold", "8"), param("buffer_dealloc_threshold", "9"))
	s.faulty = true
	m.before = fault.call
	s.runner.before = func() error { return fault.call("run") }
	if fault.panics {
		s.onCall = func() { _ = fault.call("server") }
	}
	story := [][]ask{
		{startOf(1), startOf(2), startOf(3), wholeOf(4)},
		{nextOf(1), nextOf(2).wrongInput(), startOf(5), endOf(3)},
		{startOf(3), nextOf(1), endOf(5), startOf(5)},
		{nextOf(9), nextOf(3), startOf(2), startOf(6), startOf(7), startOf(8)},
		{nextOf(1), nextOf(2), nextOf(3), nextOf(5), nextOf(6).cancel(), endOf(7), endOf(8).unreadable(errInjected)},
	}
	for _, asks := range story {
		require.NotPanics(t, func() { s.batch(asks...) }, "fault at call %d", fault.at)
		s.checkSlots(fault.at)
	}
	m.before, s.runner.before, s.onCall = nil, nil, nil
	s.faulty = false
	for id := 1; id < 10; id++ {
		if q, err := s.in.store.Continue(statebuffer.Key{Number: uint64(id)}, s.now); err == nil && q != nil {
			s.batch(nextOf(id)) // checks that the state is one that the client can have
			require.NoError(t, s.last.answers[0].err)
		}
	}
	s.plain = map[string]*plainSequence{}
	for id := 1; id < 10; id++ {
		s.in.store.End(statebuffer.Key{Number: uint64(id)})
	}
	require.Zero(t, s.in.store.Usage().Live, "fault at call %d", fault.at)
	rng := rand.New(rand.NewPCG(1, 1))
	for id := range 20 {
		s.batch(startOf(100+id), nextOf(100+rng.IntN(id+1)))
		s.checkSlots(fault.at)
	}
}

// checkSlots: the slots of the chunks are those that are free and those in use.
func (s *server) checkSlots(at int) {
	s.t.Helper()
	u, sizing := s.in.store.Usage(), s.in.store.Sizing()
	require.Equal(s.t, sizing.Initial+(u.Chunks-1)*sizing.Subsequent, u.Slots, "fault at call %d", at)
}

// TestFailedChunkIsRetriedForRefusedSTARTs: the memory fails once, just when the last
// slot is taken. All that comes from then on are STARTs, which are refused, so nothing
// runs. The chunk is tried again when its time has come, not for each of them.
func TestFailedChunkIsRetriedForRefusedSTARTs(t *testing.T) {
	eachQueueing(t, failedChunkIsRetriedForRefusedSTARTs)
}

func failedChunkIsRetriedForRefusedSTARTs(t *testing.T, on func(*setup)) {
	m := &testMemory{}
	s := newServer(t, withMemory(m), slots(16, 8), param("initial_buffer_size", "8"), param("subsequent_buffer_size", "8"),
		param("buffer_alloc_threshold", "8"), param("buffer_dealloc_threshold", "16"), on)
	tries := 0
	failing(m, "alloc", func() error {
		if tries++; tries == 1 {
			return errInjected
		}
		return nil
	})
	var asks []ask
	for id := range 8 {
		asks = append(asks, startOf(1+id))
	}
	s.batch(asks...).ok()
	for range 20 {
		s.batch(startOf(9)).want("too many simultaneous sequences")
	}
	require.Equal(t, 1, tries)
	s.now += 100 * time.Millisecond
	s.batch(startOf(9)).want("too many simultaneous sequences")
	require.Equal(t, 2, s.in.store.Usage().Chunks)
	s.batch(startOf(9)).ok()
}
