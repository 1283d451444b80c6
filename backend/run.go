package backend

import (
	"slices"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// run runs the model.
func (e *execution) run() {
	if e.phase != gathered {
		return
	}
	start := e.timings.last
	e.in.meter.ran(len(e.lanes), e.ioSet.lanes)
	err := e.infer()
	e.timings.add(&e.timings.run, e.in.server().Clock())
	switch {
	case err == nil:
		e.phase = ran
		e.in.splitter.ran(e.ioSet.lanes, e.timings.last-start)
	case !e.retryable(err):
		e.failRun(inferring(err))
	case len(e.members) > 1:
		e.in.meter.failedRuns++
		e.retryHalves()
	default:
		e.noteFailure()
		e.failRun(inferring(err))
	}
	if e.timing.ComputeStart == 0 {
		e.timing.ComputeStart = start
	}
	e.timing.ComputeEnd = e.timings.last
}

// infer runs the model, and notes what it has allocated.
func (e *execution) infer() error {
	in, s := e.in, e.ioSet
	if in.device != nil && in.plan.Varies {
		return e.inferVarying()
	}
	if err := in.runner.Run(s.inputs, s.outputs); err != nil {
		return err
	}
	return s.takeOutputs(in.plan, e.step)
}

// inferVarying is infer on a GPU where shapes vary. Those of the answers are known
// once the run is in the stream; only then can the server be asked where they are to go.
func (e *execution) inferVarying() (err error) {
	in, s := e.in, e.ioSet
	defer func() {
		if failed := in.device.Wait(); err == nil {
			err = failed
		}
	}()
	if err := in.device.Submit(s.inputs, s.outputs); err != nil {
		return err
	}
	if err := s.takeOutputs(in.plan, e.step); err != nil {
		return err
	}
	return e.reserve()
}

// reserve asks where the answers of a run on a GPU are to go, so that the run itself
// puts them there, or copies them to the host: then nothing is waited for twice.
func (e *execution) reserve() error {
	in, s := e.in, e.ioSet
	for i := range in.plan.Outputs {
		if p := &in.plan.Outputs[i]; p.IsState || p.Varies {
			bytes, err := in.device.CopyOut(s.outputs[p.Index].Data)
			if err != nil {
				return status.Errorf(status.Internal, "output %q: %w", p.Name, err)
			}
			s.answers[i].Tensor = bytes
		}
	}
	for _, m := range e.members {
		for i, to := range e.batch.Reserve(m.req, s.answers, m.firstLane, m.lanes) {
			if to != 0 {
				in.copyOutTo(s.outputs[in.plan.Outputs[i].Index].Data, &s.answers[i], m.firstLane, m.lanes, to)
			}
		}
	}
	return nil
}

// takeOutputs notes what the run has allocated by itself: states and outputs of
// varying shape.
func (s *ioSet) takeOutputs(pl *plan.Plan, step *statebuffer.Step) error {
	for _, i := range pl.ZeroSized {
		st := &pl.States[i]
		if err := checkWrittenState(st, s.outputs[st.Out].Shape, s.lanes); err != nil {
			return err
		}
	}
	for i := range pl.Varying {
		out := &s.outputs[pl.Varying[i].Out]
		step.Varying[i].Out, step.Varying[i].OutShape = out.Data, out.Shape
	}
	for i := range pl.Outputs {
		p := &pl.Outputs[i]
		if !p.Varies && (!p.IsState || p.State < len(pl.States)) {
			continue
		}
		answer, err := s.varyingAnswer(p, &s.outputs[p.Index])
		if err != nil {
			return err
		}
		s.answers[i] = answer
	}
	return nil
}

// measureOutputs notes the lengths of what the run has written.
func (e *execution) measureOutputs() {
	for i := range e.in.plan.Lengths {
		if l := &e.in.plan.Lengths[i]; l.IsOutput {
			e.lengths[i] = uint64(e.ioSet.outputs[l.Index].Shape[l.Axis])
		}
	}
}

// varyingAnswer describes an output whose shape the run has decided.
func (s *ioSet) varyingAnswer(p *plan.IO, out *onnx.Tensor) (Output, error) {
	if err := checkWritten(p, out.Shape, s.lanes); err != nil {
		return Output{}, err
	}
	answer := Output{Tensor: out.Data.Bytes, Lanes: s.lanes, Batched: p.BatchInFront}
	lane := out.Shape.Without(p.Axis)
	answer.Shape = out.Shape.With(p.Axis, 1)
	switch {
	case len(p.Answer) > len(p.Dims): // the batch is in front of all axes that the model has
		answer.Shape = slices.Insert(answer.Shape.Clone(), 0, 1)
	case p.BatchInFront && p.Axis != tensor.NoAxis:
		answer.Shape = slices.Insert(lane.Clone(), 0, 1)
	}
	var err error
	if p.DType == tensor.Bytes {
		answer.Offsets, err = stringOffsets(answer.Tensor, lane, s.lanes)
		return answer, err
	}
	answer.Layout, err = statebuffer.LayoutOf(out.Shape, p.Axis, p.DType)
	return answer, err
}

// checkWritten says why an output that the run has allocated is no answer to its lanes. It
// may be a value in one of them that makes it so: then the run is retried in
// halves, as where the model itself refuses a value.
func checkWritten(p *plan.IO, shape tensor.Shape, lanes int) error {
	switch {
	case len(shape) == len(p.Dims) && (p.LanesAxis == tensor.NoAxis || shape[p.LanesAxis] == int64(lanes)):
		return nil
	case p.LanesAxis == tensor.NoAxis:
		return status.Errorf(status.Internal, "output %q: the model wrote shape %v for %d lanes: want rank %d", p.Name, shape, lanes, len(p.Dims))
	default:
		return status.Errorf(status.Internal, "output %q: the model wrote shape %v for %d lanes: want rank %d with the batch at axis %d", p.Name, shape, lanes, len(p.Dims), p.LanesAxis)
	}
}

// checkWrittenState says why what a run has written is not the next value of a state of no
// elements, which is not bound.
func checkWrittenState(st *plan.State, shape tensor.Shape, lanes int) error {
	if want := st.Dims.With(st.Axis, int64(lanes)); !shape.Equal(want) {
		return status.Errorf(status.Internal, "state %q: the model wrote shape %v for %d lanes: want %v, because that is what the next step can read", st.Input, shape, lanes, want)
	}
	return nil
}
