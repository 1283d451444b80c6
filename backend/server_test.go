package backend

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/statestore"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// setup is what a test can change before a model is loaded.
type setup struct {
	config  *config.Config
	streams []stream
	memory  statebuffer.Memory
	model   *accumulator // made of streams if nil
	kind    string
	level   slog.Level
	metrics func(MetricLabels) MetricSink
	after   func(time.Duration, func())
	// memoryReport is ModelInfo.ReportMemory.
	memoryReport func([]MemoryUse)
	directory    string // ModelInfo.Directory
	clock        func() time.Duration
	store        statestore.Store
}

// param sets a parameter.
func param(name, value string) func(*setup) {
	return func(s *setup) { s.config.Parameters[name] = config.Value{String: value} }
}

// streamsOf sets what the model accumulates, and the configuration with it.
func streamsOf(streams ...stream) func(*setup) {
	return func(s *setup) {
		s.streams = streams
		s.config.Inputs, s.config.Outputs = nil, nil
		pairs := ""
		for i := range streams {
			t := &streams[i]
			s.config.Inputs = append(s.config.Inputs, config.TensorConfig{Name: t.input, DataType: t.dtype.ConfigName(), Dims: t.dims(t.order, -1)})
			s.config.Outputs = append(s.config.Outputs, config.TensorConfig{Name: t.output, DataType: t.dtype.ConfigName(), Dims: t.dims(t.order, -1)})
			pairs += fmt.Sprintf("<<<%s, %s>>> ", t.stateIn, t.stateOut)
		}
		s.config.Parameters["state_pairs"] = config.Value{String: pairs}
	}
}

func stringIDs(s *setup) {
	s.config.Sequence.ControlInputs = append(s.config.Sequence.ControlInputs,
		config.ControlConfig{Name: "CORRID", Controls: []config.Control{{Kind: config.ControlCorrID, DataType: "TYPE_STRING"}}})
}

// slots gives the instance that many slots at once, and batches of at most batch.
func slots(count, batch int) func(*setup) {
	return func(s *setup) {
		s.config.MaxBatchSize = batch
		s.config.Sequence.Oldest.MaxCandidateSequences = count
		s.config.Parameters["max_candidate_sequence_use_ratio"] = config.Value{String: "1"}
	}
}

func newSetup(edits ...func(*setup)) *setup {
	s := &setup{directory: "/models/model", kind: "cpu", level: slog.LevelInfo, memory: &statebuffer.Heap{}}
	s.config = &config.Config{
		Name: "model", MaxBatchSize: 8, Parameters: map[string]config.Value{},
		Sequence: &config.SequenceConfig{
			MaxIdleMicroseconds: 1_000_000, Oldest: &config.OldestConfig{MaxCandidateSequences: 64},
			ControlInputs: []config.ControlConfig{
				{Name: resetName, Controls: []config.Control{{Kind: config.ControlStart, Int32FalseTrue: []int32{0, 1}}}},
				{Name: "EndSequence", Controls: []config.Control{{Kind: config.ControlEnd, Int32FalseTrue: []int32{0, 1}}}},
			},
		},
	}
	streamsOf(accumulate())(s)
	for _, edit := range edits {
		edit(s)
	}
	if s.model == nil {
		s.model = newAccumulator(s.memory, s.streams...)
	}
	return s
}

// json is the configuration as the server gives it.
func (s *setup) json() []byte {
	text, err := json.Marshal(s.config)
	if err != nil {
		panic(err)
	}
	return text
}

// server is a loaded model with a reference that knows what it must answer.
type server struct {
	t      testing.TB
	in     *Instance
	runner *accumulator
	memory statebuffer.Memory
	config *config.Config
	log    *recorder
	now    time.Duration
	plain  map[string]*plainSequence // by ask.who
	count  float64                   // values given to requests so far
	last   *fakeBatch
	// onCall is called for each call of the server.
	onCall func()
	// onBatch is called for each batch before it is executed.
	onBatch func(*fakeBatch)
	// faulty: things may fail after a state was kept and before it was answered.
	faulty bool
	clock  clockwork
	// busy: the server always has something to run.
	busy bool
	// untold: what requests have for tokens, only the test knows.
	untold bool
	// reruns are the requests that were parked and are to run again.
	reruns struct {
		sync.Mutex
		asks []ask
	}
}

