package plan

import (
	"slices"
	"strings"

	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/tensor"
)

// Plan says what each tensor of the model is for. It is made once at load and
// never changes.
type Plan struct {
	Inputs    []IO
	Outputs   []IO
	States    []State     // of fixed shape, kept in rows
	Varying   []State     // whose shape changes
	ZeroSized []int       // positions among states of those without elements
	Generated []Generated // inputs that the backend fills by itself
	Unused    []int       // positions of model outputs that nobody wants
	// MaxLanes is 1 for a model that has no batch axis everywhere it needs one;
	// why says what lacks it.
	MaxLanes   int
	WhyOneLane string
	// Varies: some tensor's shape is known only when a run is put together.
	Varies bool
	// Shares: some input is there once for all lanes, or may be absent.
	Shares bool
	// Masks are the positions of masks in fills.
	Masks []int
	// Lengths are the tensors whose lengths are summed up for each sequence.
	Lengths []Length
	// Warnings are what its instance is to say of it.
	Warnings []string
}

func (w *Plan) HasFP32State() bool {
	return slices.ContainsFunc(w.States, func(s State) bool { return s.DType == tensor.FP32 })
}

// StateAt is the state that port.state counts.
func (w *Plan) StateAt(i int) *State {
	if i < len(w.States) {
		return &w.States[i]
	}
	return &w.Varying[i-len(w.States)]
}

// BatchAxes lists the axes of the inputs that are taken for the batch.
func (w *Plan) BatchAxes() string {
	var texts []string
	for _, p := range w.Inputs {
		texts = append(texts, batchaxis.Text(p.Name, p.Axis))
	}
	for _, states := range [][]State{w.States, w.Varying} {
		for _, s := range states {
			texts = append(texts, batchaxis.Text(s.Input, s.Axis))
		}
	}
	return strings.Join(texts, ", ")
}
