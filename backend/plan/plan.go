package plan

import (
	"slices"
	"strings"

	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/tensor"
)

// Plan says what each tensor of the model is for. Nothing of it changes after it is made.
type Plan struct {
	Inputs  []IO
	Outputs []IO
	// States are those of fixed shape, which have a slot for each sequence; Varying are
	// those whose shape changes.
	States, Varying []State
	// ZeroSized are the positions in States of those without elements.
	ZeroSized []int
	Generated []Generated
	// Unused are the outputs of the model that no one reads, by their positions.
	Unused []int
	// MaxLanes is how many lanes a run can have. It is 1 for a model that lacks a batch
	// axis where it needs one; WhyOneLane says then what lacks it.
	MaxLanes   int
	WhyOneLane string
	// Free: requests belong to sequences, though Triton's scheduler is the dynamic batcher,
	// which knows nothing of them.
	Free bool
	// Varies: the shape of some tensor is known only when a run is put together.
	Varies bool
	// Shares: some input is there once for all lanes of a run, or may be absent, so that
	// only requests that agree on it share a run.
	Shares bool
	// Masks are the positions in Generated of masks.
	Masks []int
	// Lengths are the tensors whose lengths are summed up for each sequence.
	Lengths []Length
	// Notes are for the log of each instance: what the configuration means for the model
	// where it could have meant something else.
	Notes []string
	// Warnings are for the log of each instance: what is served otherwise than it may look.
	Warnings []string
}

// HasFP32State reports whether a state of fixed shape has elements of type FP32.
func (p *Plan) HasFP32State() bool {
	return slices.ContainsFunc(p.States, func(s State) bool { return s.DType == tensor.FP32 })
}

// KeepsNothing reports whether the backend keeps nothing of a sequence between its requests:
// the model has no states, and no input counts steps or lengths.
func (p *Plan) KeepsNothing() bool {
	return len(p.States)+len(p.Varying) == 0 && !slices.ContainsFunc(p.Generated, func(g Generated) bool {
		return g.Kind == KindSteps || g.Kind == KindLengthBefore || g.Kind == KindLengthAfter || g.Kind == KindPositions
	})
}

// StateAt returns the state that [IO.State] counts: in States, and after them in Varying.
func (p *Plan) StateAt(i int) *State {
	if i < len(p.States) {
		return &p.States[i]
	}
	return &p.Varying[i-len(p.States)]
}

// BatchAxes lists in words the axes of inputs and states that are the batch.
func (p *Plan) BatchAxes() string {
	var axes []string
	for _, in := range p.Inputs {
		axes = append(axes, batchaxis.Text(in.Name, in.Axis))
	}
	for _, states := range [][]State{p.States, p.Varying} {
		for _, s := range states {
			axes = append(axes, batchaxis.Text(s.Input, s.Axis))
		}
	}
	return strings.Join(axes, ", ")
}
