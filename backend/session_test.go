package backend

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
)

// sharer is a runner of a session that others can join.
type sharer struct {
	*runnertest.Recurrence
	from    *sharers
	session int
}

// sharers counts the sessions of a model and their runners.
type sharers struct {
	t       *testing.T
	mu      sync.Mutex
	opened  []onnx.SessionOptions // of each session
	runners []int                 // open ones of each session
	refuse  error                 // of each Share
	after   func(time.Duration, func())
	memory  func([]MemoryUse)
}

func (s *sharers) open(options onnx.SessionOptions) (onnx.Runner, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened, s.runners = append(s.opened, options), append(s.runners, 0)
	return s.runner(len(s.opened) - 1), nil
}

func (s *sharers) runner(session int) onnx.Runner {
	s.runners[session]++
	return &sharer{runnertest.NewRecurrence(s.t, "x:FP32[time,batch]", "y:FP32[time,batch]", 0), s, session}
}

// Share implements onnx.Sharer.
func (r *sharer) Share() (onnx.Runner, error) {
	r.from.mu.Lock()
	defer r.from.mu.Unlock()
	if r.from.runners[r.session] == 0 {
		return nil, errors.New("joining a session that is closed")
	}
	if r.from.refuse != nil {
		return nil, r.from.refuse
	}
	return r.from.runner(r.session), nil
}

// Close implements onnx.Runner.
func (r *sharer) Close() {
	r.from.mu.Lock()
	defer r.from.mu.Unlock()
	r.from.runners[r.session]--
}

// model is one with these parameters, as JSON.
func (s *sharers) model(parameters string) *Model {
	m, err := NewModel(ModelInfo{Name: "model", Version: 1, ReportMemory: s.memory, Config: []byte(`{"name":"model","max_batch_size":8,` +
		`"input":[{"name":"x","data_type":"TYPE_FP32","dims":[-1]}],"output":[{"name":"y","data_type":"TYPE_FP32","dims":[-1]}],` +
		`"parameters":{` + parameters + `}}`)}, Server{
		Log: slog.New(slog.DiscardHandler), Clock: func() time.Duration { return time.Hour }, Open: s.open, After: s.after,
	})
	require.NoError(s.t, err)
	return m
}

// TestInstancesShareASession: one session for all instances, which ends with the last one,
// whichever that is.
func TestInstancesShareASession(t *testing.T) {
	s := &sharers{t: t}
	m := s.model("")
	instances := make([]*Instance, 8)
	var group sync.WaitGroup
	for i := range instances {
		group.Go(func() { // the server loads them at the same time
			in, err := m.NewInstance(InstanceInfo{Name: fmt.Sprint("model_0_", i), Kind: "cpu"})
			if err != nil {
				t.Error(err)
			}
			instances[i] = in
		})
	}
	group.Wait()
	require.Len(t, s.opened, 1)
	require.Equal(t, "model", s.opened[0].Name, "the log lines of the session name no instance")
	require.Equal(t, []int{8}, s.runners)
	for _, i := range []int{0, 3, 7} {
		instances[i].Close()
	}
	again, err := m.NewInstance(InstanceInfo{Name: "model_0_8", Kind: "cpu"})
	require.NoError(t, err)
	require.Equal(t, []int{6}, s.runners)
	for _, i := range []int{1, 2, 4, 5, 6} {
		instances[i].Close()
	}
	again.Close()
	require.Equal(t, []int{0}, s.runners)
	require.Empty(t, m.sessions.open)

	in, err := m.NewInstance(InstanceInfo{Name: "model_0_0", Kind: "cpu"})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, s.runners, "a session that has ended is not joined")
	in.Close()
}

// TestWhichInstancesShare has instances of two host policies, two each.
func TestWhichInstancesShare(t *testing.T) {
	near, far := HostPolicy{"numa-node": "0", "cpu-cores": "0-3"}, HostPolicy{"numa-node": "1", "cpu-cores": "4-7"}
	require.Equal(t, "cpu-cores=0-3,numa-node=0", near.String())
	share := func(value string) string {
		return `"share_session_between_instances":{"string_value":"` + value + `"}`
	}
	threads := func(n string) string { return `"intra_op_threads":{"string_value":"` + n + `"}` }
	for parameters, c := range map[string]struct {
		second   HostPolicy
		sessions int
	}{
		"":                                      {near, 1},
		" ":                                     {far, 2},
		share("auto"):                           {near, 1},
		share("1"):                              {near, 1},
		share("0"):                              {near, 4},
		threads("0"):                            {near, 1},
		threads("2"):                            {near, 4},
		`"execution_mode":{"string_value":"1"}`: {near, 4 + 1}, // one for the proof of the batch axes
		threads("2") + "," + share("1"):         {near, 1},
		threads("2") + "," + share("1 "):        {far, 2},
	} {
		s := &sharers{t: t}
		m := s.model(parameters)
		for i, policy := range []HostPolicy{near, c.second, near, c.second} {
			in, err := m.NewInstance(InstanceInfo{Name: fmt.Sprint("model_0_", i), Kind: "cpu", HostPolicy: policy})
			require.NoError(t, err)
			defer in.Close()
		}
		require.Len(t, s.opened, c.sessions, parameters)
	}
}

// TestCustomOperatorsShareNothing: kernels that were written for one session of each instance
// may not stand calls at the same time, unless the configuration says so.
func TestCustomOperatorsShareNothing(t *testing.T) {
	for parameters, sessions := range map[string]int{"": 2, `"share_session_between_instances":{"string_value":"1"}`: 1} {
		s := &sharers{t: t}
		m := s.model(parameters)
		m.params.Session.Operators = []string{"/opt/ops.so"}
		for _, threads := range []bool{false, true} {
			m.server.GlobalThreads = threads
			in, err := m.NewInstance(InstanceInfo{Name: fmt.Sprint("model_0_", threads), Kind: "cpu"})
			require.NoError(t, err)
			defer in.Close()
		}
		require.Len(t, s.opened, sessions, parameters)
	}
}

// TestSessionOfAFailedLoad: an instance that does not load leaves the session to the others,
// and closes it where there are none.
func TestSessionOfAFailedLoad(t *testing.T) {
	s := &sharers{t: t}
	m := s.model("")
	m.faults = errInjected
	_, err := m.NewInstance(InstanceInfo{Name: "model_0_0", Kind: "cpu"})
	require.ErrorIs(t, err, errInjected)
	require.Equal(t, []int{0}, s.runners)

	m.faults = nil
	in, err := m.NewInstance(InstanceInfo{Name: "model_0_0", Kind: "cpu"})
	require.NoError(t, err)
	s.refuse = errInjected
	_, err = m.NewInstance(InstanceInfo{Name: "model_0_1", Kind: "cpu"})
	require.ErrorIs(t, err, errInjected)
	s.refuse, m.faults = nil, errInjected
	_, err = m.NewInstance(InstanceInfo{Name: "model_0_1", Kind: "cpu"})
	require.ErrorIs(t, err, errInjected)
	require.Equal(t, []int{0, 1}, s.runners)
	in.Close()
	require.Equal(t, []int{0, 0}, s.runners)
}
