package isolation

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// Verdict is what runs show of a candidate.
type Verdict uint8

const (
	// Undecided means that no run shows anything.
	Undecided Verdict = iota
	// Isolated means that each lane is as if it ran alone, whatever the others hold.
	Isolated
	// NotIsolated means that something of one lane depends on another.
	NotIsolated
	// OneLane means that the model runs with one lane and never with more.
	OneLane
)

// Judgement is a verdict with its reason.
type Judgement struct {
	Verdict Verdict
	Why     string
	// RanAlone: the model ran with one lane.
	RanAlone bool
	// Misshapen: the shapes of outputs contradict the axes, not only their contents.
	// WrongAlone: that of a run with one lane does.
	Misshapen, WrongAlone bool
	// Out has the batch axis of each wanted output, by its position in the
	// signature, where runs have shown it.
	Out map[int]int
}

// failuresMost bounds how many settings are tried in which the model runs with one
// lane but not with several.
const failuresMost = 12

// Judge tries a candidate: it looks for a setting in which the model runs, then
// compares. expected are the batch axes of outputs that are known beforehand.
func (t *Trial) Judge(expected []batchaxis.Axis) Judgement {
	var failure error
	failures, alone, several := 0, false, false
	for s := range t.settings() {
		if time.Now().After(t.deadline) {
			return Judgement{Verdict: Undecided, Why: errTooLong.Error()}
		}
		first, ok := t.newLane(s, 1, nil)
		if !ok {
			continue
		}
		one, err := t.run(s, first)
		if err != nil {
			failure = err
			continue
		}
		alone = true
		if why := t.lengthens(one); why != "" {
			return Judgement{Verdict: NotIsolated, Why: why, RanAlone: true, Misshapen: true, WrongAlone: true}
		}
		if !slices.ContainsFunc(t.inputs, func(in trialInput) bool { return t.laned(&in) }) {
			return Judgement{Verdict: OneLane, RanAlone: true, Why: "no input has lanes"}
		}
		j, ran, err := t.compare(s, first, one, expected)
		if j.RanAlone = true; err == nil {
			return j
		}
		several = several || ran
		failure, failures = err, failures+1
		if failures >= failuresMost {
			break
		}
	}
	switch {
	case alone && !several:
		return Judgement{Verdict: OneLane, RanAlone: true, Why: fmt.Sprintf("the model runs with one request, and not with two: %v", failure)}
	case failure == nil:
		failure = errors.New("its inputs are too large, or of unsupported types")
	}
	return Judgement{Verdict: Undecided, RanAlone: alone, Why: fmt.Sprintf("the model did not run with any contents that were tried, at lengths from 1 to 1600 (a length that dims fix is tried as it is); the last failure: %v", failure)}
}

// lengthens returns which state is longer after a step of one lane along the axis that is to
// be its batch.
func (t *Trial) lengthens(one []onnx.Tensor) (why string) {
	for i := range t.inputs {
		in := &t.inputs[i]
		if in.begin == nil || !t.laned(in) || t.optional[in.state] {
			continue
		}
		if out := &one[slices.Index(t.outputs, in.state)]; in.axis < len(out.Shape) && out.Shape[in.axis] != 1 {
			return fmt.Sprintf("output %q has shape %v for one request", t.sig.Outputs[in.state].Name, out.Shape)
		}
	}
	return ""
}

// errNoEvidence is about runs from which nothing follows.
var errNoEvidence = errors.New("its outputs are not numbers")

// compare runs several lanes and compares. An error is that they do not run in this
// setting; several reports whether they did before something else went wrong.
func (t *Trial) compare(s setting, first lane, one []onnx.Tensor, expected []batchaxis.Axis) (j Judgement, several bool, err error) {
	defer func() { t.fresh = false }()
	lanes := &comparison{t: t, setting: s, first: first, one: one, expected: expected, scaled: true}
	few := [][]role{inThree, inTwo}
	switch three := !t.isExtent(3, s); {
	case three && t.variesHere(s):
		lanes.roles = mixed
		if j, _, err = lanes.judge(); err == nil || errors.Is(err, errTooLong) {
			return j, true, err
		}
	case t.open(s) && s.extent == 2:
		few = few[:1]
	case !three:
		few = few[1:]
	}
	for _, lanes.roles = range few {
		for _, lanes.scaled = range []bool{true, false} { // it may take no such numbers
			j, several, err = lanes.judge()
			if !several || err == nil || errors.Is(err, errTooLong) {
				break
			}
		}
		if several {
			break // else it may run with fewer lanes
		}
	}
	return j, several, err
}

// meaningless reports whether every number that outputs hold is not one.
func meaningless(outputs []onnx.Tensor) bool {
	numbers := false
	for i := range outputs {
		for v := range values(outputs[i].Data.Bytes, outputs[i].DType) {
			if !math.IsNaN(v) {
				return false
			}
			numbers = true
		}
	}
	return numbers
}

// follow finds the batch axis of each wanted output: the one whose extent is 1 with
// one lane and the number of lanes with several, while all others stay. why says what
// contradicts.
func (t *Trial) follow(one, many []onnx.Tensor, lanes int, expected []batchaxis.Axis) (axes []int, why string) {
	axes = make([]int, len(t.outputs))
	for k, at := range t.outputs {
		name := t.sig.Outputs[at].Name
		axes[k] = tensor.NoAxis
		a, b := one[k].Shape, many[k].Shape
		if t.optional[at] && (slices.Contains(a, 0) || slices.Contains(b, 0)) {
			continue
		}
		differ := 0
		for axis := range min(len(a), len(b)) {
			if a[axis] != b[axis] {
				differ++
				if a[axis] == 1 && b[axis] == int64(lanes) {
					axes[k] = axis
				}
			}
		}
		want := expected[at]
		dims := t.sig.Outputs[at].Dims // nil where the model does not even say how many
		open := axes[k] != tensor.NoAxis && (dims == nil || dims[axes[k]] < 0)
		if want.Known && want.Index == tensor.NoAxis && !open {
			axes[k] = tensor.NoAxis // the model file fixes it, and so does a run with one lane
			continue
		}
		if differs := len(a) != len(b) || differ > 1 || differ == 1 && axes[k] == tensor.NoAxis; (differs || want.Known && axes[k] != want.Index) && why == "" {
			why = fmt.Sprintf("output %q has shape %v for one request and %v for %d", name, a, b, lanes)
		}
	}
	return axes, why
}

// uniformInput is an input with lanes that could only be tried with the same contents in all
// of them, so that nothing was seen of what crosses by it.
func (t *Trial) uniformInput(s setting) string {
	if s.contents != ones && s.contents != zeros {
		return ""
	}
	for i := range t.inputs {
		in := &t.inputs[i]
		if _, fractions := tolerance[in.dtype]; !fractions && t.laned(in) && in.generated == nil && !in.mask {
			return t.sig.Inputs[in.index].Name
		}
	}
	return ""
}

// OnlyBatchIsOne reports, of a model with which no several lanes run, whether the axes that
// take 1 and nothing else are a batch that the exporter has fixed: it is, if they are the
// only ones that it can be.
func (t *Trial) OnlyBatchIsOne() bool {
	return !slices.ContainsFunc(t.inputs, func(in trialInput) bool {
		info := &t.sig.Inputs[in.index]
		return t.laned(&in) && len(batchaxis.OpenAxes(info)) > 1 && !batchaxis.IsBatchName(info.Symbols[in.axis])
	})
}
