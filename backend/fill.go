package backend

import (
	"encoding/binary"
	"fmt"
	"math"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// fillKind is what the backend fills an input of the model with.
type fillKind uint8

const (
	fillStart     fillKind = iota // whether the sequence starts
	fillEnd                       // whether it ends
	fillReady                     // whether the lane is in use
	fillID                        // the correlation ID
	fillConstant                  // the same value always
	fillSteps                     // steps of the sequence before this one
	fillBefore                    // summed lengths of an input or an output before this step
	fillAfter                     // the same with this step
	fillMask                      // which parts of padded states count
	fillPositions                 // where in the sequence each element of an input stands
)

var fillNames = map[fillKind]string{
	fillStart: "start", fillEnd: "end", fillReady: "ready", fillID: "correlation ID",
	fillConstant: "constant", fillSteps: "steps", fillBefore: "length before", fillAfter: "length after", fillMask: "mask",
	fillPositions: "positions",
}

// fillWire is a model input that the backend fills by itself.
type fillWire struct {
	kind  fillKind
	name  string
	at    int
	axis  int
	dims  tensor.Shape // one element for each lane, except for a constant
	dtype tensor.DType
	// value holds the bytes of a lane for false and true; a constant has one.
	value [2][]byte
	// source counts in wiring.lengths; plus is added to what is counted.
	source int
	plus   int64
	along  int       // of positions only: the axis along which they go on
	mask   *maskWire // of a mask only
	statebuffer.Layout
}

// fills wires the controls, the constants and the derived inputs. Controls that
// the model has no input for are Triton's business only.
func (w *wirer) fills() {
	if w.config.Sequence != nil {
		for i := range w.config.Sequence.ControlInputs {
			c := &w.config.Sequence.ControlInputs[i]
			at, control := tensorName(c.Name, w.sig.Inputs), c.last()
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
func (w *wirer) filled(parameter string, a assignment, fill func(*fillWire, *TensorInfo, string) error) {
	at := exactName(a.name, w.sig.Inputs)
	if at < 0 {
		w.fault("parameter %s: %q is not an input of the model: its inputs are %s", parameter, a.name, names(w.sig.Inputs))
		return
	}
	if !w.claim(w.takenIn, at, a.name, "given by "+parameter) {
		return
	}
	info := &w.sig.Inputs[at]
	f := fillWire{name: a.name, at: at, dtype: info.DType}
	if err := fill(&f, info, a.value); err != nil {
		w.fault("parameter %s: input %q: %w", parameter, a.name, err)
		return
	}
	w.wiring.fills = append(w.wiring.fills, f)
}

// constant is VALUE, repeated for every element. Dynamic axes that are not the
// batch get the extent 1.
func (w *wirer) constant(f *fillWire, info *TensorInfo, text string) (err error) {
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
	if f.Layout, err = layoutOf(f.dims, f.axis, f.dtype); err != nil {
		return err
	}
	f.value[0], err = repeated(element, withoutBatch(f.dims, f.axis), f.dtype)
	return err
}

func (w *wirer) control(name string, c *Control, at int) {
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
func (w *wirer) fillAxis(f *fillWire, info *TensorInfo) (err error) {
	if f.axis, _, err = w.inputAxis(f.at); err != nil || f.axis == noAxis {
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
func (w *wirer) perLane(f *fillWire, info *TensorInfo) error {
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

var controlKinds = map[string]fillKind{ControlStart: fillStart, ControlEnd: fillEnd, ControlReady: fillReady, ControlCorrID: fillID}

// controlValues are the bytes that stand for false and true. The model's type
// rules: a model made for NVIDIA's backend has a BOOL input where its
// configuration says int32_false_true.
func controlValues(f *fillWire, c *Control) error {
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

// putFills fills the inputs that the backend fills by itself.
func (x *execution) putFills() error {
	for i := range x.in.wiring.fills {
		f := &x.in.wiring.fills[i]
		var err error
		switch {
		case f.kind == fillMask:
			err = x.putMask(i)
		case f.kind == fillPositions:
			err = x.putPositions(i)
		case f.dtype == tensor.Bytes:
			err = x.putTextIDs(i)
		default:
			f.fill(x.stage.fills[i].Bytes, x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// putTextIDs fills a control of strings, which is the correlation ID. A padding
// lane has an empty one.
func (x *execution) putTextIDs(i int) error {
	const prefix = 4 // the length in front of each string
	size := int64(prefix * x.stage.lanes)
	for _, at := range x.laneRow {
		size += int64(len(x.requests[x.rows[at]].Sequence.Text))
	}
	block, err := x.in.io.forFill(i, size)
	if err != nil {
		return err
	}
	to := block.Bytes
	for lane := range x.stage.lanes {
		text := ""
		if lane < len(x.laneRow) {
			text = x.requests[x.rows[x.laneRow[lane]]].Sequence.Text
		}
		binary.NativeEndian.PutUint32(to, uint32(len(text)))
		to = to[prefix+copy(to[prefix:], text):]
	}
	x.stage.inputs[x.in.wiring.fills[i].at].Data = block
	return nil
}

// fill writes the values of all lanes. Padding lanes are starts.
func (f *fillWire) fill(to []byte, x *execution) {
	if f.kind == fillConstant {
		if f.axis == noAxis {
			copy(to, f.value[0])
			return
		}
		for lane := range x.stage.lanes {
			putLane(to, f.Layout, x.stage.lanes, lane, f.value[0])
		}
		return
	}
	lanes := x.stage.lanes
	if f.axis == noAxis {
		lanes = 1
	}
	for lane := range lanes {
		var r *Request
		var q *statebuffer.Sequence
		if lane < len(x.lanes) {
			r, q = &x.requests[x.rows[x.laneRow[lane]]], x.lanes[lane].Sequence
		}
		f.put(to[lane*int(f.PieceBytes):], x, r, q)
	}
}

// put writes the value of one lane; r is nil for padding, q for no sequence.
func (f *fillWire) put(to []byte, x *execution, r *Request, q *statebuffer.Sequence) {
	on := false
	switch f.kind {
	case fillStart:
		on = r == nil || q == nil || r.Start
	case fillEnd:
		on = r != nil && r.End
	case fillReady:
		on = r != nil
	case fillID:
		if r != nil {
			putInt(to, f.dtype, int64(r.Sequence.Number))
		} else {
			putInt(to, f.dtype, 0)
		}
		return
	default:
		putInt(to, f.dtype, f.count(x, q))
		return
	}
	copy(to, f.value[index(on)])
}

func index(on bool) int {
	if on {
		return 1
	}
	return 0
}
