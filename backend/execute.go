package backend

import (
	"fmt"
	"runtime/debug"
	"time"

	"tritonstateful/statebuffer"
)

// Execute runs one batch. When it returns, every request of it has been answered
// exactly once and released, whatever happened. It stays on its goroutine, so on
// its thread, starts no other one, and allocates nothing for batches whose sizes
// it has seen before.
//
// A batch is usually one run of the model. It is more when two requests of one
// sequence meet in it: Triton forgets a correlation ID when its END is queued, so
// a new START of the same ID can come with the old sequence's last request.
func (in *Instance) Execute(batch Batch) {
	x := &in.work
	x.begin(batch)
	defer x.finish()
	for x.next() {
		x.gather()
		x.run()
		x.keep()
		x.respond()
	}
}

// execution is the work on one batch. Its slices are kept for the next one.
type execution struct {
	in       *Instance
	batch    Batch
	requests []Request
	now      time.Duration
	pending  []int // rows that still have to run, in the order to take them
	timing   Timing

	// The current run. Its lanes are the rows, then padding.
	rows   []int
	lanes  []statebuffer.Lane
	stage  *stage
	step   *statebuffer.Step // open, that is neither committed nor aborted, or nil
	failed bool

	ran   int // requests that ran
	spans spans
}

// begin notes who is in the batch, before anybody can be expired or evicted for
// somebody else's sake. Requests without START come first, because one that
// shares its ID with a START belongs to the sequence before.
func (x *execution) begin(batch Batch) {
	in := x.in
	*x = execution{in: in, batch: batch, requests: batch.Requests(), now: in.model.host.Clock(),
		pending: x.pending[:0], rows: x.rows[:0], lanes: x.lanes[:0]}
	x.spans.enter(x.now)
	for row := range x.requests {
		if r := &x.requests[row]; r.Err == nil && !r.Start {
			in.store.Touch(key(r.Sequence), x.now)
			x.pending = append(x.pending, row)
		}
	}
	for row := range x.requests {
		switch r := &x.requests[row]; {
		case r.Err != nil:
			x.fail(row, r.Err)
		case r.Start:
			in.store.Touch(key(r.Sequence), x.now)
			x.pending = append(x.pending, row)
		}
	}
	in.store.ExpireIdle(x.now)
	in.levels.batch(len(x.requests))
}

func key(id SequenceID) statebuffer.Key {
	return statebuffer.Key{Number: id.Number, Text: id.Text}
}

// next takes the requests of the next run out of the pending ones: at most one
// of each sequence. It is false when none is left.
func (x *execution) next() bool {
	x.rows, x.lanes, x.failed = x.rows[:0], x.lanes[:0], false
	for len(x.rows) == 0 && len(x.pending) > 0 {
		x.in.runs++
		later := x.pending[:0]
		for _, row := range x.pending {
			if !x.admit(row) {
				later = append(later, row)
			}
		}
		x.pending = later
	}
	return len(x.rows) > 0
}

// admit gives a request its lane, or answers it. It is false when the request
// must wait for a later run.
func (x *execution) admit(row int) bool {
	r, in := &x.requests[row], x.in
	lane := statebuffer.Lane{End: r.End}
	switch {
	case r.Cancelled:
		x.fail(row, Errorf(Cancelled, "the request was cancelled before it ran"))
		return true
	case r.Sequence.IsZero(): // model_warmup
	case r.End && !in.model.params.InferEnd:
		in.store.End(key(r.Sequence))
		in.levels.endNotInferred(r.Sequence)
		x.batch.Answer(row, in.empty, 0, 1)
		return true
	case r.Start:
		if q := in.store.Touch(key(r.Sequence), x.now); q != nil && q.Visit(in.runs) {
			return false
		}
		q, err := in.store.Begin(key(r.Sequence), x.now)
		if err != nil {
			x.fail(row, refusal(r.Sequence, err))
			return true
		}
		q.Visit(in.runs)
		in.levels.reset(r.Sequence)
		lane.Sequence = q
	default:
		q, err := in.store.Continue(key(r.Sequence), x.now)
		if err != nil {
			x.fail(row, refusal(r.Sequence, err))
			return true
		}
		if q.Visit(in.runs) {
			return false
		}
		lane.Sequence = q
	}
	if err := x.check(r); err != nil {
		in.store.Fail(lane, x.now)
		x.fail(row, err)
		return true
	}
	x.rows = append(x.rows, row)
	x.lanes = append(x.lanes, lane)
	return true
}

// check tells why a request does not fit the model.
func (x *execution) check(r *Request) error {
	ports := x.in.wiring.inputs
	for i := range ports {
		if err := ports[i].check(&r.Inputs[i]); err != nil {
			return err
		}
	}
	return nil
}

