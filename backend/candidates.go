package backend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	config *Config
	params *Parameters
	sig    *Signature
	// told are the axes that batch_axes gives, by the position of the input.
	told map[int]int
	// open are the inputs that have an axis which may be the batch and which
	// batch_axes does not name.
	open []int
	all  []candidate
}

// candidatesFor lists the ways in which the axes of a model can be its batch, the
// likeliest first. There is always one.
func candidatesFor(config *Config, params *Parameters, sig *Signature) []candidate {
	e := &evidence{config: config, params: params, sig: sig, told: map[int]int{}}
	for i := range sig.Inputs {
		if axis, told, _ := toldAxis(params, &sig.Inputs[i]); told {
			e.told[i] = axis
		} else if len(dynamicAxes(&sig.Inputs[i])) > 0 {
			e.open = append(e.open, i)
		}
	}
	if len(e.open) == 0 {
		e.add(byBatchName, 0, func(int) batchAxis { return batchAxis{axis: noAxis, known: true} })
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
		if _, told, _ := toldAxis(e.params, info); !told && len(dynamicAxes(info)) > 0 && e.wanted(info.Name) {
			return false
		}
	}
	return true
}

// wanted reports whether an output is one that requests can ask for.
func (e *evidence) wanted(name string) bool {
	return len(e.config.Outputs) == 0 || slices.ContainsFunc(e.config.Outputs, func(c TensorConfig) bool { return strings.EqualFold(c.Name, name) })
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
			c.in[i] = batchAxis{noAxis, true, "its shape is fixed"}
		default:
			c.in[i] = axis(i)
		}
	}
	if r < withoutOthers && slices.ContainsFunc(e.open, func(i int) bool { return c.in[i].axis == noAxis && !e.fill(i) }) && len(e.open) > 0 {
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
	for _, list := range [][]assignment{e.params.Constants, e.params.Derived} {
		if slices.ContainsFunc(list, func(a assignment) bool { return a.name == info.Name }) {
			return true
		}
	}
	return info.Optional || e.config.Sequence != nil && slices.ContainsFunc(e.config.Sequence.ControlInputs, func(c ControlConfig) bool { return strings.EqualFold(c.Name, info.Name) })
}

// outputs notes what names tell of the outputs. A name of an output that is on no
// input says nothing of the batch.
func (e *evidence) outputs(c *candidate) {
	names := map[string]bool{} // of batch axes
	for i, found := range c.in {
		if found.axis != noAxis && e.sig.Inputs[i].Symbols[found.axis] != "" {
			names[e.sig.Inputs[i].Symbols[found.axis]] = true
		}
	}
	for i := range c.out {
		info := &e.sig.Outputs[i]
		c.out[i] = batchAxis{axis: noAxis}
		if axis, told, err := toldAxis(e.params, info); told && err == nil {
			c.out[i] = batchAxis{axis, true, "batch_axes"}
			continue
		}
		if info.Dims.Fixed() {
			c.out[i] = batchAxis{noAxis, true, "its shape is fixed"}
			continue
		}
		if !c.lanes() {
			c.out[i] = batchAxis{noAxis, true, "no axis follows the batch"}
			continue
		}
		for axis, symbol := range info.Symbols {
			if names[symbol] && info.onceAt(symbol) == axis && !c.out[i].known {
				c.out[i] = batchAxis{axis, true, fmt.Sprintf("axis %q", symbol)}
			}
		}
	}
}

// carriers is how many tensors have one axis of that name.
func (e *evidence) carriers(symbol string) (n int) {
	for _, infos := range [][]TensorInfo{e.sig.Inputs, e.sig.Outputs} {
		for i := range infos {
			if infos[i].onceAt(symbol) != noAxis {
				n++
			}
		}
	}
	return n
}

// everywhere reports whether a name stands once on every tensor with an open axis.
func (e *evidence) everywhere(symbol string) bool {
	for _, infos := range [][]TensorInfo{e.sig.Inputs, e.sig.Outputs} {
		for i := range infos {
			if len(dynamicAxes(&infos[i])) > 0 && infos[i].onceAt(symbol) == noAxis {
				return false
			}
		}
	}
	return len(e.told) == 0
}

