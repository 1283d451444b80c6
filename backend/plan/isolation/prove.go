package isolation

import (
	"bytes"
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
	lanes, err := t.lanes(s, first)
	if err != nil {
		return j, false, err
	}
	many, err := t.run(s, lanes...)
	if err != nil {
		return j, false, err
	}
	if meaningless(many) {
		return j, true, errNoEvidence
	}
	axes, why := t.follow(one, many, len(lanes), expected)
	if why != "" {
		return Judgement{Verdict: NotIsolated, Why: why, Misshapen: true}, true, nil
	}
	j = Judgement{Verdict: NotIsolated, Out: map[int]int{}}
	for k, axis := range axes {
		j.Out[t.outputs[k]] = axis
	}
	if !slices.ContainsFunc(axes, func(axis int) bool { return axis != tensor.NoAxis }) {
		j.Verdict, j.Why = Undecided, "no output has a batch axis that could be compared"
		return j, true, nil
	}
	defer func() { t.fresh = false }()
	if many, j.Why = t.repeated(s, lanes, many); j.Why != "" {
		j.Verdict = Undecided
		return j, true, nil
	}
	if j.Why, err = t.independent(s, lanes, many, axes); err != nil || j.Why != "" {
		return j, true, err
	}
	if !t.fresh { // random numbers are drawn again where shapes differ
		if j.Why, err = t.matchesAlone(s, lanes, one, many, axes); err != nil || j.Why != "" {
			return j, true, err
		}
	}
	if j.Why, err = t.varied(s, axes); err != nil || j.Why != "" {
		return j, true, err
	}
	if input := t.uniformInput(s); input != "" {
		j.Verdict, j.Why = Undecided, fmt.Sprintf("the model runs only where %q is the same for all requests", input)
		return j, true, nil
	}
	j.Verdict = Isolated
	return j, true, nil
}

// repeated makes a run a second time. Where the model has chance in it, from then on each
// run has a session of its own, in which all draw the same; why says if that does not
// help.
func (t *Trial) repeated(s setting, lanes []lane, many []onnx.Tensor) (outputs []onnx.Tensor, why string) {
	again, err := t.run(s, lanes...)
	if err == nil && !sameTensors(many, again) && t.Open != nil {
		t.fresh = true
		if many, err = t.run(s, lanes...); err == nil {
			again, err = t.run(s, lanes...)
		}
	}
	switch {
	case errors.Is(err, errTooLong):
		return nil, err.Error()
	case err != nil || !sameTensors(many, again):
		return nil, errByChance.Error()
	}
	return many, ""
}

// lanes are the first and others, of a number that no other axis has.
func (t *Trial) lanes(s setting, first lane) ([]lane, error) {
	n := 2
	if s.extent == 2 {
		n = 3
	}
	lanes := []lane{first}
	for len(lanes) < n {
		l, ok := t.newLane(s, 1, first)
		if !ok {
			return nil, errors.New("the inputs are too large")
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
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

// independent gives the other lanes other contents, also much larger and smaller ones,
// and returns what of a lane changes, be it by a bit.
func (t *Trial) independent(s setting, lanes []lane, before []onnx.Tensor, axes []int) (why string, err error) {
	last := len(lanes) - 1
	for _, round := range []struct {
		kept  int
		scale float64
	}{{0, 1}, {0, 64}, {last, 1}, {last, 1. / 64}} {
		changed := slices.Clone(lanes)
		for i := range changed {
			if i == round.kept {
				continue
			}
			l, ok := t.newLane(s, round.scale, lanes[i])
			if !ok {
				return "", errNoEvidence
			}
			changed[i] = l
		}
		after, err := t.run(s, changed...)
		switch {
		case err != nil && round.scale != 1 && !errors.Is(err, errTooLong): // it takes no such numbers
			continue
		case err != nil:
			return "", err
		}
		lanes = changed
		for k, axis := range axes {
			if axis != tensor.NoAxis && !bytes.Equal(laneOf(&before[k], axis, round.kept), laneOf(&after[k], axis, round.kept)) {
				return fmt.Sprintf("output %q of one request changes with the inputs of another", t.sig.Outputs[t.outputs[k]].Name), nil
			}
		}
		before = after
	}
	return "", nil
}

// matchesAlone compares the first and the last lane with runs of their own, as far as
// rounding allows: kernels differ between sizes of batches.
func (t *Trial) matchesAlone(s setting, lanes []lane, one, many []onnx.Tensor, axes []int) (why string, err error) {
	last := len(lanes) - 1
	other, err := t.run(s, lanes[last])
	if err != nil {
		return "", err
	}
	for lane, own := range map[int][]onnx.Tensor{0: one, last: other} {
		for k, axis := range axes {
			if axis == tensor.NoAxis {
				continue
			}
			if a, b := laneOf(&own[k], axis, 0), laneOf(&many[k], axis, lane); !equalLanes(a, b, own[k].DType) {
				return fmt.Sprintf("output %q of one request differs when it runs alone", t.sig.Outputs[t.outputs[k]].Name), nil
			}
		}
	}
	return "", nil
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
