package backend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// A candidate is one way to say which axis of each tensor is the batch. Evidence
// puts candidates in an order; runs of the model show which of them is true
// (prove.go), and choose decides (choose.go).
type candidate struct {
	// in and out have the batch axis of each tensor, by its position in the
	// signature. What is not known of an output, runs or the configuration tell.
	in, out []batchAxis
	rank    rank
	// weight is how many tensors carry the name that the candidate goes by, to
	// choose between candidates of one rank that are all true.
	weight int
	// exported: the exporter has told, for one name of batches stands once on every
	// tensor that has an open axis.
	exported bool
	// spelled: its name is no single letter, which may also be something else.
	spelled bool
	// told: batch_axes says everything of the inputs; complete: of the outputs as well.
	told, complete bool
	// single: the model runs with one lane and with no other number of them.
	single bool
}

// rank says how good the evidence for a candidate is; the least is the best.
type rank uint8

const (
	byBatchName   rank = iota // a name of batches on every input, dims with -1 for the batch, or a batch that is fixed at 1
	byOtherName               // any name on some inputs
	byPosition                // the same place among the open axes of every input
	withoutOthers             // as above, with inputs that have open axes and no batch
	withoutAny                // no batch at all
)

// foundByRuns is how an axis was found that nothing but runs of the model tells.
const foundByRuns = "found by runs"

// evidence is what candidates are made of.
type evidence struct {
	config *config.Config
	params *config.Parameters
	sig    *onnx.Signature
	// told are the axes that batch_axes gives, by the position of the input.
	told map[int]int
	// open are the inputs that have an axis which may be the batch and which
	// batch_axes does not name.
	open []int
	all  []candidate
}

// candidatesFor lists the ways in which the axes of a model can be its batch, the
// likeliest first. There is always one.
func candidatesFor(cfg *config.Config, params *config.Parameters, sig *onnx.Signature) []candidate {
	e := &evidence{config: cfg, params: params, sig: sig, told: map[int]int{}}
	for i := range sig.Inputs {
		if axis, told, _ := toldAxis(params, &sig.Inputs[i]); told {
			e.told[i] = axis
		} else if len(dynamicAxes(&sig.Inputs[i])) > 0 {
			e.open = append(e.open, i)
		}
	}
	if len(e.open) == 0 {
		e.add(byBatchName, 0, func(int) batchAxis { return batchAxis{axis: tensor.NoAxis, known: true} })
		e.all[0].told, e.all[0].complete = true, e.toldOutputs()
		return e.all
	}
	e.byBatchNames()
	e.byMarks()
	e.asTriton()
	if e.fixedAtOne() {
		e.none(byBatchName)
	}
	e.byOtherNames()
	e.byPositions()
	e.none(withoutAny)
	slices.SortStableFunc(e.all, func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) })
	return e.all
}

// toldOutputs reports whether batch_axes also names every output with an open axis.
func (e *evidence) toldOutputs() bool {
	for i := range e.sig.Outputs {
		info := &e.sig.Outputs[i]
		if _, told, _ := toldAxis(e.params, info); !told && len(dynamicAxes(info)) > 0 && e.config.CanRequest(info.Name) {
			return false
		}
	}
	return true
}

// add appends a candidate, unless it is there. It leaves out what batch_axes tells
// and what is fixed; of the other inputs, axis tells.
func (e *evidence) add(r rank, weight int, axis func(input int) batchAxis) *candidate {
	c := candidate{rank: r, weight: weight, in: make([]batchAxis, len(e.sig.Inputs)), out: make([]batchAxis, len(e.sig.Outputs))}
	for i := range c.in {
		told, is := e.told[i]
		switch {
		case is:
			c.in[i] = batchAxis{told, true, "batch_axes"}
		case e.sig.Inputs[i].Dims.Fixed():
			c.in[i] = batchAxis{tensor.NoAxis, true, "its shape is fixed"}
		default:
			c.in[i] = axis(i)
		}
	}
	if r < withoutOthers && slices.ContainsFunc(e.open, func(i int) bool { return c.in[i].axis == tensor.NoAxis && !e.fill(i) }) {
		c.rank = withoutOthers
	}
	for _, other := range e.all {
		if r != withoutAny && slices.EqualFunc(other.in, c.in, func(a, b batchAxis) bool { return a.axis == b.axis }) {
			return nil
		}
	}
	e.outputs(&c)
	e.all = append(e.all, c)
	return &e.all[len(e.all)-1]
}

// fill reports whether an input is one that the backend fills by itself.
func (e *evidence) fill(input int) bool {
	info := &e.sig.Inputs[input]
	for _, list := range [][]config.Assignment{e.params.Constants, e.params.Derived} {
		if slices.ContainsFunc(list, func(a config.Assignment) bool { return a.Name == info.Name }) {
			return true
		}
	}
	return info.Optional || e.config.Sequence != nil && slices.ContainsFunc(e.config.Sequence.ControlInputs, func(c config.ControlConfig) bool { return strings.EqualFold(c.Name, info.Name) })
}

// outputs notes what names tell of the outputs. A name of an output that is on no
// input says nothing of the batch.
func (e *evidence) outputs(c *candidate) {
	names := map[string]bool{} // of batch axes
	for i, found := range c.in {
		if found.axis != tensor.NoAxis && e.sig.Inputs[i].Symbols[found.axis] != "" {
			names[e.sig.Inputs[i].Symbols[found.axis]] = true
		}
	}
	for i := range c.out {
		info := &e.sig.Outputs[i]
		c.out[i] = batchAxis{axis: tensor.NoAxis}
		if axis, told, err := toldAxis(e.params, info); told && err == nil {
			c.out[i] = batchAxis{axis, true, "batch_axes"}
			continue
		}
		if info.Dims.Fixed() {
			c.out[i] = batchAxis{tensor.NoAxis, true, "its shape is fixed"}
			continue
		}
		if !c.lanes() {
			c.out[i] = batchAxis{tensor.NoAxis, true, "no axis follows the batch"}
			continue
		}
		for axis, symbol := range info.Symbols {
			if names[symbol] && onlyAxis(info, symbol) == axis && !c.out[i].known {
				c.out[i] = batchAxis{axis, true, fmt.Sprintf("axis %q", symbol)}
			}
		}
	}
}

// carriers is how many tensors have one axis of that name.
func (e *evidence) carriers(symbol string) (n int) {
	for _, infos := range [][]onnx.TensorInfo{e.sig.Inputs, e.sig.Outputs} {
		for i := range infos {
			if onlyAxis(&infos[i], symbol) != tensor.NoAxis {
				n++
			}
		}
	}
	return n
}

// everywhere reports whether a name stands once on every tensor with an open axis.
func (e *evidence) everywhere(symbol string) bool {
	for _, infos := range [][]onnx.TensorInfo{e.sig.Inputs, e.sig.Outputs} {
		for i := range infos {
			if len(dynamicAxes(&infos[i])) > 0 && onlyAxis(&infos[i], symbol) == tensor.NoAxis {
				return false
			}
		}
	}
	return len(e.told) == 0
}

// lanes reports whether some input has a batch axis.
func (c *candidate) lanes() bool {
	return slices.ContainsFunc(c.in, func(a batchAxis) bool { return a.axis != tensor.NoAxis })
}

// assumes reports whether the candidate says more than batch_axes does.
func (c *candidate) assumes() bool {
	return slices.ContainsFunc(c.in, func(a batchAxis) bool { return a.axis != tensor.NoAxis && a.how != "batch_axes" }) ||
		slices.ContainsFunc(c.out, func(a batchAxis) bool { return !a.known })
}
