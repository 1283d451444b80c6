package planner

import (
	"fmt"
	"slices"

	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// matchDims finds the batch axis of an input or output of the configuration, and
// the shapes of requests and answers. Two ways to write dims are known. NVIDIA's
// backend wants all axes of the model, -1 at the batch axis; requests have an axis
// of 1 in front and answers have not. Triton's own way leaves the batch axis out,
// wherever the model has it; requests and answers have the batch in front.
func (pl *planner) matchDims(p *plan.IO, asked tensor.Shape, info *onnx.TensorInfo, found batchaxis.Axis) error {
	axis, given := pl.givenAxis(info)
	known := given
	switch {
	case p.IsState: // the answer is cut where the state is, whatever is known of the input alone
		axis, known = pl.plan.StateAt(p.State).Axis, true
		given = given || axis != tensor.NoAxis
	case !given:
		axis, known = found.Index, found.Known
	}
	fit := func(axis int, dims tensor.Shape) bool {
		p.Axis, p.Dims = axis, slices.Clone(dims)
		return narrow(p.Dims, info.Dims, axis)
	}
	front := func(shape tensor.Shape) tensor.Shape { return slices.Insert(slices.Clone(shape), 0, 1) }
	switch {
	case pl.config.MaxBatchSize == 0:
		if len(asked) == len(info.Dims) && fit(tensor.NoAxis, asked) {
			p.Request, p.Answer = asked, asked
			return nil
		}
	case len(asked) == len(info.Dims):
		if marked := markedAxis(asked, axis, known); marked != tensor.NoAxis && info.Dims[marked] < 0 && fit(marked, asked) {
			p.Answer = p.Dims.With(marked, 1)
			p.Request = front(p.Answer)
			if !pl.sequences() { // requests of several rows need the batch in the answer
				p.Answer, p.BatchInFront = p.Request, true
			}
			return nil
		}
		if (axis == tensor.NoAxis || asked[axis] == 1) && fit(axis, asked) {
			p.Request, p.BatchInFront = front(asked), true
			p.Answer = p.Request
			return nil
		}
	case len(asked) == len(info.Dims)-1:
		p.Request, p.BatchInFront = front(asked), true
		p.Answer = p.Request
		candidates := pl.candidateAxes(info, axis, known)
		for _, axis := range candidates {
			if dims := slices.Insert(slices.Clone(asked), axis, 1); opens(dims, info.Dims, axis) && fit(axis, dims) {
				return nil
			}
		}
		// Where no axis is said to be the batch, one of extent 1 may be, which the exporter has fixed. Strings
		// need it in front.
		fixed := !given && axis == tensor.NoAxis
		for at := 1; at < len(info.Dims) && fixed && info.DType != tensor.Bytes; at++ {
			dims := slices.Insert(slices.Clone(asked), at, 1)
			if info.Dims[at] == 1 && opens(dims, info.Dims, at) && fit(at, dims) {
				return nil
			}
		}
		if first := front(asked); fixed && info.Dims[0] == 1 && opens(first, info.Dims, 0) && fit(tensor.NoAxis, first) {
			return nil
		}
		// What dims leave open the model may fix, if it is sure where the batch is.
		sure := given || pl.candidate.Rank == batchaxis.ByBatchName && pl.candidate.LongName || len(batchaxis.OpenAxes(info)) == 1 && !slices.Contains(info.Dims, 1)
		for _, at := range candidates {
			if sure && fit(at, slices.Insert(slices.Clone(asked), at, 1)) {
				return nil
			}
		}
		if info.Dims[0] == 1 && fit(tensor.NoAxis, front(asked)) {
			return nil
		}
	}
	return fmt.Errorf("dims are %v and the model's shape is %v: want its extents, with -1 at the batch axis or without that axis", asked, info.Dims)
}

// markedAxis is the batch axis in dims that name every axis of the model: the one
// that is known, if it is -1 there, or else the first -1.
func markedAxis(asked tensor.Shape, axis int, given bool) int {
	if axis != tensor.NoAxis || given {
		if axis != tensor.NoAxis && asked[axis] < 0 {
			return axis
		}
		return tensor.NoAxis
	}
	return slices.IndexFunc(asked, func(d int64) bool { return d < 0 })
}

// candidateAxes are the axes that can be the batch's: the one that is known, or
// any dynamic one. A first axis of 1 is a batch that the exporter has fixed; what
// has a name after it is something else.
func (pl *planner) candidateAxes(info *onnx.TensorInfo, axis int, given bool) (axes []int) {
	if axis != tensor.NoAxis {
		return []int{axis}
	}
	if given {
		return nil
	}
	for _, axis := range batchaxis.OpenAxes(info) {
		if info.Dims[0] != 1 || info.Symbols[axis] == "" {
			axes = append(axes, axis)
		}
	}
	return axes
}

// opens reports whether the model leaves all open that the configuration does, apart
// from the batch axis. What it fixes there may be a batch that the exporter has fixed.
func opens(dims, model tensor.Shape, axis int) bool {
	for i, d := range dims {
		if i != axis && d < 0 && model[i] >= 0 {
			return false
		}
	}
	return true
}

// narrow fixes in dims what the model fixes, and reports whether the two agree. The
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

// settleShapes fixes in the shapes of requests and answers what the model fixes, though the
// configuration leaves it open: an answer says how large it is.
func settleShapes(p *plan.IO) {
	model := p.Dims.With(p.Axis, 1)
	if p.BatchInFront && p.Axis != tensor.NoAxis && len(p.Request) == len(model) {
		model = p.Dims.Without(p.Axis)
	}
	same := len(p.Answer) == len(p.Request) // else it is made of the model's extents
	p.Request = p.Request.Clone()
	front := len(p.Request) - len(model)
	for i, d := range model {
		if p.Request[front+i] < 0 {
			p.Request[front+i] = d
		}
	}
	if same {
		p.Answer = p.Request
	}
}

// fixedPorts reports whether each input and output that has open axes has its batch at an
// axis that the model fixes at 1, as dims say.
func (pl *planner) fixedPorts() bool {
	other := func(infos []onnx.TensorInfo) func(plan.IO) bool {
		return func(p plan.IO) bool {
			dims := infos[p.Index].Dims
			return !dims.Fixed() && (p.Axis == tensor.NoAxis && dims[0] != 1 || p.Axis != tensor.NoAxis && dims[p.Axis] != 1)
		}
	}
	return !slices.ContainsFunc(pl.plan.Inputs, other(pl.sig.Inputs)) && !slices.ContainsFunc(pl.plan.Outputs, other(pl.sig.Outputs))
}

// lanesAxis is where what the model writes for an output must have one extent for each
// lane, or tensor.NoAxis. Without max_batch_size answers have the model's own shape, but a
// model with sequences runs with one lane all the same, if its states have lanes.
func (pl *planner) lanesAxis(p *plan.IO, found batchaxis.Axis) int {
	laned := func(s plan.State) bool { return s.Axis != tensor.NoAxis }
	switch {
	case p.Axis != tensor.NoAxis:
		return p.Axis
	case p.BatchInFront && len(p.Answer) == len(p.Dims): // a batch that the model fixes at 1
		return 0
	case p.IsState:
		return pl.plan.StateAt(p.State).Axis
	case pl.config.MaxBatchSize == 0 && (slices.ContainsFunc(pl.plan.States, laned) || slices.ContainsFunc(pl.plan.Varying, laned)):
		return found.Index
	default:
		return tensor.NoAxis
	}
}
