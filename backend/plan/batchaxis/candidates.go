package batchaxis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// A Candidate is one way to say which axis of each tensor is the batch. Evidence
// puts candidates in an order; runs of the model show which of them is true.
type Candidate struct {
	// In and out have the batch axis of each tensor, by its position in the
	// signature. What is not known of an output, runs or the configuration show.
	In, Out []Axis
	Rank    Rank
	// Weight is how many tensors carry the name that the candidate goes by, to
	// choose between candidates of one rank that are all true.
	Weight int
	// Everywhere: one name of batches stands once on every tensor that has an open axis,
	// so that the exporter must have written it.
	Everywhere bool
	// LongName: its name is longer than a letter, which could stand for anything.
	LongName bool
	// InputsGiven: batch_axes names every input with an open axis. AllGiven: every output
	// as well.
	InputsGiven, AllGiven bool
	// SingleLane: the model runs with one lane and with no other number of them. It is set
	// by the runs.
	SingleLane bool
}

// Rank says how good the evidence for a candidate is; the least is the best.
type Rank uint8

// The ranks.
const (
	ByBatchName      Rank = iota // a name of batches on every input, dims with -1 for the batch, or a batch that is fixed at 1
	ByOtherName                  // any name on some inputs
	ByPosition                   // the same position among the open axes of every input
	ByCombination                // any open axis of each input
	SomeWithoutBatch             // as above, with inputs that have open axes and no batch
	WithoutBatch                 // no batch at all
)

// FoundByRuns is how an axis was found that only runs of the model show.
const FoundByRuns = "found by runs"

// evidence is what candidates are made of.
type evidence struct {
	config *config.Config
	params *config.Parameters
	sig    *onnx.Signature
	// given are the axes that batch_axes gives, by the position of the input.
	given map[int]int
	// open are the inputs that have an axis which may be the batch and which
	// batch_axes does not name.
	open []int
	all  []Candidate
}

// Candidates lists the ways in which the axes of a model can be its batch, the
// likeliest first. There is always one.
func Candidates(cfg *config.Config, params *config.Parameters, sig *onnx.Signature) []Candidate {
	e := &evidence{config: cfg, params: params, sig: sig, given: map[int]int{}}
	for i := range sig.Inputs {
		if axis, given, _ := Given(params, &sig.Inputs[i]); given {
			e.given[i] = axis
		} else if len(OpenAxes(&sig.Inputs[i])) > 0 {
			e.open = append(e.open, i)
		}
	}
	if len(e.open) == 0 {
		e.add(ByBatchName, 0, func(int) Axis { return Axis{Index: tensor.NoAxis, Known: true} })
		e.all[0].InputsGiven, e.all[0].AllGiven = true, e.outputsGiven()
		return e.all
	}
	e.byBatchNames()
	e.byMarks()
	e.asTriton()
	if e.fixedAtOne() {
		e.none(ByBatchName)
	}
	e.byOtherNames()
	e.byPositions()
	e.byCombinations()
	e.none(WithoutBatch)
	slices.SortStableFunc(e.all, func(a, b Candidate) int { return cmp.Compare(a.Rank, b.Rank) })
	return e.all
}

// outputsGiven reports whether batch_axes also names every output with an open axis.
func (e *evidence) outputsGiven() bool {
	for i := range e.sig.Outputs {
		info := &e.sig.Outputs[i]
		if _, given, _ := Given(e.params, info); !given && len(OpenAxes(info)) > 0 && e.config.CanRequest(info.Name) {
			return false
		}
	}
	return true
}