// byBatchNames goes by axes that have a name of batches. Several such names in one
// tensor are told apart by how many tensors carry them.
func (e *evidence) byBatchNames() {
	axes := map[int]int{}
	weight, exported := 0, false
	for _, i := range e.open {
		info := &e.sig.Inputs[i]
		most, tie := 0, false
		for axis, symbol := range info.Symbols {
			if info.onceAt(symbol) != axis || !isBatchName(symbol) {
				continue
			}
			switch n := e.carriers(symbol); {
			case n > most:
				axes[i], most, tie = axis, n, false
			case n == most:
				tie = true
			}
		}
		if tie {
			delete(axes, i)
			continue
		}
		weight = max(weight, most)
		if axis, ok := axes[i]; ok {
			exported = exported || e.everywhere(info.Symbols[axis])
		}
	}
	if len(axes) == 0 {
		return
	}
	r := byBatchName
	if slices.ContainsFunc(e.open, func(i int) bool { _, named := axes[i]; return !named && !e.fill(i) }) {
		r, weight = byOtherName, weight+len(e.sig.Inputs)+len(e.sig.Outputs) // before all other names
	}
	e.completed(r, weight, axes, func(c *candidate) { c.exported = exported })
}

// byMarks goes by dims that name every axis of the model, with -1 for the batch, as
// configurations of NVIDIA's backend do.
func (e *evidence) byMarks() {
	axes := map[int]int{}
	for _, c := range e.config.Inputs {
		i := tensorName(c.Name, e.sig.Inputs)
		dims := c.lane()
		if i < 0 || !slices.Contains(e.open, i) || e.config.MaxBatchSize == 0 || len(dims) != len(e.sig.Inputs[i].Dims) {
			continue
		}
		if axis := onlyDynamic(dims); axis != noAxis && e.sig.Inputs[i].Dims[axis] < 0 && !isLengthName(e.sig.Inputs[i].Symbols[axis]) {
			axes[i] = axis
		}
	}
	for i, axis := range axes {
		for _, other := range e.open {
			if at := e.sig.Inputs[other].onceAt(e.sig.Inputs[i].Symbols[axis]); at != noAxis && e.sig.Inputs[i].Symbols[axis] != "" {
				if _, marked := axes[other]; !marked {
					axes[other] = at
				}
			}
		}
	}
	if len(axes) > 0 {
		e.completed(byBatchName, 0, axes, nil)
	}
}

// byOtherNames goes by each other name. A length is on many tensors too, so that runs
// have to show which name is the batch's.
func (e *evidence) byOtherNames() {
	var symbols []string
	for _, i := range e.open {
		for _, symbol := range e.sig.Inputs[i].Symbols {
			if symbol != "" && !isBatchName(symbol) && !isLengthName(symbol) && !slices.Contains(symbols, symbol) {
				symbols = append(symbols, symbol)
			}
		}
	}
	const most = 8
	slices.SortStableFunc(symbols, func(a, b string) int { return e.carriers(b) - e.carriers(a) })
	for _, symbol := range symbols[:min(len(symbols), most)] {
		axes := map[int]int{}
		for _, i := range e.open {
			if at := e.sig.Inputs[i].onceAt(symbol); at != noAxis {
				axes[i] = at
			}
		}
		if len(axes) > 0 {
			e.completed(byOtherName, e.carriers(symbol), axes, nil)
		}
	}
}

// completed adds the candidates that have these batch axes; inputs that are not among
// them have theirs where it is natural, or else at their first or last open axis.
func (e *evidence) completed(r rank, weight int, axes map[int]int, note func(*candidate)) {
	rests := []func(int) batchAxis{e.natural, e.front(0), e.back(0)}
	for _, rest := range rests {
		c := e.add(r, weight, func(i int) batchAxis {
			axis, ok := axes[i]
			if !ok {
				return rest(i)
			}
			info := &e.sig.Inputs[i]
			switch symbol := info.Symbols[axis]; {
			case symbol != "":
				return batchAxis{axis, true, fmt.Sprintf("axis %q", symbol)}
			case len(dynamicAxes(info)) == 1:
				return batchAxis{axis, true, "its only dynamic axis"}
			case e.implicit(info):
				return batchAxis{axis, true, "the first axis, as Triton has it"}
			default:
				return batchAxis{axis, true, foundByRuns}
			}
		})
		if c != nil && note != nil {
			note(c)
		}
	}
}

