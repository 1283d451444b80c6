package backend

import (
	"fmt"

	"tritonstateful/internal/tensor"
)

// gather fills the tensors of the run: the inputs of requests, generated inputs and states.
func (e *execution) gather() {
	in := e.in
	in.verbosity.batch(len(e.members))
	in.arranger.arrange(e)
	if in.device != nil {
		in.device.Begin()
	}
	var err error
	first := e.firstRequest()
	e.ioSet, err = in.ioSetFor(in.lanesWithPadding(in.splitter.lanesFor(len(e.lanes), in.plan.MaxLanes)), first)
	if err == nil {
		e.measureLengths(first)
		e.placeOutputs()
		err = e.putInputs()
	}
	if err == nil {
		err = e.writeGenerated()
	}
	if err != nil {
		e.failRun(err)
		return
	}
	e.timings.add(&e.timings.input, in.server().Clock())
	step, err := in.store.Gather(e.lanes, e.ioSet.lanes)
	if err != nil {
		e.failRun(fmt.Errorf("gathering the states: %w", err))
		return
	}
	e.step, e.phase = step, gathered
	e.ioSet.bindStates(in.plan, e.step)
	if in.device != nil && !in.plan.Varies {
		if err := e.reserve(); err != nil {
			e.failRun(err)
			return
		}
	}
	e.timings.add(&e.timings.gather, in.server().Clock())
}

// firstRequest is the request of the first lane.
func (e *execution) firstRequest() *Request { return &e.requests[e.members[0].req] }

// measureLengths notes the lengths that the inputs have in the run, whose ioSet is there. An input
// that its requests leave out has length 0; first is nil while warming up.
func (e *execution) measureLengths(first *Request) {
	pl := e.in.plan
	e.lengths = e.lengths[:0]
	for i := range pl.Lengths {
		l, length := &pl.Lengths[i], uint64(0)
		if !l.IsOutput && (first == nil || first.Inputs[l.Input].Present) {
			length = uint64(e.ioSet.inputs[l.Index].Shape[l.Axis])
		}
		e.lengths = append(e.lengths, length)
	}
}

// placeOutputs binds the outputs of the run after those of the runs whose answers
// wait.
func (e *execution) placeOutputs() {
	s, pl := e.ioSet, e.in.plan
	if s.offset == e.waitingLanes {
		return
	}
	s.offset = e.waitingLanes
	for i := range pl.Outputs {
		p := &pl.Outputs[i]
		s.outputs[p.Index].Data = e.in.io.outputs[i].At(int64(s.offset)*p.LaneBytes(), int64(s.lanes)*p.LaneBytes())
	}
}

// putInputs copies the requests' inputs to their lanes. Padding lanes get those of the first
// lane: a model may not run with zeros.
func (e *execution) putInputs() error {
	s, pl := e.ioSet, e.in.plan
	for i := range pl.Inputs {
		p := &pl.Inputs[i]
		first := &e.firstRequest().Inputs[i]
		if !first.Present {
			s.inputs[p.Index].DType = tensor.Invalid
			continue
		}
		s.inputs[p.Index].DType = p.DType
		switch {
		case p.DType == tensor.Bytes:
			if err := e.putStrings(i); err != nil {
				return err
			}
			continue
		case p.Axis == tensor.NoAxis:
			copy(s.in[i].Bytes, sharedContent(p, first))
			continue
		}
		for _, m := range e.members {
			e.putInput(i, m.firstLane, &e.requests[m.req].Inputs[i])
		}
		for lane := len(e.lanes); lane < s.lanes; lane++ {
			e.putPadding(i, lane, first)
		}
	}
	return nil
}

// putInput copies one request's input to its lanes.
func (e *execution) putInput(i, lane int, input *Input) {
	s, layout := e.ioSet, e.ioSet.layouts[i]
	if input.Device != 0 {
		for done := int64(0); done < input.Size; done += layout.LaneBytes() {
			e.in.copyInFrom(s.in[i], layout, s.lanes, lane, input.Device+uint64(done))
			lane++
		}
		return
	}
	for data := input.Data; len(data) > 0; lane++ {
		layout.PutLane(s.in[i].Bytes, s.lanes, lane, data)
		data = data[layout.LaneBytes():]
	}
}

// putPadding copies the first lane of a request's input to a padding lane.
func (e *execution) putPadding(i, lane int, input *Input) {
	s, layout := e.ioSet, e.ioSet.layouts[i]
	switch {
	case layout.LaneBytes() == 0:
	case input.Device != 0:
		e.in.copyInFrom(s.in[i], layout, s.lanes, lane, input.Device)
	default:
		layout.PutLane(s.in[i].Bytes, s.lanes, lane, input.Data)
	}
}

// putStrings joins the requests' strings; a padding lane gets the first one's.
func (e *execution) putStrings(i int) error {
	s, p := e.ioSet, &e.in.plan.Inputs[i]
	members := e.members
	if p.Axis == tensor.NoAxis {
		members = members[:1]
	}
	first := e.firstStrings(i)
	size, padding := int64(0), 0
	for _, m := range members {
		size += int64(len(e.requests[m.req].Inputs[i].Data))
	}
	if p.Axis != tensor.NoAxis {
		padding = s.lanes - len(e.lanes)
	}
	size += int64(padding * len(first))
	block, err := e.in.io.forInput(i, size)
	if err != nil {
		return err
	}
	to := block.Bytes
	for _, m := range members {
		to = to[copy(to, e.requests[m.req].Inputs[i].Data):]
	}
	for range padding {
		to = to[copy(to, first):]
	}
	s.inputs[p.Index].Data = block
	return nil
}

// firstStrings are the strings of the run's first lane, which may be one of several of the
// first request.
func (e *execution) firstStrings(i int) []byte {
	input := &e.firstRequest().Inputs[i]
	if lanes := e.members[0].lanes; lanes > 1 {
		elements, _ := input.Shape.Elements() // check has counted them
		return input.Data[:stringsEnd(input.Data, elements/int64(lanes))]
	}
	return input.Data
}