// plainSequence is a sequence as its client sees it. After faults there may be
// several states that it can have; [stream][feature].
type plainSequence struct{ states [][][]float64 }

// load makes a server, or says why it cannot.
func load(t testing.TB, edits ...func(*setup)) (*server, error) {
	set := newSetup(edits...)
	s := &server{t: t, config: set.config, memory: set.memory, runner: set.model, now: time.Hour, plain: map[string]*plainSequence{}, log: newRecorder(set.level)}
	if set.clock == nil {
		set.clock = func() time.Duration { return s.now }
	}
	model, err := NewModel(ModelInfo{Name: "model", Version: 3, Directory: set.directory, Config: set.json(), ReportMemory: set.memoryReport}, Server{
		Log: slog.New(s.log), Clock: set.clock, Metrics: set.metrics, After: set.after,
		OpenStore: func(string) (statestore.Store, error) { return set.store, nil },
		Open: func(o onnx.SessionOptions) (onnx.Runner, error) {
			require.Equal(t, "model", o.Name)
			return s.runner, nil
		},
	})
	if err != nil {
		return nil, err
	}
	s.in, err = model.NewInstance(InstanceInfo{Name: "model_0", Kind: set.kind})
	if heap, ok := set.memory.(*statebuffer.Heap); ok && err != nil {
		require.Zero(t, heap.Used(), "a failed load holds memory")
		require.True(t, s.runner.closed, "a failed load holds the session")
	}
	return s, err
}

func newServer(t testing.TB, edits ...func(*setup)) *server {
	t.Helper()
	s, err := load(t, edits...)
	require.NoError(t, err)
	s.runner.runs, s.runner.resets = nil, nil // those of the warm-up
	s.clock.wind(s.in)
	t.Cleanup(func() {
		s.in.Close()
		require.True(t, s.runner.closed)
		if heap, ok := s.memory.(*statebuffer.Heap); ok {
			require.Zero(t, heap.Used(), "bytes after Close")
		}
	})
	return s
}

// batch executes requests and checks every answer that is no error against the
// reference.
func (s *server) batch(asks ...ask) *outcome {
	s.t.Helper()
	s.now += time.Microsecond
	b := &fakeBatch{t: s.t, answers: make([]answer, len(asks)), call: s.onCall, faulty: s.faulty, onDevice: map[int]bool{}}
	if s.onBatch != nil {
		s.onBatch(b)
	}
	for i := range asks {
		b.onDevice[i] = asks[i].device
		if s.in.direct && asks[i].id != "" && asks[i].rerun == nil {
			asks[i].token = uint64(i) + 1
		}
		if asks[i].value == 0 {
			s.count++
			asks[i].value = s.count
		}
		b.requests = append(b.requests, s.request(b, &asks[i]))
	}
	b.rerun = func(req int, as rerunWith) {
		s.reruns.Lock()
		defer s.reruns.Unlock()
		again := asks[req]
		again.rerun = &as
		s.reruns.asks = append(s.reruns.asks, again)
	}
	s.last = b
	s.in.Execute(b)
	require.True(s.t, b.finished)
	b.mu.Lock()
	answers, described := slices.Clone(b.answers), maps.Clone(b.described) // those that are held can still change
	b.mu.Unlock()
	for _, has := range order(s.in) {
		for i := range asks {
			resumed := described[i].Resumed
			if begins := asks[i].start && !resumed; has(begins) && !b.parked[i] {
				s.settle(&asks[i], &answers[i], resumed)
			}
		}
	}
	if !s.busy {
		s.clock.run(s.in, s.now)
	}
	return &outcome{s, asks, b.answers}
}

