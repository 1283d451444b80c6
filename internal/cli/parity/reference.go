package parity

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/cli/localserver"
	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// value is a tensor with memory of its own.
type value struct {
	dtype tensor.DType
	shape tensor.Shape
	data  []byte
}

// A reference is one sequence on ONNX Runtime, alone.
type reference struct {
	model  *offline.Model
	runner onnx.Runner
	id     uint64
	states []value // of the plan: States, then Varying
	steps  int64
	totals []int64 // of plan.Lengths
}

func newReference(m *offline.Model, r onnx.Runner, id uint64) (*reference, error) {
	ref := &reference{model: m, runner: r, id: id, totals: make([]int64, len(m.Plan.Lengths))}
	for i := range len(m.Plan.States) + len(m.Plan.Varying) {
		s := m.Plan.StateAt(i)
		bytes, err := s.Shape.Bytes(s.DType)
		if err != nil {
			return nil, fmt.Errorf("state %q: %w", s.Input, err)
		}
		begin := value{s.DType, s.Shape, make([]byte, bytes)}
		copy(begin.data, s.Value)
		ref.states = append(ref.states, begin)
	}
	return ref, nil
}

// step runs one step with these inputs, in the order of plan.Inputs and with the model's shapes, and returns the outputs in
// the order of plan.Outputs.
func (ref *reference) step(inputs []value, start, end bool) ([]localserver.Output, error) {
	pl, sig := ref.model.Plan, ref.model.Signature
	feeds, results := make([]value, len(sig.Inputs)), make([]onnx.Tensor, len(sig.Outputs))
	for i := range pl.Inputs {
		feeds[pl.Inputs[i].Index] = inputs[i]
	}
	extents := make([]int64, len(pl.Lengths))
	for i := range pl.Lengths {
		if l := &pl.Lengths[i]; !l.IsOutput {
			extents[i] = inputs[l.Input].shape[l.Axis]
		}
	}
	for i := range pl.Generated {
		feeds[pl.Generated[i].Index] = ref.generated(&pl.Generated[i], extents, start, end)
	}
	for i := range ref.states {
		s := pl.StateAt(i)
		feeds[s.In] = ref.states[i]
		results[s.Out].DType = s.DType
	}
	for i := range pl.Outputs {
		results[pl.Outputs[i].Index].DType = pl.Outputs[i].DType
	}
	for i := range pl.Lengths {
		if l := &pl.Lengths[i]; l.IsOutput {
			results[l.Index].DType = sig.Outputs[l.Index].DType
		}
	}
	free, err := ref.run(feeds, results)
	defer free()
	if err != nil {
		return nil, err
	}
	if err := ref.checkShapes(results); err != nil {
		return nil, err
	}
	outputs := make([]localserver.Output, len(pl.Outputs))
	for i := range pl.Outputs {
		out := &results[pl.Outputs[i].Index]
		outputs[i] = localserver.Output{Shape: out.Shape.Clone(), Data: bytes.Clone(out.Data.Bytes)}
	}
	for i := range pl.Lengths {
		if l := &pl.Lengths[i]; l.IsOutput {
			extents[i] = results[l.Index].Shape[l.Axis]
		}
		ref.totals[i] += extents[i]
	}
	for i := range ref.states {
		s := pl.StateAt(i)
		ref.states[i] = updated(s, ref.states[i], value{s.DType, results[s.Out].Shape.Clone(), bytes.Clone(results[s.Out].Data.Bytes)})
	}
	ref.steps++
	return outputs, nil
}

// run runs the model. The outputs are valid until free is called.
func (ref *reference) run(feeds []value, results []onnx.Tensor) (free func(), err error) {
	memory := ref.runner.Memory()
	var blocks []statebuffer.Block
	free = func() {
		for _, b := range blocks {
			memory.Free(b)
		}
	}
	inputs := make([]onnx.Tensor, len(feeds))
	for i := range feeds {
		f := &feeds[i]
		if f.dtype == tensor.Invalid {
			continue // the model has a default for it
		}
		block, err := memory.Alloc(int64(len(f.data)))
		if err != nil {
			return free, err
		}
		blocks = append(blocks, block)
		copy(block.Bytes, f.data)
		inputs[i] = onnx.Tensor{Data: block.At(0, int64(len(f.data))), DType: f.dtype, Shape: f.shape}
	}
	return free, onnx.Probe(ref.runner, inputs, results)
}

