package planner

import (
	"fmt"
	"slices"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/status"
)

// A scheduler of sequences does not mean that the model has states: its requests may depend
// on controls, clients may pass the states themselves, or all requests of a client are to go
// to one instance. Where the configuration names the source of each input of the model, and
// no state, it has none.

// sourced reports whether something feeds each input that the model needs.
func (pl *planner) sourced() bool {
	for i := range pl.sig.Inputs {
		if pl.takenIn[i] == "" && !pl.sig.Inputs[i].Optional {
			return false
		}
	}
	return true
}

// noteWithoutStates notes that sequences are served without states, and how to name some if
// that is not what was meant.
func (pl *planner) noteWithoutStates() {
	remedy := "to keep some of them as states, remove those from input and name them in state_pairs, <<<input, output>>> for each"
	if alike := pl.listedAlike(); len(alike) > 0 {
		remedy = fmt.Sprintf("some are named like states: to keep these, remove them from input and write %s", pairsParameter(alike))
	}
	pl.plan.Notes = append(pl.plan.Notes, "served without states under "+pl.scheduler()+", because the configuration names a source for each input of the model; "+remedy)
}

// listedAlike are the inputs of requests that are named like states, each with the only
// output that it goes with.
func (pl *planner) listedAlike() (specs []plan.StateSpec) {
	for i := range pl.plan.Inputs {
		in := &pl.sig.Inputs[pl.plan.Inputs[i].Index]
		if outputs, _ := pl.outputsAlike(in); len(outputs) == 1 {
			specs = append(specs, plan.StateSpec{Input: in.Name, Output: pl.sig.Outputs[outputs[0]].Name})
		}
	}
	return specs
}

// checkDeclared fails where a configuration has sequences and lists neither inputs nor
// states, and the model shows no states either: filled in, all inputs would be those of
// requests, and that is not to be guessed.
func (c *completion) checkDeclared() error {
	if !c.sequences() || len(c.config.Inputs) > 0 || len(c.states) > 0 || c.params.PairsGiven || c.planner.sourced() {
		return nil
	}
	if c.config.Sequence != nil && slices.ContainsFunc(c.config.Sequence.States, func(s config.StateConfig) bool { return s.InputName != config.TokenState }) {
		return nil // loading the model will say what is wrong with it
	}
	if err := c.planner.err(); err != nil {
		return err
	}
	return status.Errorf(status.InvalidArg, "%s", c.planner.noStates())
}
