package backend

import (
	"tritonstateful/statebuffer"
)

// ioBuffers are the batched tensors of an instance's inputs, outputs and
// controls, each with room for the largest batch.
type ioBuffers struct {
	inputs, outputs, controls []statebuffer.Block
	zero                      statebuffer.Block // one element of any type, zero
}

// zeroElement is the size of the largest element, in bytes.
const zeroElement = 8

func newIOBuffers(w *wiring, memory statebuffer.Memory, lanes int) (b ioBuffers, err error) {
	defer func() {
		if err != nil {
			b.free(memory)
		}
	}()
	alloc := func(name string, laneBytes int64) statebuffer.Block {
		if err != nil {
			return statebuffer.Block{}
		}
		block, e := memory.Alloc(int64(lanes) * laneBytes)
		if e != nil {
			err = Errorf(Internal, "allocating tensor %q for a batch of %d: %w", name, lanes, e)
		}
		return block
	}
	for i := range w.inputs {
		b.inputs = append(b.inputs, alloc(w.inputs[i].Name, w.inputs[i].RowBytes()))
	}
	for i := range w.outputs {
		b.outputs = append(b.outputs, alloc(w.outputs[i].Name, w.outputs[i].RowBytes()))
	}
	for i := range w.controls {
		b.controls = append(b.controls, alloc(w.controls[i].name, int64(w.controls[i].dtype.Size())))
	}
	b.zero = alloc("(zero element)", zeroElement)
	return b, err
}

func (b *ioBuffers) free(memory statebuffer.Memory) {
	for _, blocks := range [][]statebuffer.Block{b.inputs, b.outputs, b.controls, {b.zero}} {
		for _, block := range blocks {
			if block.Size > 0 {
				memory.Free(block)
			}
		}
	}
	*b = ioBuffers{}
}

// stage is everything about a run that depends only on its number of lanes: the
// tensors to bind and where the answers stand. It is made once for each number.
type stage struct {
	lanes           int
	inputs, outputs []Tensor // in the order of the signature
	answers         []Output // in the order of the instance's outputs
	in, controls    []statebuffer.Block
}

// stage is the stage for that many lanes.
func (in *Instance) stage(lanes int) *stage {
	if s := in.stages[lanes]; s != nil {
		return s
	}
	w, n := in.wiring, int64(lanes)
	sig := in.runner.Signature()
	s := &stage{lanes: lanes, inputs: make([]Tensor, len(sig.Inputs)), outputs: make([]Tensor, len(sig.Outputs))}
	for i := range w.inputs {
		p := &w.inputs[i]
		block := in.io.inputs[i].At(0, n*p.RowBytes())
		s.in = append(s.in, block)
		s.inputs[p.at] = Tensor{Data: block, DType: p.DType, Shape: p.dims.With(p.axis, n)}
	}
	for i := range w.controls {
		c := &w.controls[i]
		block := in.io.controls[i].At(0, n*int64(c.dtype.Size()))
		s.controls = append(s.controls, block)
		s.inputs[c.at] = Tensor{Data: block, DType: c.dtype, Shape: c.dims.With(c.axis, n)}
	}
	for i := range w.outputs {
		p := &w.outputs[i]
		block := in.io.outputs[i].At(0, n*p.RowBytes())
		s.outputs[p.at] = Tensor{Data: block, DType: p.DType, Shape: p.dims.With(p.axis, n)}
		s.answers = append(s.answers, Output{Tensor: block.Bytes, Layout: p.Layout, Lanes: lanes, Shape: p.answer})
	}
	for i := range w.states {
		st := &w.states[i]
		s.inputs[st.in] = Tensor{DType: st.dtype, Shape: st.dims[0].With(st.axis[0], n)}
		s.outputs[st.out] = Tensor{DType: st.dtype, Shape: st.dims[1].With(st.axis[1], n)}
	}
	in.stages[lanes] = s
	return s
}

// bindStates binds the states where the store has put them.
func (s *stage) bindStates(w *wiring, step *statebuffer.Step) {
	for i := range w.states {
		st := &w.states[i]
		bytes := int64(s.lanes) * st.RowBytes()
		s.inputs[st.in].Data = step.In[i].At(0, bytes)
		s.outputs[st.out].Data = step.Out[i].At(0, bytes)
	}
}

// clear makes inputs and controls of all lanes what a padding lane has.
func (s *stage) clear() {
	for _, blocks := range [][]statebuffer.Block{s.in, s.controls} {
		for _, b := range blocks {
			clear(b.Bytes)
		}
	}
}

// putLane copies one request's tensor into its lane.
func putLane(tensor []byte, l statebuffer.Layout, lanes, lane int, data []byte) {
	stride, at := int64(lanes)*l.RunBytes, int64(lane)*l.RunBytes
	if l.Runs == 1 {
		copy(tensor[at:at+l.RunBytes], data)
		return
	}
	for x := range l.Runs {
		copy(tensor[at+x*stride:][:l.RunBytes], data[x*l.RunBytes:])
	}
}

// clearLane zeroes one lane.
func clearLane(tensor []byte, l statebuffer.Layout, lanes, lane int) {
	stride, at := int64(lanes)*l.RunBytes, int64(lane)*l.RunBytes
	for x := range l.Runs {
		clear(tensor[at+x*stride:][:l.RunBytes])
	}
}

// check tells why a request's tensor is not what the port takes.
func (p *port) check(input *Input) error {
	switch {
	case !input.Present:
		return Errorf(InvalidArg, "input %q is missing", p.Name)
	case input.DType != p.DType:
		return Errorf(InvalidArg, "input %q is of type %v: want %v", p.Name, input.DType, p.DType)
	case !input.Shape.Equal(p.request):
		return Errorf(InvalidArg, "input %q has shape %v: want %v, for a request of a sequence is one step of one lane", p.Name, input.Shape, p.request)
	case int64(len(input.Data)) != p.RowBytes():
		return Errorf(InvalidArg, "input %q has %d bytes: want %d for shape %v of %v", p.Name, len(input.Data), p.RowBytes(), input.Shape, p.DType)
	}
	return nil
}