// add appends a candidate, unless it is there. It leaves out what batch_axes says
// and what is fixed; for the other inputs, axis says.
func (e *evidence) add(r Rank, weight int, axis func(input int) Axis) *Candidate {
	c := Candidate{Rank: r, Weight: weight, In: make([]Axis, len(e.sig.Inputs)), Out: make([]Axis, len(e.sig.Outputs))}
	for i := range c.In {
		given, is := e.given[i]
		switch {
		case is:
			c.In[i] = Axis{given, true, ByParameter}
		case e.sig.Inputs[i].Dims.Fixed():
			c.In[i] = Axis{tensor.NoAxis, true, "its shape is fixed"}
		default:
			c.In[i] = axis(i)
		}
	}
	if r < SomeWithoutBatch && slices.ContainsFunc(e.open, func(i int) bool { return c.In[i].Index == tensor.NoAxis && !e.isGenerated(i) }) {
		c.Rank = SomeWithoutBatch
	}
	for _, other := range e.all {
		if r != WithoutBatch && slices.EqualFunc(other.In, c.In, func(a, b Axis) bool { return a.Index == b.Index }) {
			return nil
		}
	}
	e.outputs(&c)
	e.all = append(e.all, c)
	return &e.all[len(e.all)-1]
}

// isGenerated reports whether an input is one that the backend writes itself.
func (e *evidence) isGenerated(input int) bool {
	info := &e.sig.Inputs[input]
	for _, list := range [][]config.Assignment{e.params.Constants, e.params.Derived} {
		if slices.ContainsFunc(list, func(a config.Assignment) bool { return a.Name == info.Name }) {
			return true
		}
	}
	return info.Optional || e.config.Sequence != nil && slices.ContainsFunc(e.config.Sequence.ControlInputs, func(input config.ControlConfig) bool { return strings.EqualFold(input.Name, info.Name) })
}

// outputs notes what names say about the outputs. A name of an output that is on no
// input says nothing of the batch.
func (e *evidence) outputs(c *Candidate) {
	names := map[string]bool{} // of batch axes
	for i, found := range c.In {
		if found.Index != tensor.NoAxis && e.sig.Inputs[i].Symbols[found.Index] != "" {
			names[e.sig.Inputs[i].Symbols[found.Index]] = true
		}
	}
	for i := range c.Out {
		info := &e.sig.Outputs[i]
		c.Out[i] = Axis{Index: tensor.NoAxis}
		if axis, given, err := Given(e.params, info); given && err == nil {
			c.Out[i] = Axis{axis, true, ByParameter}
			continue
		}
		if info.Dims.Fixed() {
			c.Out[i] = Axis{tensor.NoAxis, true, "its shape is fixed"}
			continue
		}
		if !c.HasLanes() {
			c.Out[i] = Axis{tensor.NoAxis, true, "no axis follows the batch"}
			continue
		}
		for axis, symbol := range info.Symbols {
			if names[symbol] && AxisNamed(info, symbol) == axis && !c.Out[i].Known {
				c.Out[i] = Axis{axis, true, fmt.Sprintf("axis %q", symbol)}
			}
		}
	}
}

// carriers is how many tensors have one axis of that name.
func (e *evidence) carriers(symbol string) (n int) {
	for _, infos := range [][]onnx.TensorInfo{e.sig.Inputs, e.sig.Outputs} {
		for i := range infos {
			if AxisNamed(&infos[i], symbol) != tensor.NoAxis {
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
			if len(OpenAxes(&infos[i])) > 0 && AxisNamed(&infos[i], symbol) == tensor.NoAxis {
				return false
			}
		}
	}
	return len(e.given) == 0
}

// HasLanes reports whether some input has a batch axis.
func (c *Candidate) HasLanes() bool {
	return slices.ContainsFunc(c.In, func(a Axis) bool { return a.Index != tensor.NoAxis })
}

// IsInferred reports whether the candidate says more than batch_axes does.
func (c *Candidate) IsInferred() bool {
	return slices.ContainsFunc(c.In, func(a Axis) bool { return a.Index != tensor.NoAxis && a.How != ByParameter }) ||
		slices.ContainsFunc(c.Out, func(a Axis) bool { return !a.Known })
}
