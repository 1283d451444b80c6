package backend

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// dynamic is a configuration with dynamic_batching, as text, of the model of sumModel.
func dynamic(t *testing.T, edit func(*config.Config)) *config.Config {
	t.Helper()
	c := sumConfig()
	c.Sequence, c.Dynamic = nil, &config.DynamicConfig{}
	c.Parameters = map[string]config.Value{}
	if edit != nil {
		edit(c)
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	c, err = config.Parse(text)
	require.NoError(t, err)
	return c
}

// namedModel is sumModel with names that say which tensors are the state.
func namedModel() *scripted {
	m := sumModel()
	m.sig.Inputs[1].Name, m.sig.Outputs[1].Name = "sum_in", "sum_out"
	return m
}

func say(name, value string) func(*config.Config) {
	return func(c *config.Config) { c.Parameters[name] = config.Value{String: value} }
}

// TestFree: under the dynamic batcher, requests belong to sequences if the model has states.
func TestFree(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*config.Config)
		free bool
		want string // why it does not load
	}{
		"the names say it":       {nil, true, ""},
		"state_pairs":            {say("state_pairs", "<<<sum_in, sum_out>>>"), true, ""},
		"sequences is free":      {say("sequences", "free"), true, ""},
		"initial_states":         {say("initial_states", "sum_in = 1"), true, ""},
		"clients pass the state": {func(c *config.Config) { c.Inputs = append(c.Inputs, stateTensor("sum_in")) }, false, ""},
		"free all the same": {func(c *config.Config) {
			c.Inputs = append(c.Inputs, stateTensor("sum_in"))
			say("sequences", "free")(c)
		}, true, ""},
		"neither batcher": {
			func(c *config.Config) { c.Dynamic = nil; say("state_pairs", "<<<sum_in, sum_out>>>")(c) }, false,
			"sequence_batching is missing: states need a scheduler: want sequence_batching { oldest { max_candidate_sequences: 1024 } }, or dynamic_batching { } for free sequences",
		},
		"free without a batcher": {func(c *config.Config) { c.Dynamic = nil; say("sequences", "free")(c) }, false, "has no scheduler: want dynamic_batching { }"},
		"both batchers": {
			func(c *config.Config) { c.Sequence = &config.SequenceConfig{}; say("sequences", "free")(c) }, false,
			"sequences is free, but the configuration has sequence_batching: remove one of them",
		},
		"two instances": {func(c *config.Config) { c.InstanceGroups = []config.InstanceGroup{{Count: 2}} }, true, ""},
		"two groups":    {func(c *config.Config) { c.InstanceGroups = []config.InstanceGroup{{Count: 1}, {}} }, true, ""},
		"CPU and GPU": {
			func(c *config.Config) {
				c.InstanceGroups = []config.InstanceGroup{{Kind: "KIND_CPU"}, {Kind: "KIND_GPU", GPUs: []int{1}}}
			}, false,
			"instance_group has 2 devices (KIND_CPU, KIND_GPU 1): want one",
		},
		"two GPUs": {func(c *config.Config) { c.InstanceGroups = []config.InstanceGroup{{Count: 1, GPUs: []int{0, 1}}} }, false, "has 2 devices"},
		"one GPU":  {func(c *config.Config) { c.InstanceGroups = []config.InstanceGroup{{Count: 1, GPUs: []int{1}}} }, true, ""},
		"cache":    {func(c *config.Config) { c.ResponseCache.Enable = true }, false, "a response from the cache would skip a step of its sequence: remove response_cache"},
		"cache with sequence_batching": {func(c *config.Config) {
			c.Sequence, c.Dynamic, c.ResponseCache.Enable = sumConfig().Sequence, nil, true
		}, false, "a response from the cache would skip a step"},
		"cache without sequences": {func(c *config.Config) {
			c.Inputs, c.ResponseCache.Enable = append(c.Inputs, stateTensor("sum_in")), true
		}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in, log, err := namedModel().load(t, dynamic(t, tt.edit), "")
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				require.Equal(t, status.InvalidArg, status.CodeOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.free, in.free)
			require.Len(t, log.having("free sequences: the scheduler is dynamic_batching"), index(tt.free && in.keeps))
		})
	}
}

