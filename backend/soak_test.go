package backend

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// soakSteps is how many requests each of TestSoak's cases makes.
var soakSteps = flag.Int("soak-steps", 10_000, "requests of each case of TestSoak")

// TestSoak lets many clients do as they please with few slots: begin, go on, end,
// start again, come back after they were forgotten, cancel, send nonsense, twice in
// a batch, while the model, the memory and the budget fail. Every answer must come
// from the state of the sequence that asked, or be an error that its client's own
// account allows. It takes 10^6 requests by go test -run TestSoak -soak-steps.
func TestSoak(t *testing.T) {
	t.Parallel()
	lazy := map[string]string{"initial_buffer_size": "16", "subsequent_buffer_size": "16", "buffer_alloc_threshold": "16", "buffer_dealloc_threshold": "24"}
	with := func(parameters map[string]string, more ...string) map[string]string {
		all := map[string]string{}
		for name, value := range parameters {
			all[name] = value
		}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	small, flat, blocks := [2]int{2, 3}, [2]int{1, 600}, [2]int{2, 300} // of 4800 bytes, states stay where runs wrote them
	tests := []struct {
		name       string
		who        [2]int // extents of the state, before and after the batch
		growing    bool
		faults     bool
		parameters map[string]string
		split      bool // batches run in parts
	}{
		{"reject", small, false, false, with(nil), false},
		{"evict", small, false, false, with(nil, "when_full", "evict_lru"), false},
		{"reject, lazy, padded", small, false, false, with(lazy, "batch_padding", "max"), false},
		{"evict, lazy, END not inferred", small, false, false, with(lazy, "when_full", "evict_lru", "infer_end_requests", "0"), false},
		{"reject, varying", small, true, false, with(lazy), false},
		{"reject, varying, budget", small, true, false, with(lazy, "max_state_memory_bytes", "12000"), false},
		{"evict, varying, budget", small, true, false, with(lazy, "when_full", "evict_lru", "max_state_memory_bytes", "12000"), false},
		{"reject, faults", small, false, true, with(lazy), false},
		{"evict, varying, budget, faults", small, true, true, with(lazy, "when_full", "evict_lru", "max_state_memory_bytes", "12000"), false},
		{"large, reject", flat, false, false, with(nil), false},
		{"large, evict, lazy", flat, false, true, with(lazy, "when_full", "evict_lru"), false},
		{"large, reject, lazy, padded", flat, false, false, with(lazy, "batch_padding", "max"), false},
		{"large, batch inside, evict", blocks, false, true, with(nil, "when_full", "evict_lru"), false},
		{"large, batch inside, lazy, varying", blocks, true, false, with(lazy), false},
		{"large, evict, lazy, in parts", flat, false, true, with(lazy, "when_full", "evict_lru"), true},
		{"large, batch inside, in parts", blocks, false, true, with(nil), true},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachQueueing(t, func(t *testing.T, on func(*setup)) {
				s := newSoak(t, uint64(i), tt.growing, tt.who, tt.parameters, on)
				s.faults = tt.faults
				if tt.split {
					cheapest(&s.in.splitter, 4)
				}
				for s.requests < *soakSteps {
					s.batch()
				}
				s.finish()
			})
		})
	}
}

// The size of a soak: clients for each slot, so that slots are short.
const (
	soakSlots   = 48
	soakClients = 200
	soakBatch   = 16
	soakIdle    = 50 * time.Millisecond
)

// soak is an instance and the accounts of its clients.
type soak struct {
	t      *testing.T
	rng    *rand.Rand
	in     *Instance
	model  *taggedModel
	memory *testMemory
	params *config.Parameters
	now    time.Duration

	faults   bool
	fault    string // the operation that fails in this batch
	clients  [soakClients]client
	names    int64
	requests int
	told     map[string]int // answers by kind
	clock    clockwork
	unknown  status.Code // of the answer to a request whose sequence is not known
}

