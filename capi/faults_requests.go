//go:build faults

package main

import (
	"errors"
	"strings"
	"time"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
)

// asRequested is the fault of an instance whose requests say by their parameters what becomes
// of them, for tests of the way through a real server:
//
//   - stateful_step=N is answered with N+1 steps, of which N are saved.
//   - stateful_resume parks the request, and says so in its answer.
//   - stateful_save delays the answer, and calls all steps saved.
//   - stateful_key="fail" delays the answer and makes it an error, and "wait 500ms" is how
//     long something waits, instead of a moment.
//
// The instance itself gets the requests without parameters.
const asRequested = "as-requested"

type requestedModel struct {
	model
	direct bool // the scheduler is the direct one
}

type requestedExecutor struct {
	executor
	direct bool
}

func (m requestedModel) NewInstance(info backend.InstanceInfo) (executor, error) {
	in, err := m.model.NewInstance(info)
	if err != nil {
		return nil, err
	}
	return requestedExecutor{in, m.direct}, nil
}

func (requestedExecutor) TakesParameters() bool { return true }

func (e requestedExecutor) Execute(b backend.Batch) {
	for req := range b.Requests() {
		r := &b.Requests()[req]
		p := r.Parameters
		if p == nil || r.Err != nil {
			continue
		}
		r.Parameters = nil
		if p.Resume != backend.ResumeNone && r.Note == nil {
			if e.direct {
				r.Token = uint64(req) + 1 // as the instance would do
			}
			park(b, req, p)
			continue
		}
		answer := backend.AnswerParameters{Step: p.Step + 1, SavedStep: p.Step, Resumed: r.Note != nil}
		b.Describe(req, answer)
		if fails := p.Key == "fail"; p.Save || fails {
			hold(b, req, p, answer, fails)
		}
	}
	e.executor.Execute(b)
}

// park makes a parked request one that the instance has nothing to do for.
func park(b backend.Batch, req int, p *backend.Parameters) {
	rerun := b.Park(req)
	time.AfterFunc(waitOf(p), func() { rerun("parked") })
	r := &b.Requests()[req]
	r.Sequence, r.Err = backend.SequenceID{}, errors.New("parked")
}

func hold(b backend.Batch, req int, p *backend.Parameters, answer backend.AnswerParameters, fails bool) {
	held := b.Hold(req)
	answer.SavedStep = answer.Step
	time.AfterFunc(waitOf(p), func() {
		if fails {
			held.ReleaseWith(&answer, status.Errorf(status.Unavailable, "not saved"))
		} else {
			held.ReleaseWith(&answer, nil)
		}
	})
}

// waitOf is how long the key of a request has it wait.
func waitOf(p *backend.Parameters) time.Duration {
	if text, waits := strings.CutPrefix(p.Key, "wait "); waits {
		if d, err := time.ParseDuration(text); err == nil {
			return d
		}
	}
	return time.Millisecond
}
