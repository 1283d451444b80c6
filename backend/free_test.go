package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/statestore/storetest"
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

// TestFreeMiss: a request of a sequence that has no state here goes on with what is saved, and
// the requests after it wait for it.
func TestFreeMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		saved := func(edits ...func(*setup)) []func(*setup) {
			return append([]func(*setup){savedIn(t, store, "steps=1"), free}, edits...)
		}
		first := newServer(t, saved()...)
		first.batch(startOf(7), startOf(8)).ok()
		first.batch(nextOf(7)).ok()
		synctest.Wait()
		second := goesOn(t, first, store, saved()...)
		second.resumed(nextOf(7), nextOf(8), endOf(7), startOf(7), nextOf(7)).ok()
		require.Equal(t, uint64(2), second.in.store.Live(keyOf(7)).Steps())
		require.Equal(t, uint64(2), second.in.store.Live(keyOf(8)).Steps())
		synctest.Wait()
		second.forget(9)
		o := second.resumed(nextOf(9), nextOf(9), nextOf(8))
		o.want("sequence 9: no such sequence is known", "sequence 9: no such sequence is known")
		require.Equal(t, status.NotFound, status.CodeOf(o.answers[0].err))
		second.batch(endOf(8), endOf(7)).ok()
		synctest.Wait()
		second.resumed(nextOf(8)).want("no such sequence is known")
	})
}

// TestFreeMissLater: what comes in later batches waits, too.
func TestFreeMissLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		edits := []func(*setup){savedIn(t, store, "steps=1"), free}
		first := newServer(t, edits...)
		first.batch(startOf(7)).ok()
		synctest.Wait()
		second := goesOn(t, first, store, edits...)
		second.batch(nextOf(7))
		second.batch(nextOf(7), startOf(9)).answered(t)
		second.batch(startOf(7).cancel())
		synctest.Wait()
		second.rerun()
		require.Zero(t, len(second.in.resuming))
		second.batch(nextOf(7)).want("its START failed") // and not on with what was saved before it
	})
}

// TestFreeMissDown: while the store cannot say, a request whose sequence may be there is neither
// refused for good nor begun.
func TestFreeMissDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		edits := []func(*setup){savedIn(t, store, "steps=1"), free, param("begin", "implicit")}
		s := newServer(t, edits...)
		s.resumed(nextOf(7)).ok()
		synctest.Wait()
		store.Before = func(context.Context, string, string) error { return errors.New("down") }
		s.resumed(nextOf(8), nextOf(8)).want("sequence 8: asking the store for its state: down", "sequence 8: asking the store for its state: down").code(status.Unavailable)
		s.batch(nextOf(7)).ok()
	})
}

// TestFreeImplicitAfterEnd: an ID that is used again begins with the initial values, however
// slowly the store hears of the END.
func TestFreeImplicitAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		s := newServer(t, savedIn(t, store, "steps=1"), free, param("begin", "implicit"))
		s.resumed(nextOf(7)).ok()
		synctest.Wait()
		store.Before = slowly("End", 100*time.Millisecond)
		s.batch(endOf(7)).ok()
		s.batch(nextOf(7))
		time.Sleep(time.Second)
		synctest.Wait()
		s.rerun().ok()
	})
}

// TestFreeResumeWords: the parameter resume says who has the store asked.
func TestFreeResumeWords(t *testing.T) {
	for word, want := range map[string][3]string{
		"on_miss":    {"", "", ""},
		"on_request": {"no such sequence is known", "", ""},
		"off":        {"no such sequence is known", "the parameter resume of this model is off", "the parameter resume of this model is off"},
	} {
		inBubble(t, word, func(t *testing.T) {
			store := &storetest.Memory{}
			edits := []func(*setup){savedIn(t, store, "steps=1"), free}
			first := newServer(t, edits...)
			first.batch(startOf(7), startOf(8), startOf(9)).ok()
			synctest.Wait()
			s := goesOn(t, first, store, append(edits, param("resume", word))...)
			for i, a := range []ask{nextOf(7), nextOf(8).saying(resumes), startOf(9).saying(requires)} {
				o := s.batch(a)
				synctest.Wait()
				if again := s.rerun(); len(again.answers) > 0 {
					o = again
				}
				got := o.answers[0]
				if want[i] == "" {
					require.NoError(t, got.err, "request %d", i)
				} else {
					require.ErrorContains(t, got.err, want[i], "request %d", i)
				}
			}
		})
	}
}