func stateTensor(name string) config.TensorConfig {
	return config.TensorConfig{Name: name, DataType: "TYPE_INT32", Dims: tensor.Shape{2}}
}

// TestFreeSlots: there are as many as asked for, and else as auto-complete gives oldest.
func TestFreeSlots(t *testing.T) {
	for want, edit := range map[int]func(*config.Config){
		defaultSlots: nil,
		3:            say("max_sequences", "3"),
		1000:         func(c *config.Config) { c.MaxBatchSize = 1000 },
	} {
		in, log := namedModel().logged(t, dynamic(t, edit))
		require.Equal(t, want, in.store.Sizing().Total())
		require.NotEmpty(t, log.having(fmt.Sprintf("max_sequences is %d", want)))
	}
}

const defaultSlots = 256

// TestFreeOrder: requests run in the order of the batch, and those of one sequence one after
// the other.
func TestFreeOrder(t *testing.T) {
	for _, tt := range []struct {
		name  string
		batch []ask
		want  []string
		runs  []int
	}{
		{"the next step, then a new START", []ask{nextOf(7), startOf(7), nextOf(7)}, nil, []int{1, 1, 1}},
		{"a new START, then its next step", []ask{startOf(7), nextOf(7), nextOf(8)}, nil, []int{2, 1}},
		{"a START and all that follows", []ask{startOf(9), nextOf(9), endOf(9), startOf(9)}, nil, []int{1, 1, 1, 1}},
		{"a step after the END", []ask{endOf(7), nextOf(7), nextOf(8)}, []string{"", "no such sequence is known", ""}, []int{2}},
		{"a step before the START", []ask{nextOf(9), startOf(9)}, []string{"no such sequence is known", ""}, []int{1}},
		{"whole ones", []ask{wholeOf(7), wholeOf(7), wholeOf(9)}, nil, []int{2, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, free)
			s.batch(startOf(7), startOf(8)).ok()
			s.runner.runs = nil
			if tt.want == nil {
				tt.want = make([]string, len(tt.batch))
			}
			s.batch(tt.batch...).want(tt.want...)
			require.Equal(t, tt.runs, s.runner.runs)
		})
	}
}

// TestFreeStory imitates the dynamic batcher with clients that wait for nothing: a batch has any
// number of requests of a sequence.
func TestFreeStory(t *testing.T) {
	t.Parallel()
	for _, edits := range [][]func(*setup){{free}, {param("infer_end_requests", "0"), free}, {free, param("begin", "implicit")}} {
		rng := rand.New(rand.NewPCG(3, 4))
		s := newServer(t, append([]func(*setup){slots(40, 8)}, edits...)...)
		cheapest(&s.in.splitter, 2)
		live := map[int]bool{}
		for range 3000 {
			var asks []ask
			for range 1 + rng.IntN(8) {
				id := 1 + rng.IntN(6)
				a := ask{id: fmt.Sprint(id), start: (!live[id] && !s.in.implicit) || rng.IntN(6) == 0, end: rng.IntN(5) == 0}
				live[id] = !a.end
				asks = append(asks, a)
			}
			s.batch(asks...).ok()
		}
	}
}

// TestFreeUnknown: the code distinguishes a sequence that has no state from a wrong request.
func TestFreeUnknown(t *testing.T) {
	s := newServer(t, free)
	s.batch(nextOf(7)).want("sequence 7: no such sequence is known; begin it again with a START request").code(status.NotFound)
	s.batch(endOf(7)).code(status.NotFound)
	s.batch(startOf(7).wrongInput()).code(status.InvalidArg)
	s.batch(nextOf(7)).want("its START failed").code(status.NotFound)
}