// rerun executes the requests that were parked and are to run again.
func (s *server) rerun() *outcome {
	s.t.Helper()
	s.reruns.Lock()
	asks := s.reruns.asks
	s.reruns.asks = nil
	s.reruns.Unlock()
	return s.batch(asks...)
}

func (s *server) request(b *fakeBatch, a *ask) Request {
	r := Request{Start: a.start, End: a.end, Cancelled: a.cancelled, Err: a.err, Token: a.token}
	if a.parameters != nil {
		p := *a.parameters
		p.Key = b.lend(p.Key)
		r.Parameters = &p
	}
	if s.in.direct || s.untold {
		r.Token = 0 // the place says it
	}
	if a.rerun != nil {
		r.Note, r.Token = a.rerun.note, a.rerun.token
	}
	if number, err := strconv.ParseUint(a.id, 10, 64); err == nil && !s.in.StringIDs() {
		r.Sequence.Number = number
	} else {
		r.Sequence.Text = b.lend(a.id)
	}
	for i := range s.runner.streams {
		t := &s.runner.streams[i]
		data := make([]byte, t.rows*t.features*int64(t.dtype.Size()))
		for row := range t.rows {
			for k := range t.features {
				runnertest.SetElement(data, t.dtype, t.at(t.order, 1, row, 0, k), t.input1(a, row, k))
			}
		}
		b.lent = append(b.lent, data)
		shape := s.in.plan.Inputs[i].Request.Clone()
		r.Inputs = append(r.Inputs, Input{Present: true, DType: t.dtype, Shape: shape, Data: data})
	}
	if a.mangle != nil {
		a.mangle(&r)
	}
	return r
}

// input1 is an element of a request's input, before its type is considered.
func (t *stream) input1(a *ask, row, feature int64) float64 {
	return a.value + float64(row) + float64(feature)/4*float64(index(t.dtype == tensor.FP32 || t.dtype == tensor.FP64))
}

// step is the reference's step: the new state, and what the outputs must be.
func (s *server) step(a *ask, state [][]float64) (next [][]float64, outputs [][]byte) {
	for i := range s.runner.streams {
		t := &s.runner.streams[i]
		size := int64(t.dtype.Size())
		out, cell := make([]byte, t.rows*t.features*size), make([]byte, 8)
		round := func(f float64) float64 {
			runnertest.SetElement(cell, t.dtype, 0, f)
			return runnertest.Element(cell, t.dtype, 0)
		}
		sums := make([]float64, t.features)
		for k := range t.features {
			sum := state[i][k]
			for row := range t.rows {
				sum += round(t.input1(a, row, k))
			}
			sums[k] = round(sum)
			for row := range t.rows {
				runnertest.SetElement(out, t.dtype, t.at(t.order, 1, row, 0, k), sums[k]+round(t.input1(a, row, k)))
			}
			if s.in.model.params.HalfStates && t.dtype == tensor.FP32 {
				h, _ := tensor.Half(float32(sums[k]))
				sums[k] = float64(tensor.Widen(h))
			}
		}
		next, outputs = append(next, sums), append(outputs, out)
	}
	return next, outputs
}

func (s *server) zero() (state [][]float64) {
	for i := range s.runner.streams {
		state = append(state, make([]float64, s.runner.streams[i].features))
	}
	return state
}

// settle brings the reference up to date with an answer, and checks it. resumed: the sequence
// goes on with its saved state.
func (s *server) settle(a *ask, got *answer, resumed bool) {
	s.t.Helper()
	q := s.plain[a.who()]
	if a.start && a.token != 0 && !s.untold {
		suffix := strings.TrimPrefix(a.who(), a.id)
		maps.DeleteFunc(s.plain, func(who string, _ *plainSequence) bool {
			return who != a.who() && strings.HasSuffix(who, suffix)
		})
	}
	if q == nil || a.start && !resumed {
		q = &plainSequence{states: [][][]float64{s.zero()}}
	}
	switch {
	case got.err != nil:
		s.settleError(a, q)
		return
	case a.id == "" && s.in.direct:
		s.requireEmpty(got)
		return
	case a.end && !s.in.model.params.InferEnd:
		s.requireEmpty(got)
		delete(s.plain, a.who())
		return
	}
	require.True(s.t, a.start || a.id == "" || s.in.implicit || s.plain[a.who()] != nil, "%q was answered, but has no state", a.id)
	for _, state := range q.states {
		if next, outputs := s.step(a, state); slices.EqualFunc(outputs, got.outputs[:len(outputs)], slices.Equal) {
			s.plain[a.who()] = &plainSequence{states: [][][]float64{next}}
			if a.end && !a.keeps() || a.id == "" {
				delete(s.plain, a.who())
			}
			return
		}
	}
	_, want := s.step(a, q.states[0])
	require.Equal(s.t, want, got.outputs, "%+v", *a)
}

