package runnertest

import (
	"errors"
	"fmt"
	"testing"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// Recurrence is a model over [time, batch] or [batch, time]: y is the running sum of x
// over time, and a state, if there is one, the sum so far.
type Recurrence struct {
	File
	Time    int    // the axis of time in x and y
	Least   int64  // how long x must be
	Divisor bool   // a last input that nothing may be divided by if it is 0
	Chance  *int64 // what is added to each y, from run to run another
}

// NewRecurrence returns a model with these tensors, as Tensors reads them. time is the axis
// of time in x and y.
func NewRecurrence(t *testing.T, inputs, outputs string, time int) *Recurrence {
	r := &Recurrence{Time: time}
	r.Sig = onnx.Signature{Inputs: Tensors(t, inputs), Outputs: Tensors(t, outputs)}
	r.Runs = r.Compute
	return r
}

// Compute runs the model: what Runs is unless a test replaces it.
func (r *Recurrence) Compute(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
	x := &inputs[0]
	frames, lanes := x.Shape[r.Time], x.Shape[1-r.Time]
	state := len(sig.Outputs) > 1
	switch {
	case frames < r.Least:
		return fmt.Errorf("%d frames are too few", frames)
	case state && inputs[1].Shape[0] != lanes:
		return errors.New("batches differ")
	case r.Divisor && Element(inputs[len(inputs)-1].Data.Bytes, inputs[len(inputs)-1].DType, 0) == 0:
		return errors.New("division by zero")
	}
	noise := 0.0
	if r.Chance != nil {
		*r.Chance++
		noise = float64(*r.Chance)
	}
	for i := range outputs {
		shape := tensor.Shape{lanes}
		if i == 0 {
			shape = x.Shape
		}
		Allocate(&outputs[i], shape...)
	}
	for lane := range lanes {
		sum := 0.0
		if state {
			sum = Element(inputs[1].Data.Bytes, x.DType, lane)
		}
		for frame := range frames {
			at := lane*frames + frame
			if r.Time == 0 {
				at = frame*lanes + lane
			}
			sum += Element(x.Data.Bytes, x.DType, at)
			SetElement(outputs[0].Data.Bytes, x.DType, at, sum+noise)
		}
		if state {
			SetElement(outputs[1].Data.Bytes, x.DType, lane, sum)
		}
	}
	return nil
}
