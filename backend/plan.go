package backend

import (
	"slices"
	"strings"

	"tritonstateful/internal/tensor"
)

// wiring says what each tensor of the model is for. It is made once at load and
// never changes.
type wiring struct {
	inputs  []port
	outputs []port
	states  []stateWire // of fixed shape, kept in rows
	varying []stateWire // whose shape changes
	hollow  []int       // positions among states of those without elements
	fills   []fillWire  // inputs that the backend fills by itself
	unused  []int       // positions of model outputs that nobody wants
	// maxLanes is 1 for a model that has no batch axis everywhere it needs one;
	// why says what lacks it.
	maxLanes int
	why      string
	// varies: some tensor's shape is known only when a run is put together.
	varies bool
	// shares: some input is there once for all lanes, or may be absent.
	shares bool
	// masks are the positions of masks in fills.
	masks []int
	// lengths are the tensors whose lengths are summed up for each sequence.
	lengths []lengthSource
	// warnings are what its instance is to say of it.
	warnings []string
}

func (w *wiring) hasFP32State() bool {
	return slices.ContainsFunc(w.states, func(s stateWire) bool { return s.dtype == tensor.FP32 })
}

// stateAt is the state that port.state counts.
func (w *wiring) stateAt(i int) *stateWire {
	if i < len(w.states) {
		return &w.states[i]
	}
	return &w.varying[i-len(w.states)]
}

// batchAxes lists the axes of the inputs that are taken for the batch.
func (w *wiring) batchAxes() string {
	var texts []string
	for _, p := range w.inputs {
		texts = append(texts, axisText(p.Name, p.axis))
	}
	for _, states := range [][]stateWire{w.states, w.varying} {
		for _, s := range states {
			texts = append(texts, axisText(s.input, s.axis))
		}
	}
	return strings.Join(texts, ", ")
}