// TestFreeParkedTimeout: the time at the store counts.
func TestFreeParkedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		edits := []func(*setup){savedIn(t, store, "steps=1"), free}
		first := newServer(t, edits...)
		first.batch(startOf(7)).ok()
		synctest.Wait()
		store.Before = slowly("Take", 100*time.Millisecond)
		s := goesOn(t, first, store, edits...)
		s.batch(nextOf(7).with(func(r *Request) { r.Timeout = 50 * time.Millisecond }), nextOf(7))
		time.Sleep(time.Second)
		synctest.Wait()
		s.rerun().want("the timeout of the request, 50ms, passed", "")
	})
}

// TestFreeSteps: stateful_step keeps requests that were reordered from running in the wrong
// order.
func TestFreeSteps(t *testing.T) {
	s := newServer(t, free)
	s.batch(startOf(7).saying(atStep(0))).ok()
	s.batch(nextOf(7).saying(atStep(2)), nextOf(7).saying(atStep(1))).want("step 2 leaves a gap: expected step 1", "")
	s.batch(endOf(7).saying(atStep(1))).want("step 1 was done before: expected step 2").code(status.AlreadyExists)
	s.batch(endOf(7).saying(atStep(2))).ok()
}

// slowly has a method of a store take its time.
func slowly(method string, took time.Duration) func(context.Context, string, string) error {
	return func(_ context.Context, called, _ string) error {
		if called == method {
			time.Sleep(took)
		}
		return nil
	}
}

// TestFreeMissGivenUp: when the first request of a sequence gives up while it waits, those after
// it go on with what is saved. They do not begin anew.
func TestFreeMissGivenUp(t *testing.T) {
	for _, begin := range []string{"start", "implicit"} {
		inBubble(t, begin, func(t *testing.T) {
			store := &storetest.Memory{}
			edits := []func(*setup){savedIn(t, store, "steps=1"), free, param("begin", begin)}
			first := newServer(t, edits...)
			first.batch(startOf(7)).ok()
			synctest.Wait()
			second := goesOn(t, first, store, edits...)
			second.batch(nextOf(7), nextOf(7), nextOf(7))
			synctest.Wait()
			second.reruns.asks[0].cancelled = true
			second.rerun()
			synctest.Wait()
			second.rerun().ok()
			require.Zero(t, len(second.in.resuming))
			require.Equal(t, uint64(3), second.in.store.Live(keyOf(7)).Steps())
		})
	}
}

// TestFreeOvertaken: of several instances of the server, each runs its own parked requests again. One
// that comes before the first of its sequence goes on with what is saved, too.
func TestFreeOvertaken(t *testing.T) {
	for name, c := range map[string]struct {
		asks  []ask
		order []int
		steps uint64
	}{
		"next":   {[]ask{nextOf(7), nextOf(7), nextOf(7)}, []int{1, 2, 0}, 4},
		"start":  {[]ask{nextOf(7), startOf(7)}, []int{1, 0}, 2},
		"resume": {[]ask{nextOf(7), nextOf(7).saying(requires)}, []int{1, 0}, 3},
		"ended":  {[]ask{nextOf(7), nextOf(7), endOf(7)}, []int{1, 0, 2}, 0},
	} {
		for _, begin := range []string{"start", "implicit"} {
			inBubble(t, name+" "+begin, func(t *testing.T) {
				store := &storetest.Memory{}
				edits := []func(*setup){savedIn(t, store, "steps=1"), free, param("begin", begin)}
				first := newServer(t, edits...)
				first.batch(startOf(7)).ok()
				synctest.Wait()
				second := goesOn(t, first, store, edits...)
				for _, a := range c.asks {
					second.batch(a)
				}
				synctest.Wait()
				again := second.reruns.asks
				second.reruns.asks = nil
				require.Len(t, again, len(c.asks))
				for _, i := range c.order {
					if o := second.batch(again[i]); name != "resume" {
						o.ok()
					}
				}
				synctest.Wait()
				for range 2 {
					second.rerun().ok()
					synctest.Wait()
				}
				require.Empty(t, second.in.resuming)
				require.Empty(t, second.log.having("taken over"))
				if q := second.in.store.Live(keyOf(7)); c.steps > 0 {
					require.Equal(t, c.steps, q.Steps())
					goesOn(t, second, store, edits...).resumed(nextOf(7)).ok()
				} else {
					require.Nil(t, q)
				}
			})
		}
	}
}

