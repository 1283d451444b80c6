package backend

import (
	"fmt"
	"strings"

	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// positions is positions(INPUT): where in its sequence each element of a step's part of
// an input stands. It has as many numbers as the input is long, which go on where those
// of the step before have ended.
func (w *wirer) positions(f *fillWire, info *TensorInfo, argument string) (err error) {
	f.kind = fillPositions
	if f.dtype != tensor.Int64 && f.dtype != tensor.Int32 {
		return fmt.Errorf("it is of type %v: want INT64 or INT32 for positions", f.dtype)
	}
	if err := w.fillAxis(f, info); err != nil {
		return err
	}
	if f.along, err = lengthAxis(f, info); err != nil {
		return err
	}
	argument, ok := strings.CutSuffix(strings.TrimSpace(argument), ")")
	if !ok {
		return fmt.Errorf("positions(%s has no closing parenthesis", argument)
	}
	f.source, err = w.lengthOf(argument)
	w.wiring.varies = true
	return err
}

// lengthAxis is the one open axis of an input that the backend fills, after its batch if it
// has one; all others have the extent 1.
func lengthAxis(f *fillWire, info *TensorInfo) (axis int, err error) {
	axis, f.dims = noAxis, info.Dims.Clone()
	for i, d := range f.dims {
		switch {
		case i == f.axis:
		case d < 0 && axis == noAxis:
			axis = i
		case d != 1:
			return noAxis, errLengthAxis(info)
		}
	}
	if axis == noAxis || axis < f.axis {
		return noAxis, errLengthAxis(info)
	}
	return axis, nil
}

func errLengthAxis(info *TensorInfo) error {
	return fmt.Errorf("its shape in the model is %v: want a batch axis and after it one dynamic axis, such as [-1,-1]", info.Dims)
}

// putPositions writes the positions of a step.
func (x *execution) putPositions(i int) error {
	f := &x.in.wiring.fills[i]
	lanes := int64(1)
	if f.axis != noAxis {
		lanes = int64(x.stage.lanes)
	}
	length := int64(x.lengths[f.source])
	shape := batched(f.dims, f.axis, lanes).With(f.along, length)
	bytes, err := shape.Bytes(f.dtype)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the positions: %w", f.name, err)
	}
	block, err := x.in.io.forFill(i, bytes)
	if err != nil {
		return status.Errorf(status.Internal, "input %q: the positions: %w", f.name, err)
	}
	to := block.Bytes
	for lane := range lanes {
		var q *statebuffer.Sequence
		if lane < int64(len(x.lanes)) {
			q = x.lanes[lane].Sequence
		}
		for at := range length {
			putInt(to, f.dtype, f.plus+f.before(q)+at)
			to = to[f.dtype.Size():]
		}
	}
	x.stage.inputs[f.at] = Tensor{Data: block, DType: f.dtype, Shape: shape}
	return nil
}

// fillMost bounds the bytes of a mask or of positions for one sequence. How long they are
// follows from what a request says of its shape, which may be anything where it brings no
// data.
const fillMost = 64 << 20

// checkPositions tells why there can be no positions for a request.
func (in *Instance) checkPositions(r *Request) error {
	for i := range in.wiring.fills {
		f := &in.wiring.fills[i]
		if f.kind != fillPositions {
			continue
		}
		length := in.extent(r, &in.wiring.lengths[f.source])
		if most := fillMost / int64(f.dtype.Size()); length > most {
			return status.Errorf(status.InvalidArg, "input %q: positions of %d elements of input %q: want at most %d; send less in a request", f.name, length, in.wiring.lengths[f.source].name, most)
		}
	}
	return nil
}
