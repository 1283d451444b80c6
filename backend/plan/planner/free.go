package planner

import (
	"tritonstateful/backend/config"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
)

// Under the dynamic batcher, Triton does not say whether the requests of a model belong to
// sequences. They do if the model has states.

// free reports whether requests belong to sequences under the dynamic batcher. Parameters
// about states say so. Otherwise the model's doc string and the names in it do, but only if
// the configuration lists inputs and has no source for others: where it has, clients may pass
// the states themselves.
func (pl *planner) free() bool {
	if pl.config.Sequence != nil || pl.config.Dynamic == nil {
		return false
	}
	p := pl.params
	if p.Free.Scheduling == config.ScheduleFree || p.PairsGiven || len(p.Derived)+len(p.InitialStates)+len(p.StateUpdates) > 0 {
		return true
	}
	if len(pl.config.Inputs) == 0 {
		return false
	}
	trial := emptyPlanner(pl.config, p, pl.sig, pl.files, pl.candidate)
	trial.generated()
	trial.clientInputs()
	return !trial.sourced() && len(trial.specs()) > 0
}

// sequences reports whether requests belong to sequences.
func (pl *planner) sequences() bool { return pl.config.Sequence != nil || pl.plan.Free }

// haveSequences reports whether requests to a model belong to sequences.
func haveSequences(cfg *config.Config, params *config.Parameters, sig *onnx.Signature) bool {
	first := batchaxis.Candidates(cfg, params, sig)[0]
	return newPlanner(cfg, params, sig, nil, &first).sequences()
}

// scheduler is what has the requests belong to sequences, as the configuration has it.
func (pl *planner) scheduler() string {
	if pl.plan.Free {
		return "sequences = free"
	}
	return "sequence_batching"
}