// checkShapes makes sure that the model has computed one lane: what was made up may have been stretched to more.
func (ref *reference) checkShapes(results []onnx.Tensor) error {
	pl := ref.model.Plan
	for i := range ref.states {
		s := pl.StateAt(i)
		shape := results[s.Out].Shape
		for axis, want := range s.Dims.With(s.Axis, 1) {
			appended := s.Update == statebuffer.Append && axis == s.AppendAxis
			if want >= 0 && axis < len(shape) && shape[axis] != want && !appended && len(results[s.Out].Data.Bytes) > 0 {
				return fmt.Errorf("output %q has the shape %v: want %v", s.Output, shape, s.Dims.With(s.Axis, 1))
			}
		}
	}
	for i := range pl.Outputs {
		p := &pl.Outputs[i]
		if shape := results[p.Index].Shape; p.LanesAxis != tensor.NoAxis && p.LanesAxis < len(shape) && shape[p.LanesAxis] != 1 {
			return fmt.Errorf("output %q has the shape %v: want 1 at axis %d, the batch", p.Name, shape, p.LanesAxis)
		}
	}
	return nil
}

// updated is what a state is after a step.
func updated(s *plan.State, before, written value) value {
	switch {
	case s.Update == statebuffer.KeepIfEmpty && len(written.data) == 0:
		return before
	case s.Update == statebuffer.Append:
		return joined(before, written, s.AppendAxis)
	default:
		return written
	}
}

// joined is b after a, along an axis.
func joined(a, b value, axis int) value {
	outer := int64(1)
	for _, extent := range a.shape[:axis] {
		outer *= extent
	}
	var data []byte
	sizeA, sizeB := int64(len(a.data)), int64(len(b.data))
	for i := range outer {
		data = append(data, a.data[i*sizeA/outer:(i+1)*sizeA/outer]...)
		data = append(data, b.data[i*sizeB/outer:(i+1)*sizeB/outer]...)
	}
	return value{a.dtype, a.shape.With(axis, a.shape[axis]+b.shape[axis]), data}
}

// generated is an input that the backend writes, for one lane.
func (ref *reference) generated(g *plan.Generated, extents []int64, start, end bool) value {
	shape := g.Dims.With(g.Axis, 1)
	number := func(n int64) value {
		to := make([]byte, g.DType.Size())
		tensor.PutInt(to, g.DType, n)
		return value{g.DType, shape, to}
	}
	switch g.Kind {
	case plan.KindStart:
		return value{g.DType, shape, g.Flag(start)}
	case plan.KindEnd:
		return value{g.DType, shape, g.Flag(end)}
	case plan.KindReady:
		return value{g.DType, shape, g.Flag(true)}
	case plan.KindConstant:
		return value{g.DType, shape, g.Value[0]}
	case plan.KindID:
		if g.DType == tensor.Bytes {
			text := strconv.FormatUint(ref.id, 10)
			return value{g.DType, shape, append(binary.NativeEndian.AppendUint32(nil, uint32(len(text))), text...)}
		}
		return number(int64(ref.id))
	case plan.KindSteps:
		return number(g.Plus + ref.steps)
	case plan.KindLengthBefore:
		return number(g.Plus + ref.totals[g.Length])
	case plan.KindLengthAfter:
		return number(g.Plus + ref.totals[g.Length] + extents[g.Length])
	case plan.KindPositions:
		shape[g.LengthAxis] = extents[g.Length]
		var data []byte
		for i := range extents[g.Length] {
			data = append(data, number(g.Plus+ref.totals[g.Length]+i).data...)
		}
		return value{g.DType, shape, data}
	default: // a mask that hides nothing
		covered := len(ref.model.Plan.States) + g.Mask.Covers[0]
		length := ref.states[covered].shape[ref.model.Plan.StateAt(covered).TimeAxis]
		if g.Mask.Length >= 0 {
			length += extents[g.Mask.Length]
		}
		shape[g.Mask.Axis] = length
		return value{g.DType, shape, bytes.Repeat(g.Flag(true), int(length))}
	}
}

// extentOf is the extent that an axis of a state has now, by the name of the axis in the model.
func (ref *reference) extentOf(symbol string) (int64, bool) {
	for i := range ref.states {
		s := ref.model.Plan.StateAt(i)
		if axis := slices.Index(ref.model.Signature.Inputs[s.In].Symbols, symbol); axis >= 0 && axis != s.Axis && symbol != "" {
			return ref.states[i].shape[axis], true
		}
	}
	return 0, false
}
