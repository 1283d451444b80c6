package planner

import (
	"fmt"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// planner collects everything that does not fit while a plan is made.
type planner struct {
	config    *config.Config
	params    *config.Parameters
	sig       *onnx.Signature
	files     fileReader
	candidate *batchaxis.Candidate // where the batch is
	plan      plan.Plan
	// takenIn and takenOut name what feeds or takes each tensor of the model.
	takenIn, takenOut []string
	// faulty names the tensors of which a fault is noted: what follows from it is not
	// reported, too.
	faulty map[string]bool
	// mismatches are named as states and cannot be any.
	mismatches []mismatch
	faults     []error
}

func newPlanner(cfg *config.Config, params *config.Parameters, sig *onnx.Signature, files fileReader, axes *batchaxis.Candidate) *planner {
	pl := emptyPlanner(cfg, params, sig, files, axes)
	pl.plan.Free = pl.free()
	return pl
}

// emptyPlanner is newPlanner without the decision about free sequences.
func emptyPlanner(cfg *config.Config, params *config.Parameters, sig *onnx.Signature, files fileReader, axes *batchaxis.Candidate) *planner {
	pl := &planner{
		config: cfg, params: params.Clone(), sig: sig, files: files, candidate: axes,
		takenIn:  make([]string, len(sig.Inputs)),
		takenOut: make([]string, len(sig.Outputs)),
		faulty:   map[string]bool{},
	}
	pl.plan.MaxLanes = max(cfg.MaxBatchSize, 1)
	if cfg.MaxBatchSize == 0 {
		pl.plan.WhyOneLane = "max_batch_size is 0"
	}
	return pl
}

// planInputs plans all that feeds the model, by a candidate for its batch.
func planInputs(cfg *config.Config, params *config.Parameters, sig *onnx.Signature, files fileReader, axes *batchaxis.Candidate) *planner {
	pl := newPlanner(cfg, params, sig, files, axes)
	pl.generated()
	pl.clientInputs()
	pl.states()
	pl.refuseLengthPerElement()
	pl.unfed()
	return pl
}

// finish plans the outputs, and what depends on inputs and outputs. The error joins
// everything that is wrong.
func (pl *planner) finish() error {
	pl.clientOutputs()
	pl.resolveLengths()
	pl.resolveMasks()
	pl.checkUpdates()
	pl.handedOn()
	pl.unused()
	pl.unusedAssignments()
	if pl.candidate.SingleLane && pl.candidate.HasLanes() {
		pl.oneLane("the model runs with one request at a time only")
	}
	return pl.err()
}

func (pl *planner) fault(format string, args ...any) {
	pl.faults = append(pl.faults, fmt.Errorf(format, args...))
}

// faultOf notes a fault of tensors, by their names.
func (pl *planner) faultOf(tensors []string, format string, args ...any) {
	pl.fault(format, args...)
	for _, name := range tensors {
		pl.faulty[name] = true
	}
}

// warn notes what is served otherwise than it may look.
func (pl *planner) warn(format string, args ...any) {
	pl.plan.Warnings = append(pl.plan.Warnings, fmt.Sprintf(format, args...))
}

// unbatched notes that a tensor has no batch axis, so that a run has one lane.
func (pl *planner) unbatched(tensorName string) {
	pl.oneLane(fmt.Sprintf("%q has no batch axis", tensorName))
}

// fixedAtOne notes that the model fixes a tensor's batch at 1, so that a run has one lane.
func (pl *planner) fixedAtOne(tensorName string) {
	pl.oneLane(fmt.Sprintf("%q has a batch axis that is fixed at 1", tensorName))
}

func (pl *planner) oneLane(why string) {
	if pl.plan.MaxLanes > 1 {
		pl.plan.MaxLanes, pl.plan.WhyOneLane = 1, why
	}
}

// claim notes what a tensor of the model is for; two uses are a fault.
func (pl *planner) claim(taken []string, at int, tensorName, use string) bool {
	if taken[at] != "" {
		pl.fault("tensor %q of the model is %s and also %s: name it once", tensorName, taken[at], use)
		return false
	}
	taken[at] = use
	return true
}

// handedOn finds outputs that are inputs of the model, under one name and with no node
// between them. ONNX Runtime writes nothing there: it gives back the memory of the
// input, which is not ours to keep or to answer with.
func (pl *planner) handedOn() {
	for i := range pl.sig.Outputs {
		name := pl.sig.Outputs[i].Name
		if at := exactName(name, pl.sig.Inputs); at >= 0 && pl.takenIn[at] != "" && pl.takenOut[i] != "" {
			pl.fault("tensor %q of the model is both an input and an output, which ONNX Runtime does not write: insert an Identity node between them in the model, or, if it is not a state, remove it from output", name)
		}
	}
}

// unusedAssignments finds names in parameters that no tensor has.
func (pl *planner) unusedAssignments() {
	for _, a := range []struct {
		parameter, of string
		list          []config.Assignment
	}{{"batch_axes", "tensor", pl.params.BatchAxes}, {"initial_states", "state", pl.params.InitialStates}, {"state_updates", "state", pl.params.StateUpdates}} {
		for _, name := range config.Unused(a.list) {
			pl.fault("parameter %s: no %s named %q", a.parameter, a.of, name)
		}
	}
}

// unfed finds inputs of the model that nothing feeds.
func (pl *planner) unfed() {
	for i := range pl.sig.Inputs {
		info := &pl.sig.Inputs[i]
		if pl.takenIn[i] != "" || info.Optional {
			config.Lookup(pl.params.BatchAxes, info.Name) // of what is left out it says nothing wrong
			continue
		}
		hint := "name it in input, state_pairs, control_input, constant_inputs or derived_inputs"
		if info.DType == tensor.Bool {
			hint = fmt.Sprintf("if it signals the start of a sequence, map it with control_input { name: %q control [{ kind: %s }] }; otherwise %s", info.Name, config.ControlStart, hint)
		}
		pl.fault("input %q %v of the model has no source in the configuration: %s", info.Name, info.Dims, hint+pl.nameHint(i))
	}
}

// unused notes the outputs that no one reads.
func (pl *planner) unused() {
	for i := range pl.sig.Outputs {
		if pl.takenOut[i] == "" {
			config.Lookup(pl.params.BatchAxes, pl.sig.Outputs[i].Name)
			pl.plan.Unused = append(pl.plan.Unused, i)
		}
	}
}
