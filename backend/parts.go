package backend

import "tritonstateful/internal/tensor"

// A batch that is cut into several runs is answered at once, when the last one is
// done: each answer that is sent wakes threads of the server, which take the
// processor from the next run. So the runs write their outputs one behind the
// other into the batched tensors, which have room for a whole batch.

// canHold reports whether the answers of a run can wait while another one runs: all
// outputs are tensors of ours, with lanes.
func canHold(w *wiring) bool {
	for i := range w.outputs {
		if p := &w.outputs[i]; p.stateOut || p.varies || p.axis == noAxis || p.DType == tensor.Bytes {
			return false
		}
	}
	return true
}

// placeOutputs binds the outputs of the run behind those of the runs whose answers
// wait.
func (e *execution) placeOutputs() {
	s, w := e.stage, e.in.wiring
	if s.offset == e.held {
		return
	}
	s.offset = e.held
	for i := range w.outputs {
		p := &w.outputs[i]
		s.outputs[p.at].Data = e.in.io.outputs[i].At(int64(s.offset)*p.LaneBytes(), int64(s.lanes)*p.LaneBytes())
	}
}

// answers are the outputs of the run. Those of every run whose answers wait are in a
// slice of their own: they are borrowed until they are sent.
func (e *execution) answers() []Output {
	if e.held == 0 {
		return e.stage.answers
	}
	if len(e.in.waiting) == e.parts {
		e.in.waiting = append(e.in.waiting, make([]Output, len(e.stage.answers)))
	}
	answers := e.in.waiting[e.parts]
	copy(answers, e.stage.answers)
	for i := range answers {
		answers[i].Tensor = e.stage.outputs[e.in.wiring.outputs[i].at].Data.Bytes
	}
	e.parts++
	return answers
}

// send sends the answers, unless they can wait for those of the next run.
func (e *execution) send() {
	if e.phase == committed && e.queue.left > 0 && e.in.holds && e.in.pace.cuts() {
		behind, next := e.held+e.stage.lanes, max(2, e.queue.left) // a lone lane may run as two
		if behind+next <= e.in.wiring.maxLanes {
			e.held = behind
			return
		}
	}
	e.batch.Send()
	e.held, e.parts = 0, 0
}