// settleError: an error changes nothing, but a START or an END that fails leaves
// no sequence. In faulty times the step may have been kept all the same.
func (s *server) settleError(a *ask, q *plainSequence) {
	switch {
	case a.parameters != nil && a.parameters.Resume != ResumeNone:
	case a.keeps() && a.end && !a.start: // it goes on when it could not be saved, with the step or without
		for _, state := range slices.Clone(q.states) {
			next, _ := s.step(a, state)
			q.states = append(q.states, next)
		}
	case s.in.free && a.end && !a.start && !a.cancelled && !s.faulty: // it can come again
	case !s.faulty && (a.start || a.end):
		delete(s.plain, a.who())
	case s.faulty && s.plain[a.who()] != nil || a.start && s.faulty:
		for _, state := range slices.Clone(q.states) {
			next, _ := s.step(a, state)
			q.states = append(q.states, next)
		}
		if old := s.plain[a.who()]; old != nil && a.start {
			q.states = append(q.states, old.states...)
		}
		s.plain[a.who()] = q
	}
}

// requireEmpty: every output has the shape of ones, and one element, zero.
func (s *server) requireEmpty(got *answer) {
	s.t.Helper()
	for i, output := range s.in.Outputs() {
		require.Equal(s.t, make([]byte, output.DType.Size()), got.outputs[i])
		for _, extent := range got.shapes[i] {
			require.EqualValues(s.t, 1, extent)
		}
	}
}

// forget says that a sequence has lost its state by other ways than a request.
func (s *server) forget(ids ...any) {
	for _, id := range ids {
		maps.DeleteFunc(s.plain, func(who string, _ *plainSequence) bool {
			name, _, _ := strings.Cut(who, " by ")
			return name == fmt.Sprint(id)
		})
	}
}

// outcome is the answers to a batch.
type outcome struct {
	s       *server
	asks    []ask
	answers []answer
}

// want compares the errors: "" is none. Exactly the reference's sequences must
// be live afterwards.
func (o *outcome) want(errors ...string) *outcome {
	o.s.t.Helper()
	require.Len(o.s.t, o.answers, len(errors))
	for i, want := range errors {
		if want == "" {
			require.NoError(o.s.t, o.answers[i].err, "request %d, %+v", i, o.asks[i])
			continue
		}
		require.ErrorContains(o.s.t, o.answers[i].err, want, "request %d, %+v", i, o.asks[i])
	}
	live := 0
	o.s.in.Locked(func() { live = o.s.in.store.Usage().Live })
	require.Equal(o.s.t, len(o.s.plain), live, "live sequences")
	return o
}

// answered checks that all requests were answered, whatever is live.
func (o *outcome) answered(t *testing.T) {
	t.Helper()
	for _, a := range o.answers {
		require.NoError(t, a.err)
	}
}

func (o *outcome) ok() *outcome {
	o.s.t.Helper()
	return o.want(make([]string, len(o.answers))...)
}

// code checks that all requests got an error of this code.
func (o *outcome) code(want status.Code) {
	o.s.t.Helper()
	for _, a := range o.answers {
		require.Error(o.s.t, a.err)
		require.Equal(o.s.t, want, status.CodeOf(a.err), "%v", a.err)
	}
}

// all is the same error for each of n requests.
func all(n int, want string) []string { return slices.Repeat([]string{want}, n) }
