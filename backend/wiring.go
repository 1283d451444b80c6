package backend

import (
	"errors"
	"fmt"
	"slices"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// wiring says what each tensor of the model is for. It is made once at load and
// never changes.
type wiring struct {
	inputs   []port
	outputs  []port
	states   []stateWire
	controls []controlWire
	// unused are the positions of model outputs that nobody wants.
	unused []int
}

func (w *wiring) hasFP32State() bool {
	return slices.ContainsFunc(w.states, func(s stateWire) bool { return s.dtype == tensor.FP32 })
}

// port joins a tensor of the configuration and the model's tensor behind it.
type port struct {
	Port
	at      int          // position in the signature
	axis    int          // batch axis of the model's tensor
	dims    tensor.Shape // of the model's tensor, fixed by the configuration; the extent at axis does not count
	request tensor.Shape // of a request's tensor
	answer  tensor.Shape // of an answer's tensor
	statebuffer.Layout
}

// stateWire joins the input and the output of a state.
type stateWire struct {
	name    string // that of the input
	in, out int    // positions in the signature
	axis    [2]int // batch axis of the input and of the output
	dims    [2]tensor.Shape
	dtype   tensor.DType
	how     string // how the axis was found
	statebuffer.Layout
}

// controlWire is a model input that tells about the sequence.
type controlWire struct {
	kind string
	name string
	at   int
	axis int
	dims tensor.Shape
	// value is the bytes of one lane for false and for true.
	value [2][]byte
	dtype tensor.DType
}

// wirer collects everything that does not fit while a wiring is made.
type wirer struct {
	config *Config
	params *Parameters
	sig    *Signature
	symbol string
	wiring wiring
	// taken names what feeds or takes each tensor of the model.
	takenIn, takenOut []string
	faults            []error
}

// wire joins configuration and model. The error joins everything that is wrong.
func wire(config *Config, params *Parameters, sig *Signature) (*wiring, error) {
	w := &wirer{
		config: config, params: params, sig: sig,
		symbol:   batchSymbol(sig),
		takenIn:  make([]string, len(sig.Inputs)),
		takenOut: make([]string, len(sig.Outputs)),
	}
	w.ports("input", config.Inputs, sig.Inputs, w.takenIn, &w.wiring.inputs)
	w.ports("output", config.Outputs, sig.Outputs, w.takenOut, &w.wiring.outputs)
	w.controls()
	w.states()
	w.leftovers()
	if len(w.faults) > 0 {
		return nil, Errorf(InvalidArg, "%w", errors.Join(w.faults...))
	}
	return &w.wiring, nil
}

func (w *wirer) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Errorf(format, args...))
}

// claim notes what a tensor of the model is for; two uses are a fault.
func (w *wirer) claim(taken []string, at int, tensorName, use string) bool {
	if taken[at] != "" {
		w.fault("tensor %q of the model is %s and also %s: name it once", tensorName, taken[at], use)
		return false
	}
	taken[at] = use
	return true
}

func (w *wirer) ports(kind string, configs []TensorConfig, infos []TensorInfo, taken []string, ports *[]port) {
	for i := range configs {
		c := &configs[i]
		at := tensorName(c.Name, infos)
		if at < 0 {
			w.fault("%s %q of the configuration is not in the model: its %ss are %s", kind, c.Name, kind, names(infos))
			continue
		}
		if !w.claim(taken, at, infos[at].Name, fmt.Sprintf("%s %q", kind, c.Name)) {
			continue
		}
		p, err := w.port(c, &infos[at])
		if err != nil {
			w.fault("%s %q: %w", kind, c.Name, err)
			continue
		}
		p.at = at
		*ports = append(*ports, p)
	}
}

func (w *wirer) port(c *TensorConfig, info *TensorInfo) (port, error) {
	p := port{Port: Port{Name: c.Name, Optional: c.Optional}, axis: noAxis}
	dtype, err := tensor.ParseDType(c.DataType)
	if err != nil {
		return p, err
	}
	if dtype != info.DType {
		return p, fmt.Errorf("data_type is %s in the configuration, the model has %s: write data_type: %s", c.DataType, info.DType.ConfigName(), info.DType.ConfigName())
	}
	if dtype == tensor.Bytes {
		return p, fmt.Errorf("data_type %s is not supported", c.DataType)
	}
	p.DType = dtype
	if err = w.matchDims(&p, c.Dims, info); err != nil {
		return p, err
	}
	p.Layout, err = layoutOf(p.dims, p.axis, dtype)
	return p, err
}