// client is one correlation ID's own account of its sequence.
type client struct {
	alive   bool
	name    int64
	steps   int64
	lastUse time.Duration
}

func newSoak(t *testing.T, seed uint64, growing bool, who [2]int, parameters map[string]string, on func(*setup)) *soak {
	s := &soak{t: t, rng: rand.New(rand.NewPCG(seed, 11)), now: time.Hour, memory: &testMemory{}, told: map[string]int{}}
	s.model = newTaggedModel(s.memory, growing, who[0], who[1])
	set := newSetup(slots(soakSlots, soakBatch), func(set *setup) {
		set.config.Sequence.MaxIdleMicroseconds = uint64(soakIdle / time.Microsecond)
		set.config.Sequence.ControlInputs = nil
		set.config.Inputs = []config.TensorConfig{{Name: "X", DataType: "TYPE_INT64", Dims: tensor.Shape{1}}}
		set.config.Outputs = []config.TensorConfig{{Name: "Y", DataType: "TYPE_INT64", Dims: tensor.Shape{3}}}
		delete(set.config.Parameters, "state_pairs")
		for name, value := range parameters {
			set.config.Parameters[name] = config.Value{String: value}
		}
	}, on)
	model, err := NewModel(ModelInfo{Name: "tagged", Config: set.json()}, Server{
		Log: slog.New(newRecorder(slog.LevelError)), Clock: func() time.Duration { return s.now },
		Open: func(onnx.SessionOptions) (onnx.Runner, error) { return s.model, nil },
	})
	require.NoError(t, err)
	s.in, err = model.NewInstance(InstanceInfo{Name: "tagged_0", Kind: "cpu"})
	require.NoError(t, err)
	s.params = model.params
	if s.unknown = status.InvalidArg; s.in.free {
		s.unknown = status.NotFound
	}
	s.clock.wind(s.in)
	return s
}

func (s *soak) finish() {
	s.t.Logf("%d requests: %v; %+v", s.requests, s.told, s.in.store.Counters())
	require.Positive(s.t, s.told["answer"], "no request was served")
	s.in.Close()
	require.Zero(s.t, s.memory.Used(), "bytes after Close")
}

// move is a request of a client, and what kind of nonsense it is.
type move struct {
	client     int
	start, end bool
	name       int64
	cancelled  bool
	nonsense   bool
}

// batch lets some clients move, and settles the answers in the order in which
// requests run.
func (s *soak) batch() {
	s.now += time.Duration(s.rng.Int64N(int64(2 * time.Millisecond)))
	if s.rng.IntN(200) == 0 {
		s.now += 3*soakIdle + time.Duration(s.rng.IntN(2))*11*time.Second // long enough to end all others
	}
	moves := make([]move, 1+s.rng.IntN(soakBatch))
	for i := range moves {
		moves[i] = s.move()
	}
	s.armFault()
	s.run(moves)
	s.disarm()
}

func (s *soak) run(moves []move) []answer {
	b := &fakeBatch{t: s.t, answers: make([]answer, len(moves))}
	for i := range moves {
		b.requests = append(b.requests, s.request(b, &moves[i]))
	}
	s.in.Execute(b)
	s.clock.run(s.in, s.now)
	s.requests += len(moves)
	for _, has := range order(s.in) {
		for i := range moves {
			if has(moves[i].start) {
				s.settle(&moves[i], &b.answers[i])
			}
		}
	}
	return b.answers
}

func (s *soak) move() move {
	m := move{client: s.rng.IntN(soakClients), cancelled: s.rng.IntN(50) == 0, nonsense: s.rng.IntN(50) == 0, end: s.rng.IntN(10) == 0}
	c := &s.clients[m.client]
	m.start = s.rng.IntN(12) == 0 || !c.alive && s.rng.IntN(3) > 0
	s.names++
	m.name = s.names // what a request brings without START must not show
	return m
}

