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
func (x *execution) placeOutputs() {
	s, w := x.stage, x.in.wiring
	if s.offset == x.held {
		return
	}
	s.offset = x.held
	for i := range w.outputs {
		p := &w.outputs[i]
		s.outputs[p.at].Data = x.in.io.outputs[i].At(int64(s.offset)*p.LaneBytes(), int64(s.lanes)*p.LaneBytes())
	}
}

// answers are the outputs of the run. Those of every run whose answers wait are in a
// slice of their own: they are borrowed until they are sent.
func (x *execution) answers() []Output {
	if x.held == 0 {
		return x.stage.answers
	}
	if len(x.in.waiting) == x.parts {
		x.in.waiting = append(x.in.waiting, make([]Output, len(x.stage.answers)))
	}
	answers := x.in.waiting[x.parts]
	copy(answers, x.stage.answers)
	for i := range answers {
		answers[i].Tensor = x.stage.outputs[x.in.wiring.outputs[i].at].Data.Bytes
	}
	x.parts++
	return answers
}

// send sends the answers, unless they can wait for those of the next run.
func (x *execution) send() {
	if !x.failed && len(x.rows) > 0 && x.queue.left > 0 && x.in.holds && x.in.pace.cuts() {
		behind, next := x.held+x.stage.lanes, max(2, x.queue.left) // a lone lane may run as two
		if behind+next <= x.in.wiring.maxLanes {
			x.held = behind
			return
		}
	}
	x.batch.Send()
	x.held, x.parts = 0, 0
}
