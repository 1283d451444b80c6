package backend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"tritonstateful/internal/tensor"
)

// verdict is what runs show of a candidate.
type verdict uint8

const (
	// notJudged: no run shows anything.
	notJudged verdict = iota
	// apart: each lane is as if it ran alone, whatever the others hold.
	apart
	// notApart: something of one lane depends on another.
	notApart
	// single: the model runs with one lane and never with more.
	single
)

// judgement is a verdict with its reason.
type judgement struct {
	verdict verdict
	why     string
	// out has the batch axis of each wanted output, by its position in the
	// signature, where runs have shown it.
	out map[int]int
}

// failuresMost bounds how many settings are tried in which the model runs with one
// lane but not with several.
const failuresMost = 12

// judge tries a candidate: it looks for a setting in which the model runs, then
// compares. expected are the batch axes of outputs that are known beforehand.
func (t *trial) judge(expected []batchAxis) judgement {
	var failure error
	failures, alone := 0, false
	for s := range settings() {
		if time.Now().After(t.deadline) {
			return judgement{verdict: notJudged, why: "the runs that show it took too long"}
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
			return judgement{verdict: notApart, why: why}
		}
		if !slices.ContainsFunc(t.inputs, func(in trialInput) bool { return t.laned(&in) }) {
			return judgement{verdict: single, why: "no input has lanes"}
		}
		j, err := t.compare(s, first, one, expected)
		if err == nil {
			return j
		}
		failure, failures = err, failures+1
		if failures >= failuresMost {
			break
		}
	}
	switch {
	case alone:
		return judgement{verdict: single, why: fmt.Sprintf("the model runs with one of them, and not with two: %v", failure)}
	case failure == nil:
		failure = errors.New("its inputs are too large, or of types that have no contents")
	}
	return judgement{verdict: notJudged, why: fmt.Sprintf("the model does not run on any contents that were tried, in the end with: %v", failure)}
}

// lengthens tells which state is longer after a step of one lane along the axis that is to
// be its batch.
func (t *trial) lengthens(one []Tensor) (why string) {
	for i := range t.inputs {
		in := &t.inputs[i]
		if in.begin == nil || !t.laned(in) || t.optional[in.state] {
			continue
		}
		if out := &one[slices.Index(t.outputs, in.state)]; in.axis < len(out.Shape) && out.Shape[in.axis] != 1 {
			return fmt.Sprintf("output %q has shape %v for one of them", t.sig.Outputs[in.state].Name, out.Shape)
		}
	}
	return ""
}

// errNoEvidence is about runs from which nothing follows.
var errNoEvidence = errors.New("its outputs are not numbers")

// compare runs several lanes and compares. An error is that they do not run.
func (t *trial) compare(s setting, first lane, one []Tensor, expected []batchAxis) (judgement, error) {
	lanes, err := t.lanes(s, first)
	if err != nil {
		return judgement{}, err
	}
	many, err := t.run(s, lanes...)
	if err != nil {
		return judgement{}, err
	}
	if meaningless(many) {
		return judgement{}, errNoEvidence
	}
	axes, why := t.follow(one, many, len(lanes), expected)
	j := judgement{verdict: notApart, why: why, out: map[int]int{}}
	for k, axis := range axes {
		j.out[t.outputs[k]] = axis
	}
	if why != "" {
		return j, nil
	}
	if !slices.ContainsFunc(axes, func(axis int) bool { return axis != noAxis }) {
		j.verdict, j.why = notJudged, "no output has lanes in which something could be seen"
		return j, nil
	}
	again, err := t.run(s, lanes...)
	if err != nil {
		return judgement{}, err
	}
	if !same(many, again) {
		if t.open == nil || t.fresh {
			j.verdict, j.why = notJudged, "two runs on the same inputs differ"
			return j, nil
		}
		t.fresh = true
		defer func() { t.fresh = false }()
		if many, err = t.run(s, lanes...); err == nil {
			again, err = t.run(s, lanes...)
		}
		if err != nil || !same(many, again) {
			j.verdict, j.why = notJudged, "two runs on the same inputs differ"
			return j, nil
		}
	}
	if j.why, err = t.independent(s, lanes, many, axes); err != nil || j.why != "" {
		return j, err
	}
	if !t.fresh { // chance is drawn anew where shapes differ
		if j.why, err = t.asAlone(s, lanes, one, many, axes); err != nil || j.why != "" {
			return j, err
		}
	}
	if j.why = t.varied(s, axes); j.why != "" {
		return j, nil
	}
	if input := t.untold(s); input != "" {
		j.verdict, j.why = notJudged, fmt.Sprintf("the model runs only where %q is the same for all", input)
		return j, nil
	}
	j.verdict = apart
	return j, nil
}