func (s *soak) request(b *fakeBatch, m *move) Request {
	data := binary.NativeEndian.AppendUint64(nil, uint64(m.name))
	b.lent = append(b.lent, data)
	shape := tensor.Shape{1, 1}
	if m.nonsense {
		shape = [...]tensor.Shape{{2, 1}, {1}, {1, 0}, {1, -1}, {1 << 62, 1 << 62}}[s.rng.IntN(5)]
	}
	return Request{
		Sequence: SequenceID{Number: uint64(m.client + 1)}, Start: m.start, End: m.end, Cancelled: m.cancelled,
		Inputs: []Input{{Present: true, DType: tensor.Int64, Shape: shape, Data: data}},
	}
}

// armFault makes one operation of some batches fail.
func (s *soak) armFault() {
	if s.fault = ""; !s.faults || s.rng.IntN(10) > 0 {
		return
	}
	s.fault = [...]string{"run", "run", "alloc", "gather", "scatter"}[s.rng.IntN(5)]
	if s.fault == "run" {
		s.model.before = func() error { s.model.before = nil; return errInjected }
		return
	}
	failing(s.memory, s.fault, func() error { return errInjected })
}

func (s *soak) disarm() { s.model.before, s.memory.before = nil, nil }

// settle compares an answer with its client's account, and brings that up to date.
func (s *soak) settle(m *move, got *answer) {
	c := &s.clients[m.client]
	if got.err == nil {
		s.settleAnswer(m, c, got)
		return
	}
	before := *c
	kind, lost := s.errorKind(m, c, got.err)
	s.told[kind]++
	require.NotEqual(s.t, "", kind, "request %d: %+v of %+v got %v", s.requests, *m, before, got.err)
	if lost || m.start || m.end && (!s.in.free || m.cancelled) {
		c.alive = false
	}
	if s.now-c.lastUse <= soakIdle { // else it may have been gone already
		c.lastUse = s.now
	}
}

func (s *soak) settleAnswer(m *move, c *client, got *answer) {
	s.told["answer"]++
	skipped := m.end && !s.params.InferEnd
	if m.start {
		*c = client{alive: true, name: m.name}
	}
	if !skipped {
		require.True(s.t, c.alive, "request %d: %+v of %+v was answered, but its sequence has no state", s.requests, *m, *c)
		c.steps++
		var want []byte
		for _, v := range []int64{c.name, c.name, c.steps} {
			want = binary.NativeEndian.AppendUint64(want, uint64(v))
		}
		if string(want) != string(got.outputs[0]) {
			require.Equal(s.t, want, got.outputs[0], "request %d: %+v of %+v", s.requests, *m, *c)
		}
	}
	c.lastUse = s.now
	c.alive = c.alive && !m.end
}

// errorKind names an error that the client's account allows, or is "". lost is
// whether the client has no sequence any more.
func (s *soak) errorKind(m *move, c *client, err error) (kind string, lost bool) {
	if lostErr, is := errors.AsType[*statebuffer.LostError](err); is {
		allowed := !m.start && status.CodeOf(err) == s.unknown && (!c.alive || s.mayLose(c, lostErr.Reason))
		return pick(allowed, fmt.Sprint("lost, fate ", lostErr.Reason)), true
	}
	if _, is := errors.AsType[*statebuffer.FullError](err); is {
		u := s.in.store.Usage()
		return pick(m.start && s.params.Full == statebuffer.Reject && u.Live > 0, "full"), true
	}
	if _, is := errors.AsType[*statebuffer.BudgetError](err); is {
		return pick(s.params.MaxStateMemory > 0 && status.CodeOf(err) == status.Unavailable, "budget"), false
	}
	switch {
	case errors.Is(err, errInjected):
		return pick(s.fault != "", "injected "+s.fault), s.fault == "scatter"
	case m.cancelled:
		return pick(status.CodeOf(err) == status.Cancelled, "cancelled"), false
	case m.nonsense:
		return pick(status.CodeOf(err) == status.InvalidArg, "nonsense"), false
	}
	return "", false
}