// gather fills the tensors of the run: the requests' inputs, the controls and
// the states.
func (x *execution) gather() {
	in, w := x.in, x.in.wiring
	s := in.stage(in.padded(len(x.rows)))
	x.stage = s
	for i := range w.inputs {
		for lane, row := range x.rows {
			putLane(s.in[i].Bytes, w.inputs[i].Layout, s.lanes, lane, x.requests[row].Inputs[i].Data)
		}
		for lane := len(x.rows); lane < s.lanes; lane++ {
			clearLane(s.in[i].Bytes, w.inputs[i].Layout, s.lanes, lane)
		}
	}
	for i := range w.controls {
		w.controls[i].fill(s.controls[i].Bytes, x)
	}
	x.spans.mark(&x.spans.input, in.model.host.Clock())
	step, err := in.store.Gather(x.lanes, s.lanes)
	if err != nil {
		x.failRun(fmt.Errorf("gathering the states: %w", err))
		return
	}
	x.step = step
	s.bindStates(w, step)
	x.spans.mark(&x.spans.gather, in.model.host.Clock())
}

// run runs the model.
func (x *execution) run() {
	if x.failed {
		return
	}
	start := x.spans.at
	if err := x.in.runner.Run(x.stage.inputs, x.stage.outputs); err != nil {
		x.failRun(fmt.Errorf("error during inference: %w", err))
	}
	x.spans.mark(&x.spans.run, x.in.model.host.Clock())
	if x.timing.ComputeStart == 0 {
		x.timing.ComputeStart = start
	}
	x.timing.ComputeEnd = x.spans.at
}

// keep stores the new states, which nothing could see until now.
func (x *execution) keep() {
	if x.failed {
		return
	}
	step := x.step
	x.step = nil
	if err := x.in.store.Commit(step, x.now); err != nil {
		x.failRun(fmt.Errorf("storing the states: %w", err))
	}
	x.spans.mark(&x.spans.scatter, x.in.model.host.Clock())
}

// respond answers the requests of the run.
func (x *execution) respond() {
	if !x.failed {
		for lane, row := range x.rows {
			x.batch.Answer(row, x.stage.answers, lane, 1)
		}
		x.ran += len(x.rows)
		x.in.report.ran(len(x.rows))
	}
	x.batch.Send()
	x.spans.mark(&x.spans.send, x.in.model.host.Clock())
}

// finish leaves nothing open. It is the only place that recovers once requests
// are taken: the instance goes on with the next batch.
func (x *execution) finish() {
	if p := recover(); p != nil {
		x.in.log.Error("panic while a batch ran", "panic", p, "stack", string(debug.Stack()))
		x.failRun(Errorf(Internal, "internal error of the stateful backend; see the server's log"))
		for row := range x.requests {
			x.fail(row, Errorf(Internal, "internal error of the stateful backend; see the server's log"))
		}
	}
	x.batch.Finish(x.timing)
	x.batch, x.requests = nil, nil
	x.in.maintain(x)
}

// failRun answers every row of the run and gives up its step.
func (x *execution) failRun(err error) {
	x.failed = true
	if x.step != nil {
		x.in.store.Abort(x.step, x.now)
		x.step = nil
	}
	for _, row := range x.rows {
		x.fail(row, err)
	}
}

func (x *execution) fail(row int, err error) { x.batch.Fail(row, err) }

// refusal is the answer to a request whose sequence has no state.
func refusal(id SequenceID, err error) error {
	code := InvalidArg
	if _, full := err.(*statebuffer.FullError); full {
		code = Internal // as NVIDIA's backend answers
	}
	return Errorf(code, "sequence %v: %w", id, err)
}

// String is the ID as a client wrote it.
func (id SequenceID) String() string {
	if id.Text != "" {
		return fmt.Sprintf("%q", id.Text)
	}
	return fmt.Sprint(id.Number)
}

// fill writes the control's value for each lane; padding lanes are starts.
func (c *controlWire) fill(bytes []byte, x *execution) {
	size := len(c.value[0])
	for lane := range x.stage.lanes {
		on := lane >= len(x.rows) && c.kind == ControlStart
		if lane < len(x.rows) {
			r := &x.requests[x.rows[lane]]
			switch c.kind {
			case ControlStart:
				on = r.Start || r.Sequence.IsZero()
			case ControlEnd:
				on = r.End
			case ControlReady:
				on = true
			}
		}
		copy(bytes[lane*size:], c.value[index(on)])
	}
}

func index(on bool) int {
	if on {
		return 1
	}
	return 0
}