// TestFreeImplicit: the first request of an ID begins its sequence, unless its state was lost in
// the middle: then the client is told once.
func TestFreeImplicit(t *testing.T) {
	s := newServer(t, slots(2, 2), param("when_full", "evict_lru"), free, param("begin", "implicit"))
	s.batch(nextOf(1), nextOf(2)).ok()
	s.batch(nextOf(1), endOf(2)).ok()
	s.batch(nextOf(2), nextOf(1)).ok()
	require.Equal(t, [][]bool{{true, true}, {false, false}, {true, false}}, unsortedResets(s))
	s.batch(startOf(1)).ok() // also with START
	s.forget(2)
	s.batch(nextOf(3)).ok()
	s.batch(nextOf(2), nextOf(3)).want("sequence 2: its state was evicted 0s ago to make room for another sequence: there are at most 2 slots (max_sequences); its next request begins it again", "")
	s.forget(1)
	s.batch(nextOf(2), nextOf(3)).ok()
	s.now += time.Minute
	s.forget(2)
	s.batch(nextOf(3)).ok() // the limit is one second, and it may go on with what it had
	s.batch(nextOf(2).wrongInput()).want("input")
	s.batch(nextOf(2)).ok()
}

func unsortedResets(s *server) [][]bool {
	for _, r := range s.runner.resets {
		sorted(r)
	}
	return s.runner.resets
}

// TestFreeWithoutID: a request that names no sequence is one of its own, where one can begin
// without START.
func TestFreeWithoutID(t *testing.T) {
	s := newServer(t, free)
	s.batch(ask{id: ""}, ask{id: "", start: true}).want("has no correlation ID", "has no correlation ID").code(status.InvalidArg)
	s = newServer(t, free, param("begin", "implicit"))
	s.batch(ask{id: ""}, nextOf(7), ask{id: ""}).ok()
	require.Equal(t, [][]bool{{true, true, true}}, s.runner.resets)
	require.Equal(t, 1, s.in.store.Usage().Live)
}

// TestFreeWarmUp: the requests of model_warmup have no ID, and are the first that come.
func TestFreeWarmUp(t *testing.T) {
	s := newServer(t, free, func(s *setup) { s.config.WarmUps = []config.WarmUp{{BatchSize: 2, Count: 2}, {BatchSize: 1}} })
	for range 2 {
		s.batch(ask{id: ""}, ask{id: "", start: true}).ok()
	}
	s.batch(ask{id: ""}).ok()
	s.batch(ask{id: ""}).want("has no correlation ID")
}

// TestFreeIDs: any kind of ID names a sequence, but a model that reads numbers gets numbers.
func TestFreeIDs(t *testing.T) {
	s := newServer(t, free)
	s.batch(startOf("alpha"), startOf(7)).ok()
	s.batch(nextOf("alpha"), nextOf(7)).ok()
}

// TestFreeEndCanComeAgain: an END that fails does not end its sequence, unless its client gave
// up.
func TestFreeEndCanComeAgain(t *testing.T) {
	s := newServer(t, free)
	s.batch(startOf(7)).ok()
	s.batch(endOf(7).wrongInput()).want("input")
	s.runner.before = func() error { s.runner.before = nil; return errInjected }
	s.batch(endOf(7)).want("injected")
	s.batch(endOf(7)).ok()
	s.batch(startOf(7)).ok()
	s.batch(endOf(7).cancel()).want("cancelled")
	s.batch(nextOf(7)).want("no such sequence is known")
}

// TestFreeIdle: no one but the backend ends sequences whose clients are gone, and it needs no
// traffic for that.
func TestFreeIdle(t *testing.T) {
	k := &ticks{}
	s := newServer(t, slots(2, 2), ticking(k), free)
	s.batch(startOf(1), startOf(2)).ok()
	s.now += 1900 * time.Millisecond // a request may have been sent just before the limit
	require.True(t, k.tick(t))
	require.Equal(t, 2, s.in.store.Usage().Live)
	s.now += 200 * time.Millisecond
	require.True(t, k.tick(t))
	require.Zero(t, s.in.store.Usage().Live)
	s.forget(1, 2)
	s.batch(nextOf(1)).want("its state expired 0s ago, after idling longer than 1s (sequence_idle_ms)")
}