// mayLose reports whether a sequence that its client believes alive can have met
// that fate.
func (s *soak) mayLose(c *client, fate statebuffer.LossReason) bool {
	switch fate {
	case statebuffer.Expired:
		return s.now-c.lastUse > soakIdle
	case statebuffer.Evicted:
		return s.params.Full == statebuffer.EvictLRU
	}
	return false
}

// TestFaultSweepVarying makes the n-th call of memory or model fail, for every n of
// a story with states of varying shape, several runs in a batch, and slots that
// come as needed. Answers and errors must be those that the clients' accounts allow.
func TestFaultSweepVarying(t *testing.T) { eachQueueing(t, faultSweepVarying) }

func faultSweepVarying(t *testing.T, on func(*setup)) {
	parameters := map[string]string{"initial_buffer_size": "16", "subsequent_buffer_size": "16", "buffer_alloc_threshold": "16", "buffer_dealloc_threshold": "17"}
	for n := 1; ; n++ {
		s := newSoak(t, 1, true, [2]int{2, 3}, parameters, on)
		calls := 0
		call := func(operation string) error {
			if calls++; calls != n {
				return nil
			}
			s.fault = operation
			return errInjected
		}
		s.memory.before, s.model.before = call, func() error { return call("run") }
		name := int64(0)
		ask := func(client int, start, end bool) move {
			name++
			return move{client: client, name: name, start: start, end: end}
		}
		first := []move{ask(1, true, false), ask(2, true, false), ask(3, true, true)}
		for client := range 12 { // more than a chunk leaves free
			first = append(first, ask(10+client, true, false))
		}
		for _, moves := range [][]move{
			first,
			{ask(1, false, false), ask(4, true, false)},
			{ask(1, false, false), ask(2, false, false), ask(4, false, false), ask(2, false, true), ask(2, true, false)},
			{ask(4, false, true), ask(1, true, false), ask(10, false, false), ask(2, false, false)},
			{ask(1, false, false), ask(2, false, true), ask(5, false, false)},
		} {
			s.run(moves)
			if s.fault == "scatter" { // its run is over: later errors are none of its
				s.fault = "scatter, earlier"
			}
		}
		s.disarm()
		for client := range s.clients {
			s.run([]move{ask(client, false, false)})
			s.in.store.End(statebuffer.Key{Number: uint64(client + 1)})
		}
		require.Zero(t, s.in.store.Usage().Live, "fault at call %d", n)
		s.finish()
		if calls < n {
			require.Greater(t, n, 30, "the story is too short to mean much")
			return
		}
	}
}

// TestOrderWithinASequence: a request that must wait for another run, because its
// state has another shape, is not overtaken by a later one of its sequence, even
// if that one does not run at all.
func TestOrderWithinASequence(t *testing.T) { eachQueueing(t, orderWithinASequence) }

func orderWithinASequence(t *testing.T, on func(*setup)) {
	next := move{client: 1, name: 9}
	tests := map[string]move{
		"END not inferred": {client: 1, name: 9, end: true},
		"cancelled END":    {client: 1, name: 9, end: true, cancelled: true},
		"cancelled START":  {client: 1, name: 9, start: true, cancelled: true},
		"nonsense START":   {client: 1, name: 9, start: true, nonsense: true},
		"new START":        {client: 1, name: 9, start: true},
	}
	for name, last := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSoak(t, 1, true, [2]int{2, 3}, map[string]string{"infer_end_requests": "0"}, on)
			s.run([]move{{client: 1, name: 1, start: true}})
			s.run([]move{next, {client: 2, name: 2, start: true}})
			runs := s.model.runs
			answers := s.run([]move{{client: 2, name: 9}, next, last})
			require.NoError(t, answers[0].err)
			require.NoError(t, answers[1].err, "the request before the last one of its sequence")
			require.Equal(t, runs+2+index(name == "new START"), s.model.runs)
			s.finish()
		})
	}
}

func pick(allowed bool, kind string) string {
	if allowed {
		return kind
	}
	return ""
}
