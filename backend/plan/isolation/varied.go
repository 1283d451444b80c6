package isolation

import (
	"bytes"
	"fmt"
	"slices"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// longExtent is an extent of open axes beyond what models treat as short.
const longExtent = 20

// varied is independent with contents that a model is less likely to take: fractions of
// both signs and zeros, masks that hide something, controls and derived inputs that differ
// between lanes, and longer axes if the model has any and runs with them. A model that
// fails on them says nothing by that.
func (t *Trial) varied(s setting, axes []int) (why string) {
	t.vary = true
	defer func() { t.vary, t.odd = false, false }()
	long := s
	long.extent = longExtent
	for _, s := range []setting{long, s} {
		if why, ran := t.variedAt(s, axes); ran {
			return why
		}
	}
	return ""
}

// variedAt is false if nothing follows from contents of that setting.
//
// First all lanes are even, then they get odd and even again in turns, so that each is
// kept once while it is even and once while it is odd, and all others become what it is not.
func (t *Trial) variedAt(s setting, axes []int) (why string, ran bool) {
	t.odd = false
	first, ok := t.newLane(s, 1, nil)
	if !ok {
		return "", false
	}
	lanes, err := t.lanes(s, first)
	if err != nil {
		return "", false
	}
	before, err := t.run(s, lanes...)
	if err != nil {
		return "", false
	}
	last := len(lanes) - 1
	for round, kept := range []int{0, last, 0, last} {
		t.odd = round == 0 || round == 1
		others := slices.Clone(lanes)
		for i := range others {
			if i == kept {
				continue
			}
			if others[i], ok = t.newLane(s, 1, first); !ok {
				return "", false
			}
		}
		after, err := t.run(s, others...)
		if err != nil {
			return "", false
		}
		if why = t.crosses(before, after, axes, len(lanes), kept); why != "" {
			if again, err := t.run(s, others...); err != nil || !sameTensors(after, again) {
				return "", false // by chance
			}
			return why, true
		}
		lanes, before = others, after
	}
	return "", true
}

// crosses tells what of the kept lane has changed. Where lengths differ between lanes, a
// model may sum more terms for all of them, which are 0, in another order.
func (t *Trial) crosses(before, after []onnx.Tensor, axes []int, lanes, kept int) (why string) {
	equal := func(a, b []byte, _ tensor.DType) bool { return bytes.Equal(a, b) }
	if slices.ContainsFunc(t.inputs, func(in trialInput) bool { return t.laned(&in) && (in.mask || in.generated != nil) }) {
		equal = equalLanes
	}
	for k, axis := range axes {
		if axis == tensor.NoAxis {
			continue
		}
		name := t.sig.Outputs[t.outputs[k]].Name
		if t.optional[t.outputs[k]] && (slices.Contains(before[k].Shape, 0) || slices.Contains(after[k].Shape, 0)) {
			continue
		}
		for _, out := range []*onnx.Tensor{&before[k], &after[k]} {
			if axis >= len(out.Shape) || out.Shape[axis] != int64(lanes) {
				return fmt.Sprintf("output %q has shape %v for %d requests, depending on their contents", name, out.Shape, lanes)
			}
		}
		if !equal(laneOf(&before[k], axis, kept), laneOf(&after[k], axis, kept), before[k].DType) {
			return fmt.Sprintf("output %q of one request changes with the inputs of another", name)
		}
	}
	return ""
}

// variedFraction makes a positive number one of any sign, or 0; those of odd lanes are
// mostly negative, those of even ones mostly positive.
func (t *Trial) variedFraction(value float64) float64 {
	switch n := t.rng.IntN(16); {
	case n == 0:
		return 0
	case (n < 4) != t.odd:
		return -value
	default:
		return value
	}
}

// variedGenerated is what the backend would fill in for one of several sequences that are not
// at the same step; nil where it is the same for all of them.
func (t *Trial) variedGenerated(f *plan.Generated, s setting) []byte {
	value := make([]byte, f.DType.Size())
	switch f.Kind {
	case plan.KindStart, plan.KindEnd, plan.KindReady:
		return f.Flag(t.odd)
	case plan.KindID:
		tensor.PutInt(value, f.DType, int64(1+t.rng.IntN(100)))
	case plan.KindSteps, plan.KindLengthBefore, plan.KindLengthAfter, plan.KindPositions:
		tensor.PutInt(value, f.DType, f.Plus+t.rng.Int64N(s.extent+1))
	default:
		return nil
	}
	return value
}

// seen is one element of a mask: 1, for what counts, unless contents vary. As a length it
// has to agree with shapes: GroupQueryAttention reads beyond its cache else.
func (t *Trial) seen() int64 {
	if t.vary && t.sig.Operators["GroupQueryAttention"] == 0 {
		return int64(t.rng.IntN(2))
	}
	return 1
}
