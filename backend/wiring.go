package backend

import (
	"errors"
	"fmt"
	"slices"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// recurrentOperators are those that end the process in ONNX Runtime 1.31, by std::terminate:
// GRU where the batch or the time is 0, LSTM where the batch is.
var recurrentOperators = []string{"GRU", "LSTM"}

// hasRecurrence reports whether the model has such operators.
func hasRecurrence(s *onnx.Signature) bool {
	return slices.ContainsFunc(recurrentOperators, func(name string) bool { return s.Operators[name] > 0 })
}

// wirer collects everything that does not fit while a wiring is made.
type wirer struct {
	config *config.Config
	params *config.Parameters
	sig    *onnx.Signature
	files  fileReader
	axes   *batchaxis.Candidate // where the batch is
	wiring plan.Plan
	// takenIn and takenOut name what feeds or takes each tensor of the model.
	takenIn, takenOut []string
	// mismatches are named as states and cannot be any.
	mismatches []mismatch
	faults     []error
}

func newWirer(cfg *config.Config, params *config.Parameters, sig *onnx.Signature, files fileReader, axes *batchaxis.Candidate) *wirer {
	w := &wirer{
		config: cfg, params: params.Clone(), sig: sig, files: files, axes: axes,
		takenIn:  make([]string, len(sig.Inputs)),
		takenOut: make([]string, len(sig.Outputs)),
	}
	w.wiring.MaxLanes = max(cfg.MaxBatchSize, 1)
	if cfg.MaxBatchSize == 0 {
		w.wiring.WhyOneLane = "max_batch_size is 0"
	}
	return w
}

// wireInputs wires all that feeds the model, by a candidate for its batch.
func wireInputs(cfg *config.Config, params *config.Parameters, sig *onnx.Signature, files fileReader, axes *batchaxis.Candidate) *wirer {
	w := newWirer(cfg, params, sig, files, axes)
	w.fills()
	w.ports("input", cfg.Inputs, sig.Inputs, w.takenIn, &w.wiring.Inputs)
	w.states()
	w.unfed()
	return w
}

// finish wires the outputs, and what depends on inputs and outputs. The error joins
// everything that is wrong.
func (w *wirer) finish() error {
	w.ports("output", w.config.Outputs, w.sig.Outputs, w.takenOut, &w.wiring.Outputs)
	w.resolveLengths()
	w.resolveMasks()
	w.checkUpdates()
	w.handedOn()
	w.unused()
	w.unusedAssignments()
	if w.axes.SingleLane && w.axes.HasLanes() {
		w.oneLane("the model", "runs with no more")
	}
	return w.err()
}

func (w *wirer) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Errorf(format, args...))
}

// warn notes what is served otherwise than it may look.
func (w *wirer) warn(format string, args ...any) {
	w.wiring.Warnings = append(w.wiring.Warnings, fmt.Sprintf(format, args...))
}

// unbatched notes that a tensor has no batch axis, so that a run has one lane.
func (w *wirer) unbatched(tensorName string) { w.oneLane(tensorName, "has no batch axis") }

// fixedAtOne notes that the model fixes a tensor's batch at 1, so that a run has one lane.
func (w *wirer) fixedAtOne(tensorName string) {
	w.oneLane(tensorName, "has a batch axis that is fixed at 1")
}

func (w *wirer) oneLane(tensorName, why string) {
	if w.wiring.MaxLanes > 1 {
		w.wiring.MaxLanes, w.wiring.WhyOneLane = 1, fmt.Sprintf("%q %s", tensorName, why)
	}
}

// claim notes what a tensor of the model is for; two uses are a fault.
func (w *wirer) claim(taken []string, at int, tensorName, use string) bool {
	if taken[at] != "" {
		w.fault("tensor %q of the model is %s and also %s: name it once", tensorName, taken[at], use)
		return false
	}
	taken[at] = use
	return true
}

func (w *wirer) ports(kind string, configs []config.TensorConfig, infos []onnx.TensorInfo, taken []string, ports *[]plan.IO) {
	for i := range configs {
		c := &configs[i]
		at := onnx.TensorName(c.Name, infos)
		if at < 0 {
			w.fault("%s %q of the configuration is not in the model: its %ss are %s", kind, c.Name, kind, onnx.Names(infos))
			continue
		}
		state, isState := w.stateOutput(kind, at)
		if !isState && !w.claim(taken, at, infos[at].Name, fmt.Sprintf("%s %q", kind, c.Name)) {
			continue
		}
		p := plan.IO{Recurrent: hasRecurrence(w.sig), IOTensor: onnx.IOTensor{Name: c.Name, Optional: c.Optional && infos[at].Optional}, Index: at, Axis: tensor.NoAxis, State: state, IsState: isState}
		found := w.axes.In
		if kind == "output" {
			found = w.axes.Out
		}
		if err := w.port(&p, c, &infos[at], found[at]); err != nil {
			w.fault("%s %q: %w", kind, c.Name, err)
			continue
		}
		switch {
		case p.Axis != tensor.NoAxis && infos[at].Dims[p.Axis] == 1:
			w.fixedAtOne(c.Name)
		case p.Axis == tensor.NoAxis && kind == "output":
			w.unbatched(c.Name)
		}
		if kind == "output" {
			p.LanesAxis = w.lanesAxis(&p, found[at])
			if p.LaneBytes() == 0 { // the file may say that there is nothing where the model writes something
				p.Varies, w.wiring.Varies = true, true
			}
		}
		if kind == "input" && (p.Axis == tensor.NoAxis || p.Optional) {
			w.wiring.Shares = true
		}
		*ports = append(*ports, p)
	}
}