// TestFreeTimeout: a request whose time-out passes while it waits does not run.
func TestFreeTimeout(t *testing.T) {
	s := newServer(t, free)
	s.batch(startOf(7)).ok()
	soon := func(r *Request) { r.Timeout = time.Millisecond }
	s.runner.before = func() error { s.now += 2 * time.Millisecond; return nil }
	s.batch(nextOf(7).with(soon), nextOf(7).with(soon), nextOf(7)).
		want("", "the timeout of the request, 1ms, passed while it waited to run", "")
	require.Equal(t, status.Unavailable, status.CodeOf(s.last.answers[1].err))
}

// TestFreeControls: derived inputs have what controls have with sequence_batching.
func TestFreeControls(t *testing.T) {
	model := namedModel()
	model.nameBatch()
	types := map[string]tensor.DType{"start": tensor.Bool, "not_start": tensor.FP32, "end": tensor.Int32, "ready": tensor.Int64, "correlation_id": tensor.Int64}
	assigned, first := "", len(model.sig.Inputs)
	for _, word := range []string{"start", "not_start", "end", "ready", "correlation_id"} {
		model.addInput(word, types[word], -1, 1)
		assigned += fmt.Sprintf("%s = %s; ", word, word)
	}
	model.addInput("name", tensor.Bytes, -1, 1)
	assigned += "name = correlation_id"
	var got []string
	inner := model.run
	model.run = func(inputs, outputs []onnx.Tensor) error {
		line := ""
		for _, in := range inputs[first:] {
			if in.DType == tensor.Bytes {
				line += fmt.Sprintf("%q", in.Data.Bytes)
				continue
			}
			var values []float64
			for i := range in.Shape[0] {
				values = append(values, runnertest.Element(in.Data.Bytes, in.DType, i))
			}
			line += fmt.Sprint(values, " ")
		}
		got = append(got, line)
		return inner(inputs, outputs)
	}
	c := dynamic(t, func(c *config.Config) {
		say("derived_inputs", assigned)(c)
		say("batch_padding", "max")(c)
		c.MaxBatchSize = 2
	})
	in := model.loaded(t, c)
	got = nil
	succeed(t, in, words(7, true, false, 1, 1), words(8, true, true, 1, 1))
	succeed(t, in, words(7, false, true, 1, 1))
	require.Equal(t, []string{
		`[1 1] [0 0] [0 1] [1 1] [7 8] "\x01\x00\x00\x007\x01\x00\x00\x008"`,
		`[0 1] [1 0] [1 0] [1 0] [7 0] "\x01\x00\x00\x007\x00\x00\x00\x00"`,
	}, got)
	r := words(0, true, false, 1, 1)
	r.Sequence.Text = "seven"
	require.ErrorContains(t, send(t, in, r)[0].err, `sequence "seven": input "correlation_id" of the model takes the correlation ID as a number`)
}

// TestFreeComplete: auto-complete chooses the dynamic batcher where sequences are to be free, and
// leaves the states out of the inputs.
func TestFreeComplete(t *testing.T) {
	model := namedModel()
	model.nameBatch()
	for given, want := range map[string]string{
		`{"parameters":{"sequences":{"string_value":"free"}}}`:                       "dynamic_batching",
		`{"dynamic_batching":{},"parameters":{"sequences":{"string_value":"free"}}}`: "dynamic_batching",
		`{}`: "sequence_batching",
	} {
		text, err := Complete(ModelInfo{Name: "model", Config: []byte(given)}, Server{
			Log: slog.New(newRecorder(slog.LevelInfo)), DefaultBatch: 4,
			Open: func(onnx.SessionOptions) (onnx.Runner, error) { return model, nil },
		})
		require.NoError(t, err)
		c, err := config.Parse(text)
		require.NoError(t, err)
		require.Equal(t, want == "dynamic_batching", c.Dynamic != nil, string(text))
		require.Equal(t, want == "sequence_batching", c.Sequence != nil, string(text))
		require.Len(t, c.Inputs, 1)
		require.Equal(t, 64, c.MaxBatchSize)
	}
}