// natural is the batch axis of an input on which no name tells it: the only open
// one, if it has no name, and the first one of Triton's implicit states.
func (e *evidence) natural(input int) batchAxis {
	info := &e.sig.Inputs[input]
	open := dynamicAxes(info)
	switch {
	case len(open) == 1 && info.Symbols[open[0]] == "":
		return batchAxis{open[0], true, "its only dynamic axis"}
	case open[0] == 0 && e.implicit(info):
		return batchAxis{0, true, "the first axis, as Triton has it"}
	case info.named():
		return batchAxis{noAxis, true, "none of its names is the batch's"}
	default:
		return batchAxis{noAxis, true, "no axis follows the batch"}
	}
}

// asTriton takes the outermost axis of every input where states are listed as those of
// Triton's implicit state: with it nothing else is possible.
func (e *evidence) asTriton() {
	axes := map[int]int{}
	listed := false
	for _, i := range e.open {
		if info := &e.sig.Inputs[i]; info.Dims[0] < 0 {
			axes[i] = 0
			listed = listed || e.implicit(info)
		}
	}
	if listed {
		e.completed(byBatchName, 0, axes, nil)
	}
}

// implicit reports whether an input is listed as one of Triton's implicit states, with
// the dims that leave out the batch.
func (e *evidence) implicit(info *TensorInfo) bool {
	return e.config.Sequence != nil && e.config.MaxBatchSize > 0 && slices.ContainsFunc(e.config.Sequence.States, func(s StateConfig) bool {
		return s.InputName == info.Name && len(s.Dims) == len(info.Dims)-1
	})
}

// front takes the k-th open axis of an input, or the last that it has; lengths by their
// names do not count.
func (e *evidence) front(k int) func(int) batchAxis {
	return func(input int) batchAxis {
		open := e.nameless(input)
		if len(open) == 0 {
			return batchAxis{noAxis, true, "its names are those of lengths"}
		}
		return batchAxis{open[min(k, len(open)-1)], true, foundByRuns}
	}
}

// nameless are the open axes of an input that are no lengths by their names.
func (e *evidence) nameless(input int) []int {
	info := &e.sig.Inputs[input]
	return slices.DeleteFunc(dynamicAxes(info), func(axis int) bool { return isLengthName(info.Symbols[axis]) })
}

// back is front, counted from the innermost axis.
func (e *evidence) back(k int) func(int) batchAxis {
	return func(input int) batchAxis {
		open := e.nameless(input)
		if len(open) == 0 {
			return batchAxis{noAxis, true, "its names are those of lengths"}
		}
		return batchAxis{open[max(len(open)-1-k, 0)], true, foundByRuns}
	}
}

// byPositions goes by the place among the open axes, whatever these are called.
func (e *evidence) byPositions() {
	most := 0
	for _, i := range e.open {
		most = max(most, len(dynamicAxes(&e.sig.Inputs[i])))
	}
	if e.unnamed() {
		e.add(byPosition, 0, e.natural)
	}
	for k := range most {
		e.add(byPosition, 0, e.front(k))
		e.add(byPosition, 0, e.back(k))
	}
}

// unnamed reports whether no open input names an axis.
func (e *evidence) unnamed() bool {
	return !slices.ContainsFunc(e.open, func(i int) bool { return e.sig.Inputs[i].named() })
}

// fixedAtOne reports whether every input with an open axis has an outermost axis of
// extent 1, and none a name of batches: then the exporter has fixed the batch.
func (e *evidence) fixedAtOne() bool {
	for _, i := range e.open {
		info := &e.sig.Inputs[i]
		if info.Dims[0] != 1 || slices.ContainsFunc(info.Symbols, isBatchName) {
			return false
		}
	}
	return true
}

// none adds the candidate in which no open axis is the batch. It is the last one also
// where it is among the first: by then runs may have shown what else no axis is.
func (e *evidence) none(r rank) {
	if c := e.add(withoutAny, 0, func(int) batchAxis { return batchAxis{noAxis, true, "no axis follows the batch"} }); c != nil {
		c.rank = r
	}
}