// TestFreeMissFull: a sequence whose saved state finds no room does not begin anew, although there
// is room for the request after it.
func TestFreeMissFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &storetest.Memory{}
		edits := []func(*setup){slots(1, 1), savedIn(t, store, "steps=1"), free, param("begin", "implicit")}
		first := newServer(t, edits...)
		first.batch(startOf(7)).ok()
		synctest.Wait()
		second := newServer(t, edits...)
		second.batch(startOf(8)).ok()
		second.batch(nextOf(7), nextOf(7))
		synctest.Wait()
		second.reruns.asks = []ask{second.reruns.asks[0], endOf(8), second.reruns.asks[1]}
		o := second.rerun()
		for _, req := range []int{0, 2} {
			require.ErrorContains(t, o.answers[req].err, "sequence 7: restoring its state: too many simultaneous sequences")
		}
		second.plain = first.plain
		second.resumed(nextOf(7)).ok()
	})
}

// TestFreeEndOfFailedStart: after a START that failed, no END makes the next request go on with what
// was saved before it.
func TestFreeEndOfFailedStart(t *testing.T) {
	for _, infer := range []string{"1", "0"} {
		for name, end := range map[string]ask{"plain": endOf(7), "cancelled": endOf(7).cancel()} {
			inBubble(t, name+", infer_end_requests "+infer, func(t *testing.T) {
				s := newServer(t, savedIn(t, &storetest.Memory{}, "steps=1"), free, param("infer_end_requests", infer))
				s.batch(startOf(7)).ok()
				synctest.Wait()
				s.batch(startOf(7).cancel())
				s.batch(end)
				s.batch(nextOf(7)).want("its START failed")
				s.batch(startOf(7)).ok()
			})
		}
	}
}

// TestFreeCancelledEnd: it ends its sequence in the store, too, where the last step may not be saved.
func TestFreeCancelledEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, savedIn(t, &storetest.Memory{}, "steps=2"), free)
		for _, r := range []ask{startOf(7), nextOf(7), nextOf(7)} {
			s.batch(r).ok()
			synctest.Wait()
		}
		s.batch(endOf(7).cancel()).want("cancelled")
		synctest.Wait()
		s.forget(7)
		s.resumed(nextOf(7)).want("no such sequence is known")
	})
}

// TestFreeStepsNotSaved: a sequence that lost its state on this server does not go on without its
// last steps in silence.
func TestFreeStepsNotSaved(t *testing.T) {
	for _, begin := range []string{"start", "implicit"} {
		inBubble(t, begin, func(t *testing.T) {
			store := &storetest.Memory{}
			s := newServer(t, slots(1, 1), param("when_full", "evict_lru"), savedIn(t, store, "steps=2"), free, param("begin", begin))
			s.batch(startOf(7)).ok()
			s.batch(nextOf(7)).ok()
			synctest.Wait()
			saved := plainSequence{slices.Clone(s.plain["7"].states)}
			s.batch(nextOf(7)).ok()
			s.forget(7)
			time.Sleep(time.Millisecond)
			s.batch(startOf(8)).ok()
			const want = "sequence 7: its state was evicted 1ms ago to make room for another sequence: there are at most 1 slots (max_sequences); " +
				"the last 1 of its steps were not saved: its next request goes on after step 2"
			time.Sleep(time.Millisecond)
			s.resumed(nextOf(7), nextOf(7)).want(want, want).code(status.NotFound)
			s.plain = map[string]*plainSequence{"7": &saved}
			time.Sleep(time.Millisecond)
			s.resumed(nextOf(7)).ok()
			s.batch(nextOf(7)).ok()
			synctest.Wait()
			all := s.plain["7"]
			s.forget(7)
			time.Sleep(time.Millisecond)
			s.batch(startOf(8)).ok()
			s.plain = map[string]*plainSequence{"7": all}
			time.Sleep(time.Millisecond)
			s.resumed(nextOf(7)).ok() // all are saved
			time.Sleep(time.Millisecond)
			s.batch(startOf(8).saying(atStep(0)))
			s.forget(8)
			time.Sleep(time.Millisecond)
			s.resumed(nextOf(7).saying(atStep(5))).want("step 5 leaves a gap: expected step 4")
		})
	}
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
