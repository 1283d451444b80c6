package backend

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// joinable is a model whose sequences are free, loaded as instance 0, and how often its file was
// opened.
func joinable(t *testing.T, edit func(*config.Config)) (*Model, *Instance, *atomic.Int32, *recorder) {
	t.Helper()
	m, opened := namedModel(), &atomic.Int32{}
	open := func(onnx.SessionOptions) (onnx.Runner, error) { opened.Add(1); return m, nil }
	model, log := newModel(t, "", (&setup{config: dynamic(t, edit)}).json(), open)
	in, err := model.NewInstance(InstanceInfo{Name: "model_0_0", Kind: "cpu"})
	require.NoError(t, err)
	t.Cleanup(func() { require.Zero(t, m.memory.Used()) })
	return model, in, opened, log
}

// sumRequest is a request of sumModel.
func sumRequest(id uint64, start bool) Request {
	return Request{Sequence: SequenceID{Number: id}, Start: start, Inputs: intInput(tensor.Shape{1, 2}, 1, 2)}
}

// TestFreeInstancesShare: a sequence goes on in whichever instance gets its next request, and all
// instances are one until the last is closed.
func TestFreeInstancesShare(t *testing.T) {
	model, first, opened, log := joinable(t, nil)
	before := opened.Load()
	second, err := model.NewInstance(InstanceInfo{Name: "model_0_1", Kind: "cpu"})
	require.NoError(t, err)
	require.Same(t, first, second)
	require.Equal(t, before, opened.Load(), "one session, one table")
	require.Len(t, log.having("another instance hands its batches to this one"), 1)
	require.Equal(t, []int32{1, 2}, numbers(succeed(t, first, sumRequest(7, true))[0].outputs[0]))
	require.Equal(t, []int32{2, 4}, numbers(succeed(t, second, sumRequest(7, false))[0].outputs[0]))
	first.Close() // the server's count went down
	require.Equal(t, []int32{3, 6}, numbers(succeed(t, second, sumRequest(7, false))[0].outputs[0]))
	second.Close()
	again, err := model.NewInstance(InstanceInfo{Name: "model_0_2", Kind: "cpu"})
	require.NoError(t, err)
	defer again.Close()
	require.NotSame(t, first, again)
	require.ErrorContains(t, send(t, again, sumRequest(7, false))[0].err, "no such sequence is known")
}

// TestFreeInstancesAtOnce: batches of several instances come at the same time, each of a goroutine
// of its own, and every sequence gets the sum of its own steps.
func TestFreeInstancesAtOnce(t *testing.T) {
	const instances, steps = 4, 200
	model, first, _, _ := joinable(t, nil)
	defer first.Close()
	var running sync.WaitGroup
	for id := range uint64(instances) {
		in, err := model.NewInstance(InstanceInfo{Name: "model_0_x", Kind: "cpu"})
		require.NoError(t, err)
		defer in.Close()
		running.Go(func() {
			for step := range int32(steps) {
				b := &fakeBatch{t: t, requests: []Request{sumRequest(id+1, step == 0)}, answers: make([]answer, 1)}
				in.Execute(b)
				if a := &b.answers[0]; a.err != nil || numbers(a.outputs[0])[0] != step+1 {
					t.Errorf("sequence %d, step %d: %v, %v", id+1, step, a.err, a.outputs)
					return
				}
			}
		})
	}
	running.Wait()
}

// TestFreeInstancesOfAnotherDevice: a table of sequences is on one device. The configuration does
// not say of KIND_AUTO which.
func TestFreeInstancesOfAnotherDevice(t *testing.T) {
	model, in, _, _ := joinable(t, nil)
	defer in.Close()
	_, err := model.NewInstance(InstanceInfo{Name: "model_0_1", Kind: "cpu", Device: 1})
	require.ErrorContains(t, err, `on another device than instance "model_0_0"`)
	require.Equal(t, status.InvalidArg, status.CodeOf(err))
}

