package planner

import (
	"encoding/binary"
	"fmt"
	"math"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// generated plans the controls, the constants and the derived inputs. Controls that
// the model has no input for are Triton's business only.
func (pl *planner) generated() {
	if pl.config.Sequence != nil {
		for i := range pl.config.Sequence.ControlInputs {
			input := &pl.config.Sequence.ControlInputs[i]
			at, control := onnx.TensorName(input.Name, pl.sig.Inputs), input.Effective()
			if at >= 0 && control != nil && pl.claim(pl.takenIn, at, input.Name, "the control "+control.Kind) {
				pl.control(input.Name, control, at)
				if len(input.Controls) > 1 {
					pl.warn("control_input %q has %d controls in one tensor: as in Triton, its value is that of %s alone, the last of START, END, READY and CORRID", input.Name, len(input.Controls), control.Kind)
				}
			}
		}
	}
	for _, a := range pl.params.Constants {
		pl.assigned("constant_inputs", a, pl.constant)
	}
	for _, a := range pl.params.Derived {
		pl.assigned("derived_inputs", a, pl.derived)
	}
}

// assigned plans one assignment of a parameter.
func (pl *planner) assigned(parameter string, a config.Assignment, fill func(*plan.Generated, *onnx.TensorInfo, string) error) {
	at := exactName(a.Name, pl.sig.Inputs)
	if at < 0 {
		pl.fault("parameter %s: %q is not an input of the model: its inputs are %s", parameter, a.Name, onnx.Names(pl.sig.Inputs))
		return
	}
	if !pl.claim(pl.takenIn, at, a.Name, "given by "+parameter) {
		return
	}
	info := &pl.sig.Inputs[at]
	f := plan.Generated{Name: a.Name, Index: at, DType: info.DType}
	if pl.hasNonsense(info) {
		return
	}
	if err := fill(&f, info, a.Value); err != nil {
		pl.fault("parameter %s: input %q: %w", parameter, a.Name, err)
		return
	}
	pl.plan.Generated = append(pl.plan.Generated, f)
}

// constant is VALUE, repeated for every element. Dynamic axes that are not the
// batch get the extent 1.
func (pl *planner) constant(f *plan.Generated, info *onnx.TensorInfo, text string) (err error) {
	f.Kind = plan.KindConstant
	if err = pl.generatedAxis(f, info); err != nil {
		return err
	}
	f.Dims = info.Dims.Clone()
	for i, d := range f.Dims {
		if d < 0 {
			f.Dims[i] = 1
		}
	}
	element, err := tensor.ParseElement(text, f.DType)
	if err != nil {
		return err
	}
	if f.Layout, err = statebuffer.LayoutOf(f.Dims, f.Axis, f.DType); err != nil {
		return err
	}
	f.Value[0], err = repeated(element, f.Dims.Without(f.Axis), f.DType)
	return err
}

func (pl *planner) control(name string, c *config.Control, at int) {
	info := &pl.sig.Inputs[at]
	f := plan.Generated{Name: name, Index: at, DType: info.DType}
	if pl.hasNonsense(info) {
		return
	}
	if err := pl.perLane(&f, info); err != nil {
		pl.fault("control input %q: %w", name, err)
		return
	}
	if err := controlValues(&f, c); err != nil {
		pl.fault("control input %q (%s): %w", name, c.Kind, err)
		return
	}
	pl.noteShared(&f)
	pl.plan.Generated = append(pl.plan.Generated, f)
}

// generatedAxis finds the batch axis of an input that the backend fills. batch_axes may
// name one that the model fixes, which takes no other number of lanes.
func (pl *planner) generatedAxis(f *plan.Generated, info *onnx.TensorInfo) (err error) {
	if f.Axis, f.AxisFrom, err = pl.inputAxis(f.Index); err != nil || f.Axis == tensor.NoAxis {
		return err
	}
	switch extent := info.Dims[f.Axis]; {
	case extent == 1:
		pl.fixedAtOne(f.Name)
	case extent >= 0:
		return fixedAxis(f.Axis, info)
	}
	return nil
}

// perLane checks that a tensor has one element for each lane, or for all of them.
func (pl *planner) perLane(f *plan.Generated, info *onnx.TensorInfo) error {
	if err := pl.generatedAxis(f, info); err != nil {
		return err
	}
	f.Dims = info.Dims.Clone()
	for i, d := range f.Dims {
		if i != f.Axis && d > 1 {
			return fmt.Errorf("its shape in the model is %v: want one element for each request, such as [-1] or [-1,1]", info.Dims)
		}
		f.Dims[i] = 1
	}
	f.Layout = statebuffer.Layout{Pieces: 1, PieceBytes: int64(info.DType.Size())}
	return nil
}

// checkIDType says why an input cannot be a correlation ID.
func checkIDType(dtype tensor.DType) error {
	switch dtype {
	case tensor.Uint64, tensor.Int64, tensor.Uint32, tensor.Int32, tensor.Bytes:
		return nil
	}
	return fmt.Errorf("the model's input is %v: want UINT64, INT64, UINT32, INT32 or STRING", dtype)
}

var controlKinds = map[string]plan.Kind{config.ControlStart: plan.KindStart, config.ControlEnd: plan.KindEnd, config.ControlReady: plan.KindReady, config.ControlCorrID: plan.KindID}

// controlValues are the bytes that stand for false and true. The model's type
// rules: a model made for NVIDIA's backend has a BOOL input where its
// configuration says int32_false_true.
func controlValues(f *plan.Generated, c *config.Control) error {
	kind, ok := controlKinds[c.Kind]
	if !ok {
		return fmt.Errorf("the kind is unknown")
	}
	f.Kind = kind
	if kind == plan.KindID {
		return checkIDType(f.DType)
	}
	for i := range f.Value {
		switch {
		case f.DType == tensor.Bool && len(c.BoolFalseTrue) == 2 && !c.BoolFalseTrue[i]:
			f.Value[i] = []byte{0}
		case f.DType == tensor.Bool && len(c.BoolFalseTrue) == 2:
			f.Value[i] = []byte{1}
		case f.DType == tensor.Bool:
			f.Value[i] = []byte{byte(i)}
		case f.DType == tensor.Int32 && len(c.Int32FalseTrue) == 2:
			f.Value[i] = binary.NativeEndian.AppendUint32(nil, uint32(c.Int32FalseTrue[i]))
		case f.DType == tensor.FP32 && len(c.FP32FalseTrue) == 2:
			f.Value[i] = binary.NativeEndian.AppendUint32(nil, math.Float32bits(c.FP32FalseTrue[i]))
		default:
			return fmt.Errorf("the model's input is %v: want BOOL, or INT32 with int32_false_true, or FP32 with fp32_false_true", f.DType)
		}
	}
	return nil
}