// stateOutput tells whether an output is that of a state, which clients can then
// ask for.
func (w *wirer) stateOutput(kind string, at int) (state int, is bool) {
	if kind != "output" {
		return 0, false
	}
	for i := range w.wiring.States {
		if w.wiring.States[i].Out == at {
			return i, true
		}
	}
	for i := range w.wiring.Varying {
		if w.wiring.Varying[i].Out == at {
			return len(w.wiring.States) + i, true
		}
	}
	return 0, false
}

// errScalar is about an input or output of the model without any axis.
var errScalar = errors.New("it has no axes, and the server takes that only with a batch: write max_batch_size: 1, and dims: [ 1 ] reshape: { shape: [ ] } for it")

func (w *wirer) port(p *plan.IO, c *config.TensorConfig, info *onnx.TensorInfo, found batchaxis.Axis) error {
	dtype, err := tensor.ParseDType(c.DataType)
	if err != nil {
		return err
	}
	if dtype != info.DType {
		return fmt.Errorf("data_type is %s in the configuration, the model has %s: write data_type: %s", c.DataType, info.DType.ConfigName(), info.DType.ConfigName())
	}
	p.DType = dtype
	if err := w.matchDims(p, c.LaneDims(), info, found); err != nil {
		axis, told, nonsense := batchaxis.Given(w.params, info)
		switch {
		case told && nonsense == nil && axis != tensor.NoAxis && info.Dims[axis] > 1:
			return fixedAxis(axis, info)
		case len(info.Dims) > 0:
			return fmt.Errorf("%w%s", err, w.writeDims(p, c.LaneDims(), info, found))
		case w.config.MaxBatchSize == 0:
			return errScalar
		default:
			return fmt.Errorf("%w; for a tensor without axes write dims: [ 1 ] reshape: { shape: [ ] }", err)
		}
	}
	settle(p)
	if p.IsState {
		if s := w.wiring.StateAt(p.State); !s.Agrees(p) {
			return fmt.Errorf("dims are %v and the state %q has %v: want the extents of the state, or -1", c.LaneDims(), s.Input, s.Dims.Without(s.Axis))
		}
	}
	if dtype == tensor.Bytes || !p.Dims.Without(p.Axis).Fixed() {
		p.Varies, w.wiring.Varies = true, true
		if dtype == tensor.Bytes && p.Axis > 0 {
			return fmt.Errorf("its batch is axis %d of %v: strings need the batch at axis 0", p.Axis, info.Dims)
		}
		return nil
	}
	p.Layout, err = statebuffer.LayoutOf(p.Dims, p.Axis, dtype)
	return err
}

// handedOn finds outputs that are inputs of the model, under one name and with no node
// between them. ONNX Runtime writes nothing there: it gives back the memory of the
// input, which is not ours to keep or to answer with.
func (w *wirer) handedOn() {
	for i := range w.sig.Outputs {
		name := w.sig.Outputs[i].Name
		if at := exactName(name, w.sig.Inputs); at >= 0 && w.takenIn[at] != "" && w.takenOut[i] != "" {
			w.fault("tensor %q of the model is an input and an output in one, and ONNX Runtime does not write such an output: put an Identity node between them in the model, or leave it out of output if it is no state", name)
		}
	}
}

// unusedAssignments finds names in parameters that no tensor has.
func (w *wirer) unusedAssignments() {
	for _, a := range []struct {
		parameter string
		list      []config.Assignment
	}{{"batch_axes", w.params.BatchAxes}, {"initial_states", w.params.InitialStates}, {"state_updates", w.params.StateUpdates}} {
		for _, name := range config.Unused(a.list) {
			w.fault("parameter %s: %q is the name of no tensor that it could hold for", a.parameter, name)
		}
	}
}

// unfed finds inputs of the model that nobody feeds.
func (w *wirer) unfed() {
	for i := range w.sig.Inputs {
		info := &w.sig.Inputs[i]
		if w.takenIn[i] != "" || info.Optional {
			config.Lookup(w.params.BatchAxes, info.Name) // of what is left out it says nothing wrong
			continue
		}
		hint := "name it in input, state_pairs, control_input, constant_inputs or derived_inputs"
		if info.DType == tensor.Bool {
			hint = fmt.Sprintf("if it tells the model that a sequence starts, map it by control_input { name: %q control [{ kind: %s }] }; else %s", info.Name, config.ControlStart, hint)
		}
		w.fault("input %q %v of the model is fed by nothing in the configuration: %s", info.Name, info.Dims, hint+w.nameHint(i))
	}
}

// unused notes the outputs that nobody takes.
func (w *wirer) unused() {
	for i := range w.sig.Outputs {
		if w.takenOut[i] == "" {
			config.Lookup(w.params.BatchAxes, w.sig.Outputs[i].Name)
			w.wiring.Unused = append(w.wiring.Unused, i)
		}
	}
}