// TestFreeInstancesHostPolicy: the session and the states are where the first instance has them; that
// another one was to have them elsewhere is said.
func TestFreeInstancesHostPolicy(t *testing.T) {
	model, in, _, log := joinable(t, nil)
	defer in.Close()
	for _, policy := range []HostPolicy{nil, {"numa-node": "1"}} {
		second, err := model.NewInstance(InstanceInfo{Name: "model_1_0", Kind: "cpu", HostPolicy: policy})
		require.NoError(t, err)
		defer second.Close()
		require.Len(t, log.having("has another host policy"), len(policy))
	}
}

// TestFreeInstancesWarmUp: the server sends the requests of model_warmup, which have no correlation
// ID, to each of its instances.
func TestFreeInstancesWarmUp(t *testing.T) {
	model, in, _, _ := joinable(t, func(c *config.Config) { c.WarmUps = []config.WarmUp{{BatchSize: 1}} })
	defer in.Close()
	second, err := model.NewInstance(InstanceInfo{Name: "model_0_1", Kind: "cpu"})
	require.NoError(t, err)
	defer second.Close()
	for range 2 {
		succeed(t, in, sumRequest(0, false))
	}
	require.ErrorContains(t, send(t, in, sumRequest(0, false))[0].err, "no correlation ID")
}

// TestInstancesWithoutStates: those of a model without sequences are separate.
func TestInstancesWithoutStates(t *testing.T) {
	model, first, _, _ := joinable(t, func(c *config.Config) { c.Inputs = append(c.Inputs, stateTensor("sum_in")) })
	defer first.Close()
	second, err := model.NewInstance(InstanceInfo{Name: "model_0_1", Kind: "cpu"})
	require.NoError(t, err)
	defer second.Close()
	require.NotSame(t, first, second)
}

// TestQueuePolicyWarns: with what keeps Triton from handing over a batch while one runs, one
// instance is too few.
func TestQueuePolicyWarns(t *testing.T) {
	for name, tt := range map[string]struct {
		edit  func(*config.Config)
		warns bool
	}{
		"none":         {nil, false},
		"priorities":   {func(c *config.Config) { c.Dynamic.PriorityLevels = 1 }, true},
		"a timeout":    {func(c *config.Config) { c.Dynamic.DefaultQueuePolicy.DefaultTimeoutMicroseconds = 1 }, true},
		"of clients":   {func(c *config.Config) { c.Dynamic.DefaultQueuePolicy.AllowTimeoutOverride = true }, true},
		"a queue size": {func(c *config.Config) { c.Dynamic.DefaultQueuePolicy.MaxQueueSize = 9 }, true},
		"two instances": {func(c *config.Config) {
			c.Dynamic.PriorityLevels, c.InstanceGroups = 2, []config.InstanceGroup{{Count: 2}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, log := namedModel().logged(t, dynamic(t, tt.edit))
			require.Len(t, log.having("Triton may hand over a request up to half a second late"), index(tt.warns))
		})
	}
}

// TestFreeInstancesTimeout: the time of a request counts while a batch of another instance runs.
func TestFreeInstancesTimeout(t *testing.T) {
	_, in, _, _ := joinable(t, nil)
	defer in.Close()
	var now, calls atomic.Int64
	in.model.server.Clock = func() time.Duration { calls.Add(1); return time.Duration(now.Load()) }
	succeed(t, in, sumRequest(7, true))
	r := sumRequest(7, false)
	r.Timeout = time.Millisecond
	b := &fakeBatch{t: t, requests: []Request{r}, answers: make([]answer, 1)}
	done := make(chan struct{})
	before := calls.Load()
	in.ticker.mu.Lock() // as that batch has it
	go func() { in.Execute(b); close(done) }()
	assert.Eventually(t, func() bool { return calls.Load() > before }, 10*time.Second, time.Millisecond)
	now.Add(int64(2 * time.Millisecond))
	in.ticker.mu.Unlock()
	<-done
	require.ErrorContains(t, b.answers[0].err, "passed while it waited to run")
}
