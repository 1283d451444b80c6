package backend

import (
	"encoding/binary"
	"fmt"
	"math"

	"tritonstateful/internal/tensor"
)

// states wires the pairs of state_pairs, or of the model's doc string.
func (w *wirer) states() {
	pairs := w.params.Pairs
	if !w.params.PairsGiven {
		var err error
		if pairs, err = PairsFromDescription(w.sig.Description); err != nil {
			w.faults = append(w.faults, err)
			return
		}
	}
	if len(pairs) == 0 {
		w.fault("could not find any state tensors: name them by the parameter state_pairs, <<<input, output>>> for each (the model's inputs are %s, its outputs %s)", names(w.sig.Inputs), names(w.sig.Outputs))
		return
	}
	for _, p := range pairs {
		w.state(p)
	}
}

func (w *wirer) state(p Pair) {
	in, out := exactName(p.Input, w.sig.Inputs), exactName(p.Output, w.sig.Outputs)
	if in < 0 {
		w.fault("state_pairs: %q is not an input of the model: its inputs are %s", p.Input, names(w.sig.Inputs))
	}
	if out < 0 {
		w.fault("state_pairs: %q is not an output of the model: its outputs are %s", p.Output, names(w.sig.Outputs))
	}
	if in < 0 || out < 0 {
		return
	}
	use := fmt.Sprintf("a state of the pair <<<%s, %s>>>", p.Input, p.Output)
	if !w.claim(w.takenIn, in, p.Input, use) || !w.claim(w.takenOut, out, p.Output, use) {
		return
	}
	s, err := w.matchState(&w.sig.Inputs[in], &w.sig.Outputs[out])
	if err != nil {
		w.fault("state <<<%s, %s>>>: %w", p.Input, p.Output, err)
		return
	}
	s.name, s.in, s.out = p.Input, in, out
	w.wiring.states = append(w.wiring.states, s)
}

// matchState checks that what a step writes is what the next one can read.
func (w *wirer) matchState(in, out *TensorInfo) (s stateWire, err error) {
	if in.DType != out.DType {
		return s, fmt.Errorf("the input is %v, the output %v: they must be the same", in.DType, out.DType)
	}
	if in.DType == tensor.Bytes {
		return s, fmt.Errorf("it is of strings: states need elements of a fixed size")
	}
	s.dtype = in.DType
	if len(in.Dims) != len(out.Dims) {
		return s, fmt.Errorf("the input's shape %v and the output's %v differ in rank", in.Dims, out.Dims)
	}
	var how [2]string
	for i, info := range []*TensorInfo{in, out} {
		if s.axis[i], how[i], err = stateAxis(info, w.symbol); err != nil {
			return s, fmt.Errorf("tensor %q: %w", info.Name, err)
		}
	}
	if s.axis[0] != s.axis[1] {
		return s, fmt.Errorf("the batch is axis %d of the input's shape %v and axis %d of the output's shape %v: they must be the same", s.axis[0], in.Dims, s.axis[1], out.Dims)
	}
	s.how = how[0]
	dims := in.Dims.With(s.axis[0], 1)
	for i, d := range dims {
		o := out.Dims[i]
		if i == s.axis[0] || d == o || o < 0 && d >= 0 {
			continue
		}
		if d >= 0 || o < 0 {
			return s, fmt.Errorf("the input's shape %v and the output's %v differ", in.Dims, out.Dims)
		}
		dims[i] = o
	}
	if !dims.Fixed() {
		return s, fmt.Errorf("its shape %v has dynamic axes besides the batch axis %d: fix them when the model is exported", in.Dims, s.axis[0])
	}
	s.dims = [2]tensor.Shape{dims, dims}
	s.Layout, err = layoutOf(dims, s.axis[0], s.dtype)
	return s, err
}

// controls wires the control inputs that the model has. Those it has not are
// Triton's business only.
func (w *wirer) controls() {
	if w.config.Sequence == nil {
		w.fault("sequence_batching is missing: sequences need it, for example sequence_batching { oldest { max_candidate_sequences: 1024 } }")
		return
	}
	for i := range w.config.Sequence.ControlInputs {
		c := &w.config.Sequence.ControlInputs[i]
		at := tensorName(c.Name, w.sig.Inputs)
		for j := range c.Controls {
			if at >= 0 && w.claim(w.takenIn, at, c.Name, "the control "+c.Controls[j].Kind) {
				w.control(c.Name, &c.Controls[j], at)
			}
		}
	}
}

func (w *wirer) control(name string, c *Control, at int) {
	info := &w.sig.Inputs[at]
	wire := controlWire{kind: c.Kind, name: name, at: at, dtype: info.DType}
	var err error
	if wire.axis, wire.dims, err = w.controlDims(info); err != nil {
		w.fault("control input %q: %w", name, err)
		return
	}
	if wire.value, err = controlValues(c, info.DType); err != nil {
		w.fault("control input %q (%s): %w", name, c.Kind, err)
		return
	}
	w.wiring.controls = append(w.wiring.controls, wire)
}

// controlDims finds the batch axis of a tensor that has one element per lane.
func (w *wirer) controlDims(info *TensorInfo) (axis int, dims tensor.Shape, err error) {
	axis = axisOf(w.symbol, info)
	for i, d := range info.Dims {
		if axis == noAxis && d < 0 {
			axis = i
		}
	}
	dims = info.Dims.Clone()
	for i, d := range dims {
		if i != axis && d > 1 {
			return axis, nil, fmt.Errorf("its shape in the model is %v: want one element for each request, such as [-1] or [-1,1]", info.Dims)
		}
		dims[i] = 1
	}
	if axis == noAxis {
		return axis, nil, fmt.Errorf("its shape in the model is %v: want a dynamic batch axis, such as [-1] or [-1,1]", info.Dims)
	}
	return axis, dims, nil
}

// controlValues are the bytes that stand for false and true. The model's type
// rules: a model of our peers has a BOOL input where the configuration says
// int32_false_true.
func controlValues(c *Control, dtype tensor.DType) (value [2][]byte, err error) {
	if c.Kind != ControlStart && c.Kind != ControlEnd && c.Kind != ControlReady {
		return value, fmt.Errorf("a model input of this kind is not supported")
	}
	for i := range value {
		switch {
		case dtype == tensor.Bool && len(c.BoolFalseTrue) == 2:
			value[i] = []byte{boolByte(c.BoolFalseTrue[i])}
		case dtype == tensor.Bool:
			value[i] = []byte{byte(i)}
		case dtype == tensor.Int32 && len(c.Int32FalseTrue) == 2:
			value[i] = binary.NativeEndian.AppendUint32(nil, uint32(c.Int32FalseTrue[i]))
		case dtype == tensor.FP32 && len(c.FP32FalseTrue) == 2:
			value[i] = binary.NativeEndian.AppendUint32(nil, math.Float32bits(c.FP32FalseTrue[i]))
		default:
			return value, fmt.Errorf("the model's input is %v: want BOOL, or INT32 with int32_false_true, or FP32 with fp32_false_true", dtype)
		}
	}
	return value, nil
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// exactName finds a tensor by its exact name, or gives -1.
func exactName(name string, infos []TensorInfo) int {
	for i := range infos {
		if infos[i].Name == name {
			return i
		}
	}
	return -1
}
