package localserver

import (
	"log/slog"
	"strconv"
	"sync"
	"time"

	"tritonstateful/backend"
	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// patience is how long an answer may take: much longer than the timeouts of the backend.
const patience = time.Minute

// An Instance is a model that is served on the CPU.
type Instance struct {
	in      *backend.Instance
	direct  bool
	strings bool

	mu     sync.Mutex
	reruns []rerun
	event  chan struct{} // something has happened that Run may wait for
}

// rerun is a parked request that is to run again.
type rerun struct {
	request backend.Request
	call    *call
}

// A Request is one of a sequence. Inputs are in the order of Inputs.
type Request struct {
	ID         uint64 // of the sequence; not 0
	Start, End bool
	Inputs     []backend.Input
	Parameters *backend.Parameters
	// Slot is the batch slot of the sequence, with the direct scheduler.
	Slot int
}

// An Answer has the outputs in the order of Outputs, or an error.
type Answer struct {
	Outputs []Output
	Err     error
}

// An Output is a tensor of an answer.
type Output struct {
	Shape tensor.Shape
	Data  []byte
}

// Load loads a model, whose configuration is complete, for one instance. warn, if it is not nil, gets the warnings that a
// server would log. The caller must Close the instance.
func Load(info backend.ModelInfo, warn func(string), open onnx.OpenRunner) (*Instance, error) {
	began := time.Now()
	server := backend.Server{
		Log:          slog.New(warnings{warn}),
		Clock:        func() time.Duration { return time.Since(began) + time.Second },
		Open:         open,
		DefaultBatch: config.ServerBatch,
		After:        func(d time.Duration, f func()) { time.AfterFunc(d, f) },
	}
	model, err := backend.NewModel(info, server)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(info.Config)
	if err != nil {
		return nil, err
	}
	in, err := model.NewInstance(backend.InstanceInfo{Name: info.Name + "_0", Kind: "cpu"})
	if err != nil {
		return nil, err
	}
	return &Instance{in: in, direct: cfg.Direct(), strings: model.StringIDs(), event: make(chan struct{}, 1)}, nil
}

// Close ends the instance and frees its memory.
func (s *Instance) Close() { s.in.Close() }

// Inputs are the inputs that requests bring.
func (s *Instance) Inputs() []onnx.IOTensor { return s.in.Inputs() }

// Outputs are the outputs that answers carry.
func (s *Instance) Outputs() []onnx.IOTensor { return s.in.Outputs() }

// Direct reports whether each sequence has a batch slot.
func (s *Instance) Direct() bool { return s.direct }

// LargestBatch is how many requests a batch can have.
func (s *Instance) LargestBatch() int { return max(s.in.LargestBatch(), 1) }

// Keeps reports whether sequences have states that can be saved.
func (s *Instance) Keeps() bool { return s.in.TakesParameters() }

// Run gives the requests to the backend as one batch, and waits for all answers.
func (s *Instance) Run(requests []Request) []Answer {
	calls := make([]*call, len(requests))
	b := &batch{server: s}
	for i := range requests {
		calls[i] = &call{server: s}
		for s.direct && len(b.calls) < requests[i].Slot { // idle batch slots come as requests of no sequence
			b.add(backend.Request{Inputs: requests[i].Inputs}, &call{server: s})
		}
		b.add(s.request(&requests[i]), calls[i])
	}
	s.in.Execute(b)
	deadline := time.After(patience)
	for {
		if again := s.takeReruns(); len(again) > 0 {
			b := &batch{server: s}
			for i := range again {
				b.add(again[i].request, again[i].call)
			}
			s.in.Execute(b)
			continue
		}
		if done(calls) {
			break
		}
		select {
		case <-s.event:
		case <-deadline:
			return timedOut(calls)
		}
	}
	answers := make([]Answer, len(calls))
	for i := range calls {
		answers[i] = calls[i].answer
	}
	return answers
}

// request is a request as the backend gets it.
func (s *Instance) request(r *Request) backend.Request {
	id := backend.SequenceID{Number: r.ID}
	if s.strings {
		id = backend.SequenceID{Text: strconv.FormatUint(r.ID, 10)}
	}
	request := backend.Request{Sequence: id, Start: r.Start, End: r.End, Inputs: r.Inputs, Parameters: r.Parameters}
	if s.in.TokenInput() != "" {
		request.Token = r.ID
	}
	return request
}

func (s *Instance) takeReruns() []rerun {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.reruns
	s.reruns = nil
	return again
}

func (s *Instance) signal() {
	select {
	case s.event <- struct{}{}:
	default:
	}
}

func done(calls []*call) bool {
	for _, c := range calls {
		if !c.isDone() {
			return false
		}
	}
	return true
}

func timedOut(calls []*call) []Answer {
	answers := make([]Answer, len(calls))
	for i := range answers {
		answers[i].Err = status.Errorf(status.Unavailable, "the backend has not answered within %v", patience)
	}
	return answers
}