// matchDims finds the batch axis of an input or output of the configuration.
// Two ways to write dims are known, told apart by their number: all axes of the
// model with -1 at the batch axis, as NVIDIA's backend wants it, where requests
// have an axis of 1 in front and answers have not; or Triton's own, without the
// batch axis, where both have the batch in front.
func (w *wirer) matchDims(p *port, config tensor.Shape, info *TensorInfo) error {
	if len(config) == len(info.Dims) {
		p.axis = w.markedAxis(config, info)
		if p.axis == noAxis {
			return fmt.Errorf("dims are %v and the model's shape is %v: write -1 at the batch axis, or leave the batch axis out", config, info.Dims)
		}
		p.dims = config.With(p.axis, 1)
		p.answer, p.request = p.dims, slices.Insert(p.dims.Clone(), 0, 1)
		if !fits(p.dims, info.Dims, p.axis) {
			return fmt.Errorf("dims are %v, which the model's shape %v does not allow", config, info.Dims)
		}
		return fixed(p.dims)
	}
	if len(config) == len(info.Dims)-1 {
		for _, p.axis = range w.candidateAxes(info) {
			p.dims = slices.Insert(config.Clone(), p.axis, 1)
			p.request = slices.Insert(config.Clone(), 0, 1)
			p.answer = p.request
			if fits(p.dims, info.Dims, p.axis) {
				return fixed(config)
			}
		}
	}
	return fmt.Errorf("dims are %v and the model's shape is %v: want its fixed extents, with -1 at the batch axis or without that axis", config, info.Dims)
}

// markedAxis is the batch axis in dims that name every axis of the model: the -1
// at the axis that carries the batch's name, or else the first -1.
func (w *wirer) markedAxis(config tensor.Shape, info *TensorInfo) int {
	if axis := axisOf(w.symbol, info); axis != noAxis && config[axis] < 0 {
		return axis
	}
	return slices.IndexFunc(config, func(d int64) bool { return d < 0 })
}

// candidateAxes are the axes that can be the batch's, the likeliest first.
func (w *wirer) candidateAxes(info *TensorInfo) (axes []int) {
	if axis := axisOf(w.symbol, info); axis != noAxis {
		axes = append(axes, axis)
	}
	for axis, d := range info.Dims {
		if d < 0 && !slices.Contains(axes, axis) {
			axes = append(axes, axis)
		}
	}
	return axes
}

// fits tells whether the extents are possible in the model, whose batch axis is
// dynamic.
func fits(dims, model tensor.Shape, axis int) bool {
	for i, d := range dims {
		if i == axis && model[i] >= 0 || i != axis && model[i] >= 0 && d != model[i] {
			return false
		}
	}
	return true
}

func fixed(dims tensor.Shape) error {
	if !dims.Fixed() {
		return fmt.Errorf("dims are %v: only one axis, the batch, may be -1", dims)
	}
	return nil
}

// leftovers finds inputs of the model that nobody feeds, and outputs that nobody
// takes.
func (w *wirer) leftovers() {
	for i := range w.sig.Inputs {
		info := &w.sig.Inputs[i]
		if w.takenIn[i] != "" || info.Optional {
			continue
		}
		hint := "name it in input, in state_pairs or in control_input"
		if info.DType == tensor.Bool {
			hint = "if it tells the model that a sequence starts, map it by control_input { name: \"" + info.Name + "\" control [{ kind: " + ControlStart + " }] }; else " + hint
		}
		w.fault("input %q %v of the model is fed by nothing in the configuration: %s", info.Name, info.Dims, hint)
	}
	for i := range w.sig.Outputs {
		if w.takenOut[i] == "" {
			w.wiring.unused = append(w.wiring.unused, i)
		}
	}
}
