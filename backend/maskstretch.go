package backend

import (
	"errors"
	"fmt"

	"tritonstateful/internal/onnx"
)

// A sequence of thousands of steps takes a model long. In trials, states become long at once:
// the entries that a run has written are repeated, as if its step had brought as many more.

// stretchStates makes the states under masks longer by t.stretch, and the lengths that the
// step adds, from which positions follow. It changes outputs to memory that is valid until
// it is called again.
func (t *maskTrial) stretchStates(outputs []onnx.Tensor) error {
	if t.stretch == 0 {
		return nil
	}
	t.freeStretched()
	pl, lengths := t.in.plan, t.in.work.lengths
	longer := make([]bool, len(lengths))
	for _, i := range pl.Masks {
		m := pl.Generated[i].Mask
		if m.Length >= 0 && !longer[m.Length] {
			longer[m.Length], lengths[m.Length] = true, lengths[m.Length]+uint64(t.stretch)
		}
		for _, state := range m.Covers {
			s := &pl.Varying[state]
			if err := t.stretchState(&outputs[s.Out], s.TimeAxis); err != nil {
				return fmt.Errorf("state %q: a value that is longer by %d: %w", s.Input, t.stretch, err)
			}
		}
	}
	return nil
}

// stretchState repeats the entries of a state along an axis. Those that were written last
// stay the last.
func (t *maskTrial) stretchState(out *onnx.Tensor, axis int) error {
	held := out.Shape[axis]
	if held == 0 {
		return errors.New("there is nothing to repeat")
	}
	shape := out.Shape.With(axis, held+t.stretch)
	size, err := shape.Bytes(out.DType)
	if err != nil {
		return err
	}
	block, err := t.runner.Memory().Alloc(size)
	if err != nil {
		return err
	}
	t.stretched = append(t.stretched, block)
	entry := elements(shape[axis+1:]) * int64(out.DType.Size())
	from, to := out.Data.Bytes, block.Bytes
	for range elements(shape[:axis]) {
		for at := range t.stretch {
			copy(to[at*entry:], from[at%held*entry:][:entry])
		}
		copy(to[t.stretch*entry:], from[:held*entry])
		from, to = from[held*entry:], to[(held+t.stretch)*entry:]
	}
	out.Data, out.Shape = block, shape
	return nil
}

func (t *maskTrial) freeStretched() {
	for _, block := range t.stretched {
		t.runner.Memory().Free(block)
	}
	t.stretched = nil
}