// lanes are the first and others, of a number that no other axis has.
func (t *trial) lanes(s setting, first lane) ([]lane, error) {
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
func meaningless(outputs []Tensor) bool {
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
// one lane and the number of lanes with several, while all others stay. why tells what
// contradicts.
func (t *trial) follow(one, many []Tensor, lanes int, expected []batchAxis) (axes []int, why string) {
	axes = make([]int, len(t.outputs))
	for k, at := range t.outputs {
		name := t.sig.Outputs[at].Name
		axes[k] = noAxis
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
		open := axes[k] != noAxis && (dims == nil || dims[axes[k]] < 0)
		if want.known && want.axis == noAxis && !open {
			axes[k] = noAxis // the model file fixes it, and so does a run with one lane
			continue
		}
		if differs := len(a) != len(b) || differ > 1 || differ == 1 && axes[k] == noAxis; (differs || want.known && axes[k] != want.axis) && why == "" {
			why = fmt.Sprintf("output %q has shape %v for one of them and %v for %d", name, a, b, lanes)
		}
	}
	return axes, why
}

// independent gives the other lanes other contents, also much larger and smaller ones,
// and tells what of a lane changes, be it by a bit.
func (t *trial) independent(s setting, lanes []lane, before []Tensor, axes []int) (why string, err error) {
	last := len(lanes) - 1
	lanes = slices.Clone(lanes)
	for _, round := range []struct {
		kept  int
		scale float64
	}{{0, 1}, {0, 64}, {last, 1}, {last, 1. / 64}} {
		for i := range lanes {
			if i == round.kept {
				continue
			}
			l, ok := t.newLane(s, round.scale, lanes[i])
			if !ok {
				return "", errNoEvidence
			}
			lanes[i] = l
		}
		after, err := t.run(s, lanes...)
		if err != nil {
			return "", err
		}
		for k, axis := range axes {
			if axis != noAxis && !bytes.Equal(before[k].lane(axis, round.kept), after[k].lane(axis, round.kept)) {
				return fmt.Sprintf("output %q of one changes with the inputs of another", t.sig.Outputs[t.outputs[k]].Name), nil
			}
		}
		before = after
	}
	return "", nil
}

// asAlone compares the first and the last lane with runs of their own, as far as
// rounding allows: kernels differ between sizes of batches.
func (t *trial) asAlone(s setting, lanes []lane, one, many []Tensor, axes []int) (why string, err error) {
	last := len(lanes) - 1
	other, err := t.run(s, lanes[last])
	if err != nil {
		return "", err
	}
	for lane, own := range map[int][]Tensor{0: one, last: other} {
		for k, axis := range axes {
			if axis == noAxis {
				continue
			}
			if a, b := own[k].lane(axis, 0), many[k].lane(axis, lane); !equalLanes(a, b, own[k].DType) {
				return fmt.Sprintf("output %q of one is another when it runs alone", t.sig.Outputs[t.outputs[k]].Name), nil
			}
		}
	}
	return "", nil
}

// untold is an input with lanes that could only be tried with the same contents in all
// of them, so that nothing was seen of what crosses by it.
func (t *trial) untold(s setting) string {
	if s.contents != ones && s.contents != zeros {
		return ""
	}
	for i := range t.inputs {
		in := &t.inputs[i]
		switch in.dtype {
		case tensor.FP16, tensor.FP32, tensor.FP64, tensor.BF16:
			continue
		}
		if t.laned(in) && in.fill == nil && !in.mask {
			return t.sig.Inputs[in.at].Name
		}
	}
	return ""
}

func same(a, b []Tensor) bool {
	return slices.EqualFunc(a, b, func(x, y Tensor) bool { return x.Shape.Equal(y.Shape) && bytes.Equal(x.Data.Bytes, y.Data.Bytes) })
}

// tolerance is how far numbers of a type may be apart, of the largest of them.
var tolerance = map[tensor.DType]float64{tensor.FP64: 1e-6, tensor.FP32: 1e-3, tensor.FP16: 2e-2, tensor.BF16: 5e-2}

// equalLanes reports whether two lanes are equal but for rounding.
func equalLanes(a, b []byte, dtype tensor.DType) bool {
	bound, fractions := tolerance[dtype]
	if !fractions || len(a) != len(b) {
		return bytes.Equal(a, b)
	}
	x, y := slices.Collect(values(a, dtype)), slices.Collect(values(b, dtype))
	most := 0.0
	for _, v := range x {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			most = max(most, math.Abs(v))
		}
	}
	for i := range x {
		if x[i] != y[i] && !(math.IsNaN(x[i]) && math.IsNaN(y[i])) && !(math.Abs(x[i]-y[i]) <= bound*most) {
			return false
		}
	}
	return true
}

// values are the numbers of a tensor of fractions; others have none.
func values(data []byte, dtype tensor.DType) func(yield func(float64) bool) {
	size := dtype.Size()
	return func(yield func(float64) bool) {
		if _, fractions := tolerance[dtype]; !fractions {
			return
		}
		for ; len(data) >= size; data = data[size:] {
			var v float64
			switch dtype {
			case tensor.FP64:
				v = math.Float64frombits(binary.NativeEndian.Uint64(data))
			case tensor.FP32:
				v = float64(math.Float32frombits(binary.NativeEndian.Uint32(data)))
			case tensor.FP16:
				v = float64(tensor.Widen(binary.NativeEndian.Uint16(data)))
			default:
				v = float64(math.Float32frombits(uint32(binary.NativeEndian.Uint16(data)) << 16))
			}
			if !yield(v) {
				return
			}
		}
	}
}

// growth is what runs show of an open axis of a state.
type growth uint8

const (
	unseen growth = iota
	stays         // its extent is as before a step
	grows         // it is another: the axis is not the batch
)

// axisOfInput is an axis of an input, by its position in the signature.
type axisOfInput struct{ at, axis int }

// growth runs one lane with states that are not empty, and tells of their open axes
// whether a step changes their extents. States of nothing are not tried: along an axis
// that is the batch after all, kernels of ONNX Runtime end the process. Two extents are,
// for one may be that of a window. States of one element are only tried where others do
// not run, because they are stretched to any length.
func (t *trial) growth() map[axisOfInput]growth {
	seen := map[axisOfInput]growth{}
	for _, states := range []stateExtent{statesAlike, statesOne} {
		ran := map[int64]bool{} // by their extents
		for s := range settings() {
			if s.states != states || ran[s.extent] || time.Now().After(t.deadline) {
				continue
			}
			l, ok := t.newLane(s, 1, nil)
			if !ok {
				continue
			}
			outputs, err := t.run(s, l)
			if err != nil {
				continue
			}
			t.compareExtents(s, outputs, seen)
			if ran[s.extent] = true; len(ran) == 2 {
				break
			}
		}
		if len(ran) > 0 {
			break
		}
	}
	return seen
}

// compareExtents notes what a step of one lane has made of the extents of states.
func (t *trial) compareExtents(s setting, outputs []Tensor, seen map[axisOfInput]growth) {
	for i := range t.inputs {
		in := &t.inputs[i]
		if in.begin == nil {
			continue
		}
		before, after := t.shape(in, s), outputs[slices.Index(t.outputs, in.state)].Shape
		for axis := range min(len(before), len(after)) {
			switch k := (axisOfInput{in.at, axis}); {
			case before[axis] != after[axis]:
				seen[k] = grows
			case seen[k] == unseen:
				seen[k] = stays
			}
		}
	}
}
