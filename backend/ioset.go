package backend

import (
	"slices"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// ioBuffers are the batched tensors of an instance's inputs, outputs and generated inputs,
// each with room for the largest batch; those of varying size have as much as runs need.
type ioBuffers struct {
	memory                          statebuffer.Memory
	inputs, outputs, generated      []statebuffer.Block
	varyingInputs, varyingGenerated []statebuffer.Scratch
	zero                            statebuffer.Block // one element of any type, zero
}

// zeroElement is the size of the largest element, in bytes.
const zeroElement = 8

// ioSizes are the bytes of an instance's batched tensors, each for the largest
// batch. A state that is also an output has a tensor already.
func ioSizes(pl *plan.Plan) (inputs, outputs, generated []int64) {
	for i := range pl.Inputs {
		inputs = append(inputs, pl.Inputs[i].BatchBytes(pl.MaxLanes))
	}
	for i := range pl.Outputs {
		bytes := pl.Outputs[i].BatchBytes(pl.MaxLanes)
		if pl.Outputs[i].IsState {
			bytes = 0
		}
		outputs = append(outputs, bytes)
	}
	for i := range pl.Generated {
		generated = append(generated, pl.Generated[i].BatchBytes(pl.MaxLanes))
	}
	return inputs, outputs, generated
}

// ioBytes is how much memory newIOBuffers allocates.
func ioBytes(pl *plan.Plan) int64 {
	inputs, outputs, generated := ioSizes(pl)
	return statebuffer.SatAdd(slices.Concat(inputs, outputs, generated, []int64{zeroElement})...)
}

func newIOBuffers(pl *plan.Plan, memory statebuffer.Memory) (*ioBuffers, error) {
	b := &ioBuffers{memory: memory, varyingInputs: make([]statebuffer.Scratch, len(pl.Inputs)), varyingGenerated: make([]statebuffer.Scratch, len(pl.Generated))}
	var failed error
	alloc := func(name string, bytes int64) (block statebuffer.Block) {
		if bytes == 0 || failed != nil {
			return block
		}
		block, err := memory.Alloc(bytes)
		if err != nil {
			failed = status.Errorf(status.Internal, "allocating tensor %q for a batch of %d: %w", name, pl.MaxLanes, err)
		}
		return block
	}
	inputs, outputs, generated := ioSizes(pl)
	for i, bytes := range inputs {
		b.inputs = append(b.inputs, alloc(pl.Inputs[i].Name, bytes))
	}
	for i, bytes := range outputs {
		b.outputs = append(b.outputs, alloc(pl.Outputs[i].Name, bytes))
	}
	for i, bytes := range generated {
		b.generated = append(b.generated, alloc(pl.Generated[i].Name, bytes))
	}
	b.zero = alloc("zero", zeroElement)
	if failed != nil {
		b.free()
	}
	return b, failed
}

func (b *ioBuffers) free() {
	for _, blocks := range [][]statebuffer.Block{b.inputs, b.outputs, b.generated, {b.zero}} {
		for _, block := range blocks {
			if block.Size > 0 {
				b.memory.Free(block)
			}
		}
	}
	for _, all := range [][]statebuffer.Scratch{b.varyingInputs, b.varyingGenerated} {
		for i := range all {
			all[i].Free(b.memory)
		}
	}
	*b = ioBuffers{memory: b.memory}
}

// bytes is the size of the buffers before the first run.
func (b *ioBuffers) bytes() (n int64) {
	for _, blocks := range [][]statebuffer.Block{b.inputs, b.outputs, b.generated, {b.zero}} {
		for _, block := range blocks {
			n += block.Size
		}
	}
	return n
}

// forInput is the memory of an input whose size varies, for a run that is put together.
func (b *ioBuffers) forInput(i int, bytes int64) (statebuffer.Block, error) {
	return b.forRun(&b.varyingInputs[i], bytes)
}

// forGenerated is the same for a generated input.
func (b *ioBuffers) forGenerated(i int, bytes int64) (statebuffer.Block, error) {
	return b.forRun(&b.varyingGenerated[i], bytes)
}

func (b *ioBuffers) forRun(scratch *statebuffer.Scratch, bytes int64) (statebuffer.Block, error) {
	scratch.Begin(b.memory)
	if err := scratch.Reserve(b.memory, bytes); err != nil {
		return statebuffer.Block{}, status.Errorf(status.Internal, "allocating a tensor of %d bytes: %w", bytes, err)
	}
	return scratch.At(0, bytes), nil
}

// ioSet is everything about a run that depends only on its number of lanes and
// its shapes: the tensors to bind and where the answers are. It is made once
// for each number of lanes, or for each run of a model whose shapes vary.
type ioSet struct {
	lanes           int
	inputs, outputs []onnx.Tensor // in the order of the signature
	answers         []Output      // in the order of the instance's outputs
	in              []statebuffer.Block
	layouts         []statebuffer.Layout // of a lane of each input
	generated       []statebuffer.Block
	offset          int // of the outputs, in lanes: see placeOutputs
}

// ioSetFor is the ioSet for a run of that many lanes, whose requests have the
// shapes of the first.
func (in *Instance) ioSetFor(lanes int, first *Request) (*ioSet, error) {
	if s := in.ioSets[lanes]; s != nil {
		return s, nil
	}
	pl, n := in.plan, int64(lanes)
	sig := in.runner.Signature()
	s := &ioSet{
		lanes: lanes, inputs: make([]onnx.Tensor, len(sig.Inputs)), outputs: make([]onnx.Tensor, len(sig.Outputs)),
		answers: make([]Output, len(pl.Outputs)), in: make([]statebuffer.Block, len(pl.Inputs)), layouts: make([]statebuffer.Layout, len(pl.Inputs)),
	}
	for i := range pl.Inputs {
		if err := in.bindInput(s, i, first); err != nil {
			return nil, err
		}
	}
	for i := range pl.Generated {
		f := &pl.Generated[i]
		block := in.io.generated[i].At(0, batchBytes(f.Layout, f.Axis, n))
		s.generated = append(s.generated, block)
		s.inputs[f.Index] = onnx.Tensor{Data: block, DType: f.DType, Shape: f.Dims.With(f.Axis, n)}
	}
	for i := range pl.Outputs {
		p := &pl.Outputs[i]
		if p.IsState || p.Varies {
			s.outputs[p.Index].DType = p.DType
			continue
		}
		block := in.io.outputs[i].At(0, batchBytes(p.Layout, p.Axis, n))
		s.outputs[p.Index] = onnx.Tensor{Data: block, DType: p.DType, Shape: p.Dims.With(p.Axis, n)}
		s.answers[i] = Output{Tensor: block.Bytes, Layout: p.Layout, Lanes: lanes, Shape: p.Answer, Batched: p.BatchInFront}
	}
	for i := range pl.States {
		st := &pl.States[i]
		shape := st.Dims.With(st.Axis, n)
		s.inputs[st.In] = onnx.Tensor{DType: st.DType, Shape: shape}
		s.outputs[st.Out] = onnx.Tensor{DType: st.DType, Shape: shape}
	}
	if !pl.Varies {
		in.ioSets[lanes] = s
	}
	return s, nil
}

// batchBytes is the size of a tensor of n lanes; without a batch axis all lanes
// share one.
func batchBytes(l statebuffer.Layout, axis int, n int64) int64 {
	if axis == tensor.NoAxis {
		return l.LaneBytes()
	}
	return n * l.LaneBytes()
}

// bindInput lays out one input. Its extents are the configuration's, or where
// that leaves them open the request's.
func (in *Instance) bindInput(s *ioSet, i int, first *Request) (err error) {
	p, n := &in.plan.Inputs[i], int64(s.lanes)
	if first != nil && p.Varies && !first.Inputs[i].Present {
		return nil // the run leaves it out, and its shape is not known
	}
	dims, layout := p.Dims, p.Layout
	if p.Varies && first != nil {
		dims = modelDims(p, first.Inputs[i].Shape)
	}
	if p.Varies && p.DType != tensor.Bytes {
		if layout, err = statebuffer.LayoutOf(dims, p.Axis, p.DType); err != nil {
			return status.Errorf(status.InvalidArg, "input %q: %w", p.Name, err)
		}
		if s.in[i], err = in.io.forInput(i, batchBytes(layout, p.Axis, n)); err != nil {
			return err
		}
	}
	if !p.Varies { // strings are laid out when they are copied
		s.in[i] = in.io.inputs[i].At(0, batchBytes(layout, p.Axis, n))
	}
	s.layouts[i] = layout
	s.inputs[p.Index] = onnx.Tensor{Data: s.in[i], DType: p.DType, Shape: dims.With(p.Axis, n)}
	return nil
}

// bindStates binds the states where the store has put them.
func (s *ioSet) bindStates(pl *plan.Plan, step *statebuffer.Step) {
	for i := range pl.States {
		st := &pl.States[i]
		bytes := batchBytes(st.Layout, st.Axis, int64(s.lanes))
		s.inputs[st.In].Data = step.In[i].At(0, bytes)
		s.outputs[st.Out].Data = step.Out[i].At(0, bytes)
	}
	for i := range pl.Varying {
		st, io := &pl.Varying[i], &step.Varying[i]
		s.inputs[st.In] = onnx.Tensor{Data: io.In, DType: st.DType, Shape: io.InShape}
		s.outputs[st.Out] = onnx.Tensor{DType: st.DType}
	}
	for i := range pl.Outputs {
		switch p := &pl.Outputs[i]; {
		case p.IsState && p.State < len(pl.States):
			st := &pl.States[p.State]
			s.answers[i] = Output{Tensor: s.outputs[st.Out].Data.Bytes, Layout: st.Layout, Lanes: s.lanes, Shape: p.Answer, Batched: p.BatchInFront}
		case p.Varies && !p.IsState:
			s.outputs[p.Index] = onnx.Tensor{DType: p.DType}
		}
	}
}
