package isolation

import (
	"bytes"
	"fmt"
	"slices"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// A role is what a lane has in each of several runs. Where two runs give a lane the same
// contents, its results must be the same: all that differs is what other lanes have. So a lane
// shows that another one does not reach it if it has the same in two runs between which the
// other one changes.
type role struct {
	runs     []int // for each run, which of the contents; in the first run, the first
	contents []content
}

// content is what kind of numbers a lane has.
type content struct {
	scale float64 // of fractions; 0: what one lane ran alone with
	// varied: numbers that a model is less likely to take, those of an odd lane or of an even
	// one; see Trial.varied.
	varied, odd bool
}

var (
	alone = content{}
	usual = content{scale: 1}
	large = content{scale: 64}
	small = content{scale: 1. / 64}
	even  = content{scale: 1, varied: true}
	odd   = content{scale: 1, varied: true, odd: true}
)

// inThree shows of every two of three lanes both ways that they are isolated. Two runs cannot: a
// lane with the same contents in both never changes for the others.
var inThree = []role{
	{[]int{0, 0, 1}, []content{alone, small}},
	{[]int{0, 1, 0}, []content{usual, alone}},
	{[]int{0, 1, 1}, []content{usual, large}},
}

// inTwo shows the same of two lanes, which have every combination of their contents. A last run is
// about much larger numbers: the first one has only usual ones, which more models accept.
var inTwo = []role{
	{[]int{0, 0, 1, 1, 0}, []content{alone, small}},
	{[]int{0, 1, 1, 0, 2}, []content{usual, alone, large}},
}

// evenAndOdd is inTwo with varied contents, and for three lanes. In the first run all lanes are
// even, and in the third one all are odd, so that each is kept once while it is even and once
// while it is odd, and others become what it is not.
var evenAndOdd = []role{
	{[]int{0, 0, 1, 1}, []content{even, odd}},
	{[]int{0, 1, 1, 0}, []content{even, odd}},
	{[]int{0, 1, 1, 1}, []content{even, odd}},
}

// mixed shows the same with usual contents and with varied ones, u to w:
//
//	run 1: a  a  c
//	run 2: a  v  w
//	run 3: u  a  w
//	run 4: u  v  c
//
// Each lane keeps its usual contents in two runs between which both others change, and its varied
// ones in two. What crosses only where no lane has varied contents is seen, too: in run 1, and then
// no longer.
var mixed = []role{
	{[]int{0, 0, 1, 1}, []content{alone, {scale: 1. / 64, varied: true, odd: true}}},
	{[]int{0, 1, 0, 1}, []content{alone, {scale: 64, varied: true}}},
	{[]int{0, 1, 1, 0}, []content{usual, odd}},
}

// isMixed reports whether varied contents are among those of the roles, and usual ones.
func isMixed(roles []role) bool { return &roles[0] == &mixed[0] }

// isExtent reports whether an axis that is not the batch has an extent in this setting. With as
// many lanes, something could fit by accident.
func (t *Trial) isExtent(lanes int64, s setting) bool {
	if t.open(s) && s.extent == lanes {
		return true
	}
	for i := range t.inputs {
		in := &t.inputs[i]
		for axis, extent := range t.shape(in, s) {
			if axis != in.axis && extent == lanes {
				return true
			}
		}
	}
	return slices.ContainsFunc(t.sig.Outputs, func(out onnx.TensorInfo) bool { return slices.Contains(out.Dims, lanes) })
}

// variesHere reports whether varied has nothing else to try than other numbers in the inputs of
// requests and in states: nothing that all lanes of a run must have alike to show what it does,
// such as a control, and nothing so short that chance decides what it shows.
func (t *Trial) variesHere(s setting) bool {
	return len(t.extras) == 0 && !t.open(s) && !slices.ContainsFunc(t.inputs, func(in trialInput) bool {
		if in.generated != nil {
			return in.generated.Kind != plan.KindConstant
		}
		elements, err := t.shape(&in, s).Elements()
		return in.mask || !t.laned(&in) || err != nil || elements <= shortContent
	})
}

// shortContent is how many elements may be the same by chance, or all below 0.
const shortContent = 16

// lanesOf makes the contents of lanes of these roles. first is what one lane
// has run alone with. Without scaled, all fractions have the usual size.
func (t *Trial) lanesOf(s setting, roles []role, first lane, scaled bool) (lanes [][]lane, ok bool) {
	defer func(vary bool) { t.vary, t.odd = vary, false }(t.vary)
	lanes = make([][]lane, len(roles))
	for i, r := range roles {
		for _, c := range r.contents {
			if c.scale == 0 || i == 0 && lanes[0] == nil {
				lanes[i] = append(lanes[i], first)
				continue
			}
			if t.vary, t.odd = c.varied, c.odd; !scaled {
				c.scale = 1
			}
			than := first
			if len(lanes[i]) > 0 {
				than = lanes[i][len(lanes[i])-1]
			}
			l, ok := t.anotherLane(s, c.scale, first, than)
			if !ok {
				return nil, false
			}
			lanes[i] = append(lanes[i], l)
		}
	}
	return lanes, true
}

// anotherLane is newLane with other contents than those of a lane, in every input that can have
// others.
func (t *Trial) anotherLane(s setting, scale float64, shared, than lane) (l lane, ok bool) {
	const attempts = 8
	if l, ok = t.newLane(s, scale, shared); !ok {
		return nil, false
	}
	for i := range t.inputs {
		in := &t.inputs[i]
		elements, err := t.shape(in, s).Elements()
		if err != nil || elements > shortContent || !t.laned(in) {
			continue
		}
		for range attempts {
			if !ok || !bytes.Equal(l[i], than[i]) {
				break
			}
			l[i], ok = t.content(in, s, scale, int(elements))
		}
	}
	return l, ok
}

// lanesIn is what each lane has in a run.
func lanesIn(run int, lanes [][]lane, roles []role) []lane {
	chosen := make([]lane, len(lanes))
	for i := range lanes {
		chosen[i] = lanes[i][roles[i].runs[run]]
	}
	return chosen
}

// runRoles makes the runs of the roles and has each checked with those before it. why is what the
// check says; an error is that the model does not run with these contents, or that it gives other
// results when a run is repeated. ran reports whether the first run succeeded.
func (t *Trial) runRoles(s setting, lanes [][]lane, roles []role, check func(runs [][]onnx.Tensor) (why string, err error)) (ran bool, why string, err error) {
	var runs [][]onnx.Tensor
	for run := range roles[0].runs {
		chosen := lanesIn(run, lanes, roles)
		outputs, err := t.run(s, chosen...)
		if err != nil {
			return run > 0, "", err
		}
		runs = append(runs, outputs)
		if why, err = check(runs); err != nil {
			return true, "", err
		}
		if why == "" {
			continue
		}
		if run == 0 { // shapes alone
			return true, why, nil
		}
		// Chance can only make a difference, so that without one nothing has to be repeated.
		for range t.repeats() {
			again, err := t.run(s, chosen...)
			switch {
			case err != nil:
				return true, "", err
			case !sameTensors(outputs, again):
				return true, "", errByChance
			}
		}
		return true, why, nil
	}
	return true, "", nil
}

// repeats is how often a run is repeated to tell chance from influence. Chance that is as small as
// the rounding has few results, so that two runs are often the same; runs in sessions of their own
// always are. Where no operator draws numbers, more runs would only take the time of other
// candidates.
func (t *Trial) repeats() int {
	if t.fresh || t.sig.Operators != nil && !slices.ContainsFunc(randomOperators, t.sig.MayHave) {
		return 1
	}
	return 8
}

// randomOperators are those of ONNX that draw numbers.
var randomOperators = []string{
	"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}

// crosses returns what of the last run differs from an earlier one in a lane that has the same
// contents in both.
func (t *Trial) crosses(runs [][]onnx.Tensor, roles []role, axes []int, equal equality) (why string) {
	last := len(runs) - 1
	for k, axis := range axes {
		if axis == tensor.NoAxis {
			continue
		}
		name, after := t.sig.Outputs[t.outputs[k]].Name, &runs[last][k]
		optional := t.optional[t.outputs[k]]
		switch {
		case !optional || !slices.Contains(after.Shape, 0):
		case t.vary:
			continue // controls and masks that differ between lanes may say so
		default: // it was not in the first run, of which some lanes have the same
			return fmt.Sprintf("output %q is empty for all requests, depending on the inputs of one", name)
		}
		if axis >= len(after.Shape) || after.Shape[axis] != int64(len(roles)) {
			return fmt.Sprintf("output %q has shape %v for %d requests, depending on their contents", name, after.Shape, len(roles))
		}
		for i := range roles {
			has := roles[i].runs
			for run := range last {
				before := &runs[run][k]
				if has[run] != has[last] || optional && slices.Contains(before.Shape, 0) {
					continue
				}
				if !equal(laneOf(before, axis, i), laneOf(after, axis, i), after.DType) {
					return fmt.Sprintf("output %q of one request changes with the inputs of another", name)
				}
			}
		}
	}
	return ""
}

// equality compares what two runs have of a lane.
type equality func(a, b []byte, dtype tensor.DType) bool

// sameBits is the equality of lanes that have nothing in common.
func sameBits(a, b []byte, _ tensor.DType) bool { return bytes.Equal(a, b) }

// matchesAlone compares the lanes of a run that have what one lane ran alone with, as far as
// rounding allows: kernels differ between sizes of batches.
func (t *Trial) matchesAlone(lanes []lane, first lane, one, many []onnx.Tensor, axes []int) (why string) {
	for i, l := range lanes {
		if &l[0] != &first[0] {
			continue
		}
		for k, axis := range axes {
			if axis != tensor.NoAxis && !equalLanes(laneOf(&one[k], axis, 0), laneOf(&many[k], axis, i), one[k].DType) {
				return fmt.Sprintf("output %q of one request differs when it runs alone", t.sig.Outputs[t.outputs[k]].Name)
			}
		}
	}
	return ""
}
