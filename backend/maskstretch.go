package backend

import (
	"encoding/binary"
	"errors"
	"fmt"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// A sequence of thousands of steps takes a model long. In trials, states become long at once:
// the last entries that a run has written are repeated, each with other numbers, as if its
// step had brought as many more.

// stretching is timed, and makes the sequences longer, by half as much under each further
// mask, so that masks differ. It makes as much longer all lengths that generated inputs follow
// from.
func (t *maskTrial) stretching(by int64, asks ...trialRequest) ([]trialAnswer, error) {
	t.runner.after = nil
	if by > 0 {
		t.runner.after = func(outputs []onnx.Tensor) error { return t.stretchStates(outputs, by) }
	}
	answers, err := t.timed(asks...)
	t.runner.after = nil
	t.freeStretched()
	if err != nil || by == 0 {
		return answers, err
	}
	for _, a := range asks {
		q := t.live(a.id)
		q.AddSteps(uint64(by))
		for i := range t.in.plan.Lengths {
			q.Add(i, uint64(by))
		}
	}
	return answers, nil
}

// stretchStates changes the states under masks among a run's outputs, to memory that is valid
// until freeStretched.
func (t *maskTrial) stretchStates(outputs []onnx.Tensor, by int64) error {
	pl := t.in.plan
	t.turn++
	for mask, i := range pl.Masks {
		for _, state := range pl.Generated[i].Mask.Covers {
			s := &pl.Varying[state]
			if err := t.stretchState(&outputs[s.Out], s, by>>mask); err != nil {
				return fmt.Errorf("state %q: a value that is longer by %d: %w", s.Input, by>>mask, err)
			}
		}
	}
	for i := range pl.States {
		s := &pl.States[i]
		if s.LaneBytes() == int64(s.DType.Size()) && (s.DType == tensor.Int32 || s.DType == tensor.Int64) {
			addToEach(outputs[s.Out].Data.Bytes, s.DType, by) // it may count
		}
	}
	return nil
}

// addToEach adds to each element of a tensor of integers.
func addToEach(data []byte, dtype tensor.DType, n int64) {
	for size := dtype.Size(); len(data) > 0; data = data[size:] {
		if dtype == tensor.Int32 {
			tensor.PutInt(data, dtype, n+int64(int32(binary.NativeEndian.Uint32(data))))
		} else {
			tensor.PutInt(data, dtype, n+int64(binary.NativeEndian.Uint64(data)))
		}
	}
}

// headFactors make the numbers at the beginning of a stretched state large, of one sign and of
// the other, in turns: padding moves the beginning away from position 0, and that must show
// even where attention goes to few entries only.
var headFactors = [2][4]float64{{16, -16, 16, -16}, {-16, 16, -16, 16}}

// stretchState makes a state longer: it repeats its last entries before them, in place of what
// was there. They are the same in all lanes, as lanes are.
func (t *maskTrial) stretchState(out *onnx.Tensor, s *plan.State, by int64) error {
	axis := s.TimeAxis
	held := out.Shape[axis]
	if held == 0 {
		return errors.New("there is nothing to repeat")
	}
	shape := out.Shape.With(axis, held+by)
	size, err := shape.Bytes(out.DType)
	if err != nil {
		return err
	}
	block, err := t.runner.Memory().Alloc(size)
	if err != nil {
		return err
	}
	t.stretched = append(t.stretched, block)
	last := min(held, lengthsByStep) // what steps have brought; all before is repeated
	first := held + by - last
	sources, factors := make([]int64, first), make([]float64, first)
	for at := range sources {
		sources[at], factors[at] = held-1-int64(at)%last, 0.25+1.5*t.rng.Float64()
	}
	head := headFactors[t.turn%2]
	for at := range min(int64(len(head)), first) {
		sources[at], factors[at] = held-1-(at/2)%last, head[at]
	}
	entry := elements(shape[axis+1:]) * int64(out.DType.Size())
	from, to := out.Data.Bytes, block.Bytes
	for range elements(shape[:axis]) {
		for at, source := range sources {
			part := to[int64(at)*entry:][:entry]
			copy(part, from[source*entry:])
			scale(part, out.DType, factors[at])
		}
		copy(to[first*entry:], from[(held-last)*entry:held*entry])
		from, to = from[held*entry:], to[(held+by)*entry:]
	}
	out.Data, out.Shape = block, shape
	return nil
}

// scale multiplies fractions; other numbers stay.
func scale(data []byte, dtype tensor.DType, factor float64) {
	if closeness[dtype] == 0 {
		return
	}
	for size := dtype.Size(); len(data) > 0; data = data[size:] {
		copy(data, tensor.FloatElement(factor*tensor.Float(data, dtype), dtype))
	}
}

// swapStates swaps the states under masks between the two lanes of a run.
func (t *maskTrial) swapStates(outputs []onnx.Tensor) error {
	pl := t.in.plan
	for _, i := range pl.Masks {
		for _, state := range pl.Generated[i].Mask.Covers {
			s := &pl.Varying[state]
			out := &outputs[s.Out]
			layout, err := statebuffer.LayoutOf(out.Shape, s.Axis, out.DType)
			if err != nil {
				return err
			}
			lanes := [2][]byte{make([]byte, layout.LaneBytes()), make([]byte, layout.LaneBytes())}
			for lane := range lanes {
				layout.TakeLane(lanes[lane], out.Data.Bytes, len(lanes), lane)
			}
			for lane := range lanes {
				layout.PutLane(out.Data.Bytes, len(lanes), lane, lanes[1-lane])
			}
		}
	}
	return nil
}

func (t *maskTrial) freeStretched() {
	for _, block := range t.stretched {
		t.runner.Memory().Free(block)
	}
	t.stretched = nil
}
