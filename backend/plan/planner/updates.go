package planner

import (
	"fmt"
	"strconv"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/statebuffer"
)

// updateOf reads what state_updates says of a state, whose batch axis is known.
func (pl *planner) updateOf(s *plan.State, in *onnx.TensorInfo) error {
	text, given := config.Lookup(pl.params.StateUpdates, s.Input)
	switch {
	case !given || text == "replace":
		return nil
	case text == "keep":
		s.Update = statebuffer.KeepIfEmpty
		return nil
	}
	argument, begins := strings.CutPrefix(text, "append(")
	argument, ends := strings.CutSuffix(argument, ")")
	axis, err := strconv.Atoi(strings.TrimSpace(argument))
	switch {
	case !begins || !ends || err != nil:
		return fmt.Errorf("state_updates says %q: want replace, append(AXIS) or keep", text)
	case axis < 0 || axis >= len(in.Dims):
		return fmt.Errorf("state_updates says %s: want an axis of its shape %v, counted from 0", text, in.Dims)
	case axis == s.Axis:
		return fmt.Errorf("state_updates says %s, but axis %d of %v is the batch: want the axis along which the state grows", text, axis, in.Dims)
	}
	s.Update, s.AppendAxis = statebuffer.Append, axis
	return nil
}

// checkUpdates finds states that cannot be answered with: an empty output may have
// no lane for a request.
func (pl *planner) checkUpdates() {
	for i := range pl.plan.Outputs {
		p := &pl.plan.Outputs[i]
		if at := p.State - len(pl.plan.States); p.IsState && at >= 0 && pl.plan.Varying[at].Update == statebuffer.KeepIfEmpty {
			pl.fault("output %q is that of state %q, for which state_updates says keep: the model may write nothing there, so it cannot be listed in output", p.Name, pl.plan.Varying[at].Input)
		}
	}
}
