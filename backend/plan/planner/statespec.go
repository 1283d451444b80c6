package planner

import (
	"fmt"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// specs collects the descriptions of all states. state_pairs and
// sequence_batching.state may both name a state: the pair joins, the other
// describes. Without any, the model's doc string is asked, and then the names.
func (pl *planner) specs() []plan.StateSpec {
	specs := pl.pairSpecs(pl.params.Pairs, "state_pairs")
	specs = append(specs, pl.configSpecs(specs)...)
	if len(specs) > 0 || pl.params.PairsGiven {
		return specs
	}
	fromDoc, err := config.PairsFromDescription(pl.sig.Description)
	if err != nil {
		pl.faults = append(pl.faults, err)
		return nil
	}
	if specs = pl.pairSpecs(fromDoc, "the model's doc string"); len(specs) > 0 {
		return specs
	}
	return pl.namedAlike()
}

// pairSpecs makes specs of pairs; a pair with wildcards stands for every input
// that it matches.
func (pl *planner) pairSpecs(pairs []config.Pair, source string) (specs []plan.StateSpec) {
	for _, p := range pairs {
		if !config.IsPattern(p.Input) {
			specs = append(specs, plan.StateSpec{Input: p.Input, Output: p.Output, Source: source})
			continue
		}
		matches := 0
		for i := range pl.sig.Inputs {
			name := pl.sig.Inputs[i].Name
			if parts, ok := config.MatchPattern(p.Input, name); ok {
				matches++
				specs = append(specs, plan.StateSpec{Input: name, Output: config.FillPattern(p.Output, parts), Source: source, Pattern: fmt.Sprintf("<<<%s, %s>>>", p.Input, p.Output)})
			}
		}
		if matches == 0 {
			pl.fault("%s: the pattern %q matches no input of the model: its inputs are %s", source, p.Input, onnx.Names(pl.sig.Inputs))
		}
	}
	return specs
}

// configSpecs makes specs of sequence_batching.state, except for those that only
// add to a pair, which it changes in place.
func (pl *planner) configSpecs(pairs []plan.StateSpec) (specs []plan.StateSpec) {
	if pl.config.Sequence == nil {
		return nil
	}
	const source = "sequence_batching.state"
	for i := range pl.config.Sequence.States {
		c := &pl.config.Sequence.States[i]
		if c.InputName == config.TokenState {
			continue
		}
		s := plan.StateSpec{Input: c.InputName, Output: c.OutputName, Source: source, GivenDims: c.Dims}
		var err error
		if s.GivenDType, err = tensor.ParseDType(c.DataType); err != nil {
			pl.fault("%s %q: %w", source, c.InputName, err)
			continue
		}
		if len(c.Initial) > 0 {
			s.Initial = &c.Initial[0]
			pl.sameInitial(c)
		}
		if at := specOf(s.Input, pairs); at >= 0 {
			if pairs[at].Output != s.Output {
				pl.fault("state %q: %s pairs it with %q and %s with %q: declare it once", s.Input, pairs[at].Source, pairs[at].Output, source, s.Output)
				continue
			}
			pairs[at] = s
			continue
		}
		s.Implicit = true
		specs = append(specs, s)
	}
	return specs
}

// sameInitial refuses a state with several different initial values: nothing in
// a request could choose one.
func (pl *planner) sameInitial(c *config.StateConfig) {
	for _, other := range c.Initial[1:] {
		if !other.Equal(&c.Initial[0]) {
			pl.fault("sequence_batching.state %q: initial_state %q and %q differ: a state has one initial value", c.InputName, c.Initial[0].Name, other.Name)
			return
		}
	}
}

func specOf(input string, specs []plan.StateSpec) int {
	for i := range specs {
		if specs[i].Input == input {
			return i
		}
	}
	return -1
}
