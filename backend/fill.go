package backend

import (
	"encoding/binary"
	"fmt"
	"math"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// fills wires the controls, the constants and the derived inputs. Controls that
// the model has no input for are Triton's business only.
func (w *wirer) fills() {
	if w.config.Sequence != nil {
		for i := range w.config.Sequence.ControlInputs {
			c := &w.config.Sequence.ControlInputs[i]
			at, control := onnx.TensorName(c.Name, w.sig.Inputs), c.Effective()
			if at >= 0 && control != nil && w.claim(w.takenIn, at, c.Name, "the control "+control.Kind) {
				w.control(c.Name, control, at)
				if len(c.Controls) > 1 {
					w.warn("control_input %q has %d controls in one tensor: as in Triton, its value is that of %s alone, the last of START, END, READY and CORRID", c.Name, len(c.Controls), control.Kind)
				}
			}
		}
	}
	for _, a := range w.params.Constants {
		w.filled("constant_inputs", a, w.constant)
	}
	for _, a := range w.params.Derived {
		w.filled("derived_inputs", a, w.derived)
	}
}

// filled wires one assignment of a parameter.
func (w *wirer) filled(parameter string, a config.Assignment, fill func(*fillWire, *onnx.TensorInfo, string) error) {
	at := exactName(a.Name, w.sig.Inputs)
	if at < 0 {
		w.fault("parameter %s: %q is not an input of the model: its inputs are %s", parameter, a.Name, onnx.Names(w.sig.Inputs))
		return
	}
	if !w.claim(w.takenIn, at, a.Name, "given by "+parameter) {
		return
	}
	info := &w.sig.Inputs[at]
	f := fillWire{name: a.Name, at: at, dtype: info.DType}
	if err := fill(&f, info, a.Value); err != nil {
		w.fault("parameter %s: input %q: %w", parameter, a.Name, err)
		return
	}
	w.wiring.fills = append(w.wiring.fills, f)
}

// constant is VALUE, repeated for every element. Dynamic axes that are not the
// batch get the extent 1.
func (w *wirer) constant(f *fillWire, info *onnx.TensorInfo, text string) (err error) {
	f.kind = fillConstant
	if err = w.fillAxis(f, info); err != nil {
		return err
	}
	f.dims = info.Dims.Clone()
	for i, d := range f.dims {
		if d < 0 {
			f.dims[i] = 1
		}
	}
	element, err := parseElement(text, f.dtype)
	if err != nil {
		return err
	}
	if f.Layout, err = statebuffer.LayoutOf(f.dims, f.axis, f.dtype); err != nil {
		return err
	}
	f.value[0], err = repeated(element, f.dims.Without(f.axis), f.dtype)
	return err
}

func (w *wirer) control(name string, c *config.Control, at int) {
	info := &w.sig.Inputs[at]
	f := fillWire{name: name, at: at, dtype: info.DType}
	if err := w.perLane(&f, info); err != nil {
		w.fault("control input %q: %w", name, err)
		return
	}
	if err := controlValues(&f, c); err != nil {
		w.fault("control input %q (%s): %w", name, c.Kind, err)
		return
	}
	w.forAll(&f)
	w.wiring.fills = append(w.wiring.fills, f)
}

// fillAxis finds the batch axis of an input that the backend fills. batch_axes may
// name one that the model fixes, which takes no other number of lanes.
func (w *wirer) fillAxis(f *fillWire, info *onnx.TensorInfo) (err error) {
	if f.axis, _, err = w.inputAxis(f.at); err != nil || f.axis == tensor.NoAxis {
		return err
	}
	switch extent := info.Dims[f.axis]; {
	case extent == 1:
		w.fixedAtOne(f.name)
	case extent >= 0:
		return fixedAxis(f.axis, info)
	}
	return nil
}

// perLane checks that a tensor has one element for each lane, or for all of them.
func (w *wirer) perLane(f *fillWire, info *onnx.TensorInfo) error {
	if err := w.fillAxis(f, info); err != nil {
		return err
	}
	f.dims = info.Dims.Clone()
	for i, d := range f.dims {
		if i != f.axis && d > 1 {
			return fmt.Errorf("its shape in the model is %v: want one element for each request, such as [-1] or [-1,1]", info.Dims)
		}
		f.dims[i] = 1
	}
	f.Layout = statebuffer.Layout{Pieces: 1, PieceBytes: int64(info.DType.Size())}
	return nil
}

var controlKinds = map[string]fillKind{config.ControlStart: fillStart, config.ControlEnd: fillEnd, config.ControlReady: fillReady, config.ControlCorrID: fillID}

// controlValues are the bytes that stand for false and true. The model's type
// rules: a model made for NVIDIA's backend has a BOOL input where its
// configuration says int32_false_true.
func controlValues(f *fillWire, c *config.Control) error {
	kind, ok := controlKinds[c.Kind]
	if !ok {
		return fmt.Errorf("the kind is unknown")
	}
	f.kind = kind
	if kind == fillID {
		switch f.dtype {
		case tensor.Uint64, tensor.Int64, tensor.Uint32, tensor.Int32, tensor.Bytes:
			return nil
		}
		return fmt.Errorf("the model's input is %v: want UINT64, INT64, UINT32, INT32 or STRING", f.dtype)
	}
	for i := range f.value {
		switch {
		case f.dtype == tensor.Bool && len(c.BoolFalseTrue) == 2 && !c.BoolFalseTrue[i]:
			f.value[i] = []byte{0}
		case f.dtype == tensor.Bool && len(c.BoolFalseTrue) == 2:
			f.value[i] = []byte{1}
		case f.dtype == tensor.Bool:
			f.value[i] = []byte{byte(i)}
		case f.dtype == tensor.Int32 && len(c.Int32FalseTrue) == 2:
			f.value[i] = binary.NativeEndian.AppendUint32(nil, uint32(c.Int32FalseTrue[i]))
		case f.dtype == tensor.FP32 && len(c.FP32FalseTrue) == 2:
			f.value[i] = binary.NativeEndian.AppendUint32(nil, math.Float32bits(c.FP32FalseTrue[i]))
		default:
			return fmt.Errorf("the model's input is %v: want BOOL, or INT32 with int32_false_true, or FP32 with fp32_false_true", f.dtype)
		}
	}
	return nil
}

func index(on bool) int {
	if on {
		return 1
	}
	return 0
}
