package backend

import (
	"errors"
	"fmt"
	"testing"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnx/runnertest"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// recurrence is a model over [time, batch] or [batch, time]: y is the running sum of x
// over time, and a state, if there is one, the sum so far.
type recurrence struct {
	runnertest.File
	time    int    // the axis of time in x and y
	least   int64  // how long x must be
	divisor bool   // a last input that nothing may be divided by if it is 0
	chance  *int64 // what is added to each y, from run to run another
}

func newRecurrence(t *testing.T, inputs, outputs string, time int) *recurrence {
	r := &recurrence{time: time}
	r.Sig = onnx.Signature{Inputs: runnertest.Tensors(t, inputs), Outputs: runnertest.Tensors(t, outputs)}
	r.Runs = r.run
	return r
}

func (r *recurrence) run(sig *onnx.Signature, inputs, outputs []onnx.Tensor) error {
	x := &inputs[0]
	frames, lanes := x.Shape[r.time], x.Shape[1-r.time]
	state := len(sig.Outputs) > 1
	switch {
	case frames < r.least:
		return fmt.Errorf("%d frames are too few", frames)
	case state && inputs[1].Shape[0] != lanes:
		return errors.New("batches differ")
	case r.divisor && element(inputs[len(inputs)-1].Data.Bytes, inputs[len(inputs)-1].DType, 0) == 0:
		return errors.New("division by zero")
	}
	noise := 0.0
	if r.chance != nil {
		*r.chance++
		noise = float64(*r.chance)
	}
	for i := range outputs {
		shape := tensor.Shape{lanes}
		if i == 0 {
			shape = x.Shape.Clone()
		}
		bytes, _ := shape.Bytes(sig.Outputs[i].DType)
		outputs[i].Shape, outputs[i].Data = shape, statebuffer.Block{Bytes: make([]byte, bytes), Size: bytes}
	}
	for lane := range lanes {
		sum := 0.0
		if state {
			sum = element(inputs[1].Data.Bytes, x.DType, lane)
		}
		for frame := range frames {
			at := lane*frames + frame
			if r.time == 0 {
				at = frame*lanes + lane
			}
			sum += element(x.Data.Bytes, x.DType, at)
			setElement(outputs[0].Data.Bytes, x.DType, at, sum+noise)
		}
		if state {
			setElement(outputs[1].Data.Bytes, x.DType, lane, sum)
		}
	}
	return nil
}
