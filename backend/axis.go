package backend

import (
	"fmt"
	"slices"
	"strconv"

	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// noAxis is the batch axis of a tensor that has none.
const noAxis = -1

// batchSymbol is the name that the model gives to the batch. Of all names of
// dynamic axes it is the one that the most tensors carry; on a tie the one that
// stands further out, then the first by alphabet. At least half of the inputs
// that name an axis carry it, and half of such outputs: the length of a cache is
// on many inputs too, but on no output. It is "" where no name is such.
func batchSymbol(sig *Signature) string {
	type vote struct{ tensors, depth int }
	votes := map[string]vote{}
	needed := map[string]int{} // how many of inputs and outputs have agreed
	for _, infos := range [][]TensorInfo{sig.Inputs, sig.Outputs} {
		carried, named := map[string]int{}, 0
		for i := range infos {
			if !infos[i].named() {
				continue
			}
			named++
			for axis, symbol := range infos[i].Symbols {
				if symbol != "" && axisOf(symbol, &infos[i]) == axis {
					v := votes[symbol]
					votes[symbol] = vote{v.tensors + 1, v.depth + axis}
					carried[symbol]++
				}
			}
		}
		for symbol := range votes {
			if 2*carried[symbol] >= named {
				needed[symbol]++
			}
		}
	}
	best, won := "", vote{}
	for symbol, v := range votes {
		switch {
		case needed[symbol] < 2:
		case v.tensors > won.tensors,
			v.tensors == won.tensors && v.depth < won.depth,
			v == won && symbol < best:
			best, won = symbol, v
		}
	}
	return best
}

// named tells whether the model names an axis of the tensor.
func (t *TensorInfo) named() bool {
	return slices.ContainsFunc(t.Symbols, func(s string) bool { return s != "" })
}

// axisOf is the first axis that carries the symbol, or noAxis.
func axisOf(symbol string, info *TensorInfo) int {
	if symbol == "" {
		return noAxis
	}
	return slices.Index(info.Symbols, symbol)
}

// withoutBatch is dims without the batch axis, if there is one.
func withoutBatch(dims tensor.Shape, axis int) tensor.Shape {
	if axis == noAxis {
		return dims
	}
	return dims.Without(axis)
}

// batched is dims with that many lanes at the batch axis, if there is one.
func batched(dims tensor.Shape, axis int, lanes int64) tensor.Shape {
	if axis == noAxis {
		return dims
	}
	return dims.With(axis, lanes)
}

// layoutOf says how a lane of a tensor with these extents lies in memory; the
// extent at the batch axis does not count.
func layoutOf(dims tensor.Shape, axis int, dtype tensor.DType) (statebuffer.Layout, error) {
	return statebuffer.LayoutOf(dims, axis, dtype)
}

// givenAxis is what the parameter batch_axes says of a tensor.
func (w *wirer) givenAxis(info *TensorInfo) (axis int, given bool) {
	value, ok := lookup(w.params.BatchAxes, info.Name)
	if !ok {
		return noAxis, false
	}
	if value == "none" {
		return noAxis, true
	}
	axis, err := strconv.Atoi(value)
	if err != nil || axis < 0 || axis >= len(info.Dims) {
		w.fault("parameter batch_axes: %q has %q: want none or an axis of its shape %v, counted from 0", info.Name, value, info.Dims)
		return noAxis, true
	}
	return axis, true
}

// fixedAxis is why an axis that batch_axes names cannot be the batch's.
func fixedAxis(axis int, info *TensorInfo) error {
	return fmt.Errorf("batch_axes names axis %d of %v, which is fixed: a batch needs a dynamic axis", axis, info.Dims)
}

// namesAxis tells whether batch_axes names a tensor itself: a pattern may be meant
// for others.
func (w *wirer) namesAxis(info *TensorInfo) bool {
	return slices.ContainsFunc(w.params.BatchAxes, func(a assignment) bool { return a.name == info.Name })
}

// tensorAxis finds the batch axis of a tensor that the configuration does not
// describe, and says how. noAxis and no error is a tensor without one.
func (w *wirer) tensorAxis(info *TensorInfo) (axis int, how string, err error) {
	if axis, given := w.givenAxis(info); given {
		return axis, "batch_axes", nil
	}
	if axis := axisOf(w.symbol, info); axis != noAxis {
		return axis, fmt.Sprintf("axis %q", w.symbol), nil
	}
	dynamic := dynamicAxes(info)
	switch {
	case len(dynamic) == 0:
		return noAxis, "its shape is fixed", nil
	case len(dynamic) == 1 && info.Symbols[dynamic[0]] == "":
		w.wiring.guessed = true
		return dynamic[0], "its only dynamic axis", nil
	case w.symbol != "":
		return noAxis, fmt.Sprintf("no axis is named %q", w.symbol), nil
	case info.named():
		return noAxis, "no axis follows the batch", nil
	default:
		return noAxis, "", fmt.Errorf("tensor %q: its shape %v has several dynamic axes without names: say which is the batch by the parameter batch_axes, for example \"%s = %d\"", info.Name, info.Dims, info.Name, dynamic[0])
	}
}

func dynamicAxes(info *TensorInfo) (axes []int) {
	for axis, d := range info.Dims {
		if d < 0 {
			axes = append(axes, axis)
		}
	}
	return axes
}

// matchDims finds the batch axis of an input or output of the configuration, and
// the shapes of requests and answers. Two ways to write dims are known. NVIDIA's
// backend wants all axes of the model, -1 at the batch axis; requests have an axis
// of 1 in front and answers have not. Triton's own way leaves the batch axis out,
// wherever the model has it; requests and answers have the batch in front.
func (w *wirer) matchDims(p *port, config tensor.Shape, info *TensorInfo) error {
	axis, given := w.givenAxis(info)
	known := given
	switch {
	case p.stateOut: // the answer is cut where the state is, whatever tells of the input alone
		axis, known = w.wiring.stateAt(p.state).axis, true
		given = given || axis != noAxis
	case !given:
		axis = axisOf(w.symbol, info)
		w.wiring.guessed = w.wiring.guessed || axis == noAxis
	}
	fit := func(axis int, dims tensor.Shape) bool {
		p.axis, p.dims = axis, slices.Clone(dims)
		return narrow(p.dims, info.Dims, axis)
	}
	front := func(shape tensor.Shape) tensor.Shape { return slices.Insert(slices.Clone(shape), 0, 1) }
	switch {
	case w.config.MaxBatchSize == 0:
		if len(config) == len(info.Dims) && fit(noAxis, config) {
			p.request, p.answer = config, config
			return nil
		}
	case len(config) == len(info.Dims):
		if marked := markedAxis(config, axis, known); marked != noAxis && info.Dims[marked] < 0 && fit(marked, config) {
			p.answer = p.dims.With(marked, 1)
			p.request = front(p.answer)
			if w.config.Sequence == nil { // requests of several rows need the batch in the answer
				p.answer, p.leading = p.request, true
			}
			return nil
		}
		if (axis == noAxis || config[axis] == 1) && fit(axis, config) {
			p.request, p.leading = front(config), true
			p.answer = p.request
			return nil
		}
	case len(config) == len(info.Dims)-1:
		p.request, p.leading = front(config), true
		p.answer = p.request
		candidates := w.candidateAxes(info, axis, known)
		for _, axis := range candidates {
			if dims := slices.Insert(slices.Clone(config), axis, 1); opens(dims, info.Dims, axis) && fit(axis, dims) {
				return nil
			}
		}
		for axis := 1; axis < len(info.Dims) && !given; axis++ {
			dims := slices.Insert(slices.Clone(config), axis, 1)
			if info.Dims[axis] == 1 && opens(dims, info.Dims, axis) && fit(axis, dims) {
				return nil
			}
		}
		if first := front(config); !given && info.Dims[0] == 1 && opens(first, info.Dims, 0) && fit(noAxis, first) {
			return nil
		}
		for _, axis := range candidates {
			if fit(axis, slices.Insert(slices.Clone(config), axis, 1)) {
				return nil
			}
		}
		if info.Dims[0] == 1 && fit(noAxis, front(config)) {
			return nil
		}
	}
	return fmt.Errorf("dims are %v and the model's shape is %v: want its extents, with -1 at the batch axis or without that axis", config, info.Dims)
}

// markedAxis is the batch axis in dims that name every axis of the model: the one
// that is known, if it is -1 there, or else the first -1.
func markedAxis(config tensor.Shape, axis int, given bool) int {
	if axis != noAxis || given {
		if axis != noAxis && config[axis] < 0 {
			return axis
		}
		return noAxis
	}
	return slices.IndexFunc(config, func(d int64) bool { return d < 0 })
}

// candidateAxes are the axes that can be the batch's: the one that is known, or
// any dynamic one. A first axis of 1 is a batch that the exporter has fixed; what
// has a name behind it is something else.
func (w *wirer) candidateAxes(info *TensorInfo, axis int, given bool) (axes []int) {
	if axis != noAxis {
		return []int{axis}
	}
	if given {
		return nil
	}
	for _, axis := range dynamicAxes(info) {
		if info.Dims[0] != 1 || info.Symbols[axis] == "" {
			axes = append(axes, axis)
		}
	}
	return axes
}

// opens tells whether the model leaves all open that the configuration does, apart
// from the batch axis. What it fixes there may be a batch that the exporter has fixed.
func opens(dims, model tensor.Shape, axis int) bool {
	for i, d := range dims {
		if i != axis && d < 0 && model[i] >= 0 {
			return false
		}
	}
	return true
}

// narrow fixes in dims what the model fixes, and tells whether the two agree. The
// batch axis must be dynamic in the model, or 1.
func narrow(dims, model tensor.Shape, axis int) bool {
	for i, d := range dims {
		switch {
		case i == axis:
			if model[i] >= 0 && model[i] != 1 {
				return false
			}
		case d < 0:
			dims[i] = model[i]
		case model[i] >= 0 && model[i] != d:
			return false
		}
	}
	return true
}

// settle fixes in the shapes of requests and answers what the model fixes, though the
// configuration leaves it open: an answer says how large it is.
func (p *port) settle() {
	model := batched(p.dims, p.axis, 1)
	if p.leading && p.axis != noAxis && len(p.request) == len(model) {
		model = withoutBatch(p.dims, p.axis)
	}
	same := len(p.answer) == len(p.request) // else it is made of the model's extents
	p.request = p.request.Clone()
	front := len(p.request) - len(model)
	for i, d := range model {
		if p.request[front+i] < 0 {
			p.request[front+i] = d
		}
	}
	if same {
		p.answer = p.request
	}
}
