package isolation

import (
	"errors"
	"fmt"
	"slices"

	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// A comparison runs lanes that have some roles, in one setting, and compares what they get.
type comparison struct {
	t       *Trial
	setting setting
	roles   []role
	scaled  bool // some lanes have much larger fractions, and some much smaller ones
	// first is what one lane has run with, and one is what it got.
	first lane
	one   []onnx.Tensor
	// expected are the batch axes of outputs that are known beforehand.
	expected []batchaxis.Axis
}

// judge runs the lanes. Where the model has chance in it, each run gets a session of its own, in
// which all draw the same. An error is that the model does not run with these contents; several
// reports whether it has run with so many lanes.
func (c *comparison) judge() (j Judgement, several bool, err error) {
	j, several, err = c.run()
	if errors.Is(err, errByChance) && !c.t.fresh && c.t.Open != nil {
		c.t.fresh = true
		j, several, err = c.run()
	}
	if errors.Is(err, errByChance) {
		return Judgement{Verdict: Undecided, Why: err.Error(), Out: j.Out}, true, nil
	}
	return j, several, err
}

// run is judge, but for chance.
func (c *comparison) run() (j Judgement, several bool, err error) {
	t := c.t
	lanes, ok := t.lanesOf(c.setting, c.roles, c.first, c.scaled)
	if !ok {
		return j, false, errNoContents
	}
	var axes []int
	j = Judgement{Verdict: NotIsolated}
	several, j.Why, err = t.runRoles(c.setting, lanes, c.roles, func(runs [][]onnx.Tensor) (why string, err error) {
		if len(runs) == 1 {
			axes, why, err = c.axes(runs[0], &j)
			return why, err
		}
		return c.differs(lanes, runs, axes), nil
	})
	switch {
	case errors.Is(err, errNothingToCompare):
		j.Verdict, j.Why = Undecided, err.Error()
		return j, true, nil
	case err != nil || j.Why != "":
		return j, several, err
	}
	if !isMixed(c.roles) {
		if j.Why, err = t.varied(c.setting, axes); err != nil || j.Why != "" {
			return j, true, err
		}
	}
	if input := t.uniformInput(c.setting); input != "" {
		j.Verdict, j.Why = Undecided, fmt.Sprintf("the model runs only where %q is the same for all requests", input)
		return j, true, nil
	}
	j.Verdict = Isolated
	return j, true, nil
}

// errNothingToCompare is about a model none of whose outputs has lanes.
var errNothingToCompare = errors.New("no output has a batch axis that could be compared")

// axes finds the batch axes of outputs from the first run, and notes them.
func (c *comparison) axes(many []onnx.Tensor, j *Judgement) (axes []int, why string, err error) {
	if meaningless(many) {
		return nil, "", errNoEvidence
	}
	axes, why = c.t.follow(c.one, many, len(c.roles), c.expected)
	if why != "" {
		j.Misshapen = true
		return axes, why, nil
	}
	j.Out = map[int]int{}
	for k, axis := range axes {
		j.Out[c.t.outputs[k]] = axis
	}
	if !slices.ContainsFunc(axes, func(axis int) bool { return axis != tensor.NoAxis }) {
		return axes, "", errNothingToCompare
	}
	return axes, "", nil
}

// differs compares the last run with those before it, and after all of them lanes with the run of
// one lane: what changes with the contents of another lane says more.
func (c *comparison) differs(lanes [][]lane, runs [][]onnx.Tensor, axes []int) (why string) {
	t := c.t
	if why = t.crosses(runs, c.roles, axes, sameBits); why != "" || t.fresh || len(runs) < len(c.roles[0].runs) {
		return why // random numbers are drawn again where shapes differ
	}
	for run := range runs {
		if why = t.matchesAlone(lanesIn(run, lanes, c.roles), c.first, c.one, runs[run], axes); why != "" {
			return why
		}
	}
	return ""
}
