package isolation

import (
	"errors"
	"slices"

	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// longExtent is an extent of open axes beyond what models treat as short.
const longExtent = 20

// varied is independent with contents that a model is less likely to take: fractions of
// both signs and zeros, masks that hide something, controls and derived inputs that differ
// between lanes, inputs that requests may leave out, and axes that are longer, or of 1,
// which some operators drop. A model that fails on them says nothing by that. An error is
// that there was not the time for all of it.
func (t *Trial) varied(s setting, axes []int) (why string, err error) {
	t.vary = true
	required := t.inputs
	defer func() { t.vary, t.odd, t.inputs = false, false, required }()
	kinds := [][]trialInput{required}
	if len(t.extras) > 0 {
		kinds = append(kinds, append(slices.Clone(required), t.extras...))
	}
	at := func(extent int64, states stateExtent) setting { return setting{extent, states, s.contents} }
	for _, t.inputs = range kinds {
		groups := [][]setting{{at(longExtent, s.states), s}} // of which the first that runs says enough
		if t.open(s) {
			groups = append(groups, []setting{at(1, s.states)})
			if t.beginsEmpty() {
				groups = append(groups, []setting{at(1, statesBegin)})
			}
		}
		for _, group := range groups {
			for _, s := range group {
				why, err := t.variedAt(s, axes)
				if why != "" || errors.Is(err, errTooLong) {
					return why, err
				}
				if err == nil {
					break
				}
			}
		}
	}
	return "", nil
}

// beginsEmpty reports whether a state that begins with an extent of 0 may be tried so.
func (t *Trial) beginsEmpty() bool {
	return t.MayBegin && slices.ContainsFunc(t.inputs, func(in trialInput) bool { return slices.Contains(in.begin, 0) })
}

// open reports whether some input has another shape if extents are others.
func (t *Trial) open(s setting) bool {
	other := s
	other.extent++
	return slices.ContainsFunc(t.inputs, func(in trialInput) bool { return !t.shape(&in, s).Equal(t.shape(&in, other)) })
}

// variedAt compares lanes in one setting. An error is that nothing follows from them.
func (t *Trial) variedAt(s setting, axes []int) (why string, err error) {
	t.odd = false
	first, ok := t.newLane(s, 1, nil)
	if !ok {
		return "", errNoContents
	}
	roles, equal := evenAndOdd, t.equality()
	if s.extent != 2 {
		roles = roles[:2]
	}
	lanes, ok := t.lanesOf(s, roles, first, true)
	if !ok {
		return "", errNoContents
	}
	_, why, err = t.runRoles(s, lanes, roles, func(runs [][]onnx.Tensor) (string, error) {
		return t.crosses(runs, roles, axes, equal), nil
	})
	return why, err
}

// equality compares lanes with varied contents. Where lengths differ between lanes, a model may
// sum more terms for all of them, which are 0, in another order.
func (t *Trial) equality() equality {
	if slices.ContainsFunc(t.inputs, func(in trialInput) bool { return t.laned(&in) && (in.mask || in.generated != nil) }) {
		return equalLanes
	}
	return sameBits
}

// errByChance is about runs on the same inputs that differ.
var errByChance = errors.New("two runs on the same inputs differ")

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

// variedGenerated is what the backend would write for one of several sequences that are not
// at the same step; nil where it is the same for all of them.
func (t *Trial) variedGenerated(f *plan.Generated, s setting) []byte {
	value := make([]byte, f.DType.Size())
	switch f.Kind {
	case plan.KindStart, plan.KindEnd, plan.KindReady:
		return f.Flag(t.odd)
	case plan.KindID:
		tensor.PutInt(value, f.DType, int64(1+t.rng.IntN(100)))
	case plan.KindSteps, plan.KindLengthBefore, plan.KindLengthAfter, plan.KindPositions:
		least := int64(0)
		if t.sig.EndsOnEmpty() != "" { // with 0, the model may make a tensor empty
			least = min(1, s.extent)
		}
		tensor.PutInt(value, f.DType, f.Plus+least+t.rng.Int64N(s.extent+1-least))
	default:
		return nil
	}
	return value
}

// seen is one element of a mask: 1, for what counts, unless contents vary. As a length it
// has to agree with shapes: GroupQueryAttention reads beyond its cache else.
func (t *Trial) seen() int64 {
	if t.vary && !t.sig.MayHave("GroupQueryAttention") {
		return int64(t.rng.IntN(2))
	}
	return 1
}
