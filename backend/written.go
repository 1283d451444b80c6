package backend

import (
	"slices"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// ONNX Runtime makes sure that a model writes what is bound: a tensor of another shape is
// an error of its own. Where it allocates an output, nobody has looked at the shape yet.

// checkWritten tells why an output that the run has allocated is no answer to so many
// lanes. It may be what one of them has sent that makes it so: then the run is halved,
// as where the model itself refuses a value.
func checkWritten(p *port, shape tensor.Shape, lanes int) error {
	switch {
	case len(shape) == len(p.dims) && (p.lanesAt == tensor.NoAxis || shape[p.lanesAt] == int64(lanes)):
		return nil
	case p.lanesAt == tensor.NoAxis:
		return status.Errorf(status.Internal, "output %q: the model wrote shape %v for %d lanes: want rank %d", p.Name, shape, lanes, len(p.dims))
	default:
		return status.Errorf(status.Internal, "output %q: the model wrote shape %v for %d lanes: want rank %d with the batch at axis %d", p.Name, shape, lanes, len(p.dims), p.lanesAt)
	}
}

// checkWrittenState tells why what a run has written is not the next value of a state of no
// elements, which nobody has bound.
func checkWrittenState(s *stateWire, shape tensor.Shape, lanes int) error {
	if want := s.dims.With(s.axis, int64(lanes)); !shape.Equal(want) {
		return status.Errorf(status.Internal, "state %q: the model wrote shape %v for %d lanes: want %v, because that is what the next step can read", s.input, shape, lanes, want)
	}
	return nil
}

// takeOutputs notes what the run has allocated by itself: states and outputs of
// varying shape.
func (s *ioSet) takeOutputs(w *wiring, step *statebuffer.Step) error {
	for _, i := range w.hollow {
		st := &w.states[i]
		if err := checkWrittenState(st, s.outputs[st.out].Shape, s.lanes); err != nil {
			return err
		}
	}
	for i := range w.varying {
		out := &s.outputs[w.varying[i].out]
		step.Varying[i].Out, step.Varying[i].OutShape = out.Data, out.Shape
	}
	for i := range w.outputs {
		p := &w.outputs[i]
		if !p.varies && (!p.stateOut || p.state < len(w.states)) {
			continue
		}
		answer, err := s.varyingAnswer(p, &s.outputs[p.at])
		if err != nil {
			return err
		}
		s.answers[i] = answer
	}
	return nil
}

// varyingAnswer describes an output whose shape the run has decided.
func (s *ioSet) varyingAnswer(p *port, out *onnx.Tensor) (Output, error) {
	if err := checkWritten(p, out.Shape, s.lanes); err != nil {
		return Output{}, err
	}
	answer := Output{Tensor: out.Data.Bytes, Lanes: s.lanes, Batched: p.leading}
	lane := out.Shape.Without(p.axis)
	answer.Shape = out.Shape.With(p.axis, 1)
	switch {
	case len(p.answer) > len(p.dims): // the batch is in front of all axes that the model has
		answer.Shape = slices.Insert(answer.Shape.Clone(), 0, 1)
	case p.leading && p.axis != tensor.NoAxis:
		answer.Shape = slices.Insert(lane.Clone(), 0, 1)
	}
	var err error
	if p.DType == tensor.Bytes {
		answer.Offsets, err = stringOffsets(answer.Tensor, lane, s.lanes)
		return answer, err
	}
	answer.Layout, err = statebuffer.LayoutOf(out.Shape, p.axis, p.DType)
	return answer, err
}
