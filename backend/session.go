package backend

import (
	"slices"
	"sync"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
)

// sessions are the open runners of a model's instances that share a session. The zero value
// is ready.
type sessions struct {
	mu sync.Mutex
	// open are the runners of each session, by the host policy of their instances: memory
	// that one NUMA node has is slow for the cores of another. An empty list is not kept, so
	// a session ends with its last instance, and a later one opens the model file again.
	open map[string][]onnx.Runner
}

// openRunner opens the model for an instance, or has it join the session of another one.
func (m *Model) openRunner(options onnx.SessionOptions, policy HostPolicy) (_ onnx.Runner, shared bool, _ error) {
	if !m.sharesSession(&options) {
		runner, err := m.server.Open(options)
		return runner, false, err
	}
	s := &m.sessions
	s.mu.Lock() // the first instance opens the file, while the others wait
	defer s.mu.Unlock()
	key := policy.String()
	runner, err := s.join(key)
	if runner == nil && err == nil {
		options.Name = m.info.Name // in the log lines of all instances
		runner, err = m.server.Open(options)
	}
	if err != nil {
		return nil, false, err
	}
	if s.open == nil {
		s.open = map[string][]onnx.Runner{}
	}
	s.open[key] = append(s.open[key], runner)
	return runner, true, nil
}

// join returns one more runner of a session, or nil where none is open.
func (s *sessions) join(key string) (onnx.Runner, error) {
	open := s.open[key]
	if len(open) == 0 {
		return nil, nil
	}
	sharer, can := open[0].(onnx.Sharer)
	if !can {
		return nil, nil
	}
	return sharer.Share()
}

// closeRunner closes the runner of an instance. No run may be under way.
func (m *Model) closeRunner(runner onnx.Runner) {
	s := &m.sessions
	s.mu.Lock() // no one may join its session meanwhile
	defer s.mu.Unlock()
	for key, open := range s.open {
		at := slices.Index(open, runner)
		if at < 0 {
			continue
		}
		if s.open[key] = slices.Delete(open, at, at+1); len(s.open[key]) == 0 {
			delete(s.open, key)
		}
	}
	runner.Close()
}

// sharesSession reports whether the instances of the model share a session. A GPU's session
// has one stream, and a session with threads of its own would have the instances compete for
// them. Threads of the whole process they share in any case. Custom operators may have been
// written for Triton's onnxruntime backend, which calls those of a session one at a time.
func (m *Model) sharesSession(options *onnx.SessionOptions) bool {
	if options.Provider != onnx.CPU {
		return false
	}
	switch m.params.ShareSession {
	case config.ShareAlways:
		return true
	case config.ShareNever:
		return false
	default: // 0 threads are those of the whole machine, which one session can use up
		return len(options.Operators) == 0 && (m.server.GlobalThreads || options.IntraOpThreads <= 1 && !options.Parallel)
	}
}
