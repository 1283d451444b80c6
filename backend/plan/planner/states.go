package planner

import (
	"fmt"
	"slices"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// states plans every state that the configuration or the model describes.
func (pl *planner) states() {
	if !pl.sequences() {
		if pl.params.PairsGiven {
			pl.fault("sequence_batching is missing: states need a scheduler: want sequence_batching { oldest { max_candidate_sequences: 1024 } }, or dynamic_batching { } for free sequences")
			for _, spec := range pl.specs() {
				pl.misfit(&spec, exactName(spec.Input, pl.sig.Inputs), exactName(spec.Output, pl.sig.Outputs))
			}
		}
		return
	}
	specs := pl.specs()
	switch {
	case len(specs) > 0 || len(pl.faults) > 0:
	case pl.sourced():
		pl.noteWithoutStates()
	default:
		pl.fault("%s", pl.noStates())
	}
	for i := range specs {
		pl.state(specs[i], specs)
	}
}

// misfit notes that a fault of a state is reported: its tensors have their use, and what
// parameters say of it is no error.
func (pl *planner) misfit(spec *plan.StateSpec, in, out int) {
	pl.faulty[spec.Input], pl.faulty[spec.Output] = true, true
	if in >= 0 && pl.takenIn[in] == "" {
		pl.takenIn[in] = spec.String()
	}
	if out >= 0 && pl.takenOut[out] == "" {
		pl.takenOut[out] = spec.String()
	}
	for _, said := range [][]config.Assignment{pl.params.BatchAxes, pl.params.InitialStates, pl.params.StateUpdates} {
		config.Lookup(said, spec.Input)
	}
	config.Lookup(pl.params.BatchAxes, spec.Output)
}

// state plans one state of all.
func (pl *planner) state(spec plan.StateSpec, all []plan.StateSpec) {
	in, out := exactName(spec.Input, pl.sig.Inputs), exactName(spec.Output, pl.sig.Outputs)
	if in < 0 {
		pl.fault("%s: %q is not an input of the model: its inputs are %s", spec.Source, spec.Input, onnx.Names(pl.sig.Inputs))
	}
	if out < 0 {
		matched := ""
		if spec.Pattern != "" {
			matched = fmt.Sprintf("; the pattern %s matches the input %q", spec.Pattern, spec.Input)
		}
		pl.fault("%s: %q is not an output of the model: its outputs are %s%s", spec.Source, spec.Output, onnx.Names(pl.sig.Outputs), matched)
	}
	if in < 0 || out < 0 {
		pl.misfit(&spec, in, out)
		return
	}
	if !pl.claim(pl.takenIn, in, spec.Input, spec.String()) || !pl.claim(pl.takenOut, out, spec.Output, spec.String()) {
		return
	}
	if nonsense := pl.hasNonsense(&pl.sig.Inputs[in]); pl.hasNonsense(&pl.sig.Outputs[out]) || nonsense {
		pl.misfit(&spec, in, out)
		return
	}
	s := plan.State{StateSpec: spec, In: in, Out: out}
	if err := pl.matchState(&s); err != nil {
		pl.fault("%v: %w%s", &spec, err, orNot(&spec, all))
		pl.misfit(&spec, in, out)
		return
	}
	if !s.Varies() {
		if s.LaneBytes() == 0 {
			pl.plan.ZeroSized = append(pl.plan.ZeroSized, len(pl.plan.States))
		}
		pl.plan.States = append(pl.plan.States, s)
		return
	}
	pl.plan.Varies = true
	pl.plan.Varying = append(pl.plan.Varying, s)
}

// matchState checks that what a step writes is what the next one can read. An output
// of which not even the rank is known counts as open at every axis.
func (pl *planner) matchState(s *plan.State) error {
	in, out := &pl.sig.Inputs[s.In], pl.sig.Outputs[s.Out]
	if out.Dims == nil {
		out.Dims = slices.Repeat(tensor.Shape{tensor.Dynamic}, len(in.Dims))
		out.Symbols = make([]string, len(in.Dims))
	}
	if in.DType != out.DType {
		return fmt.Errorf("the input is %v, the output %v: they must be the same", in.DType, out.DType)
	}
	if in.DType == tensor.Bytes {
		return fmt.Errorf("it is of strings: states need elements of a fixed size")
	}
	if s.StateSpec.GivenDType != tensor.Invalid && s.StateSpec.GivenDType != in.DType {
		return fmt.Errorf("data_type is %s in the configuration, the model has %s: write data_type: %s", s.StateSpec.GivenDType.ConfigName(), in.DType.ConfigName(), in.DType.ConfigName())
	}
	s.DType = in.DType
	if len(in.Dims) != len(out.Dims) {
		return fmt.Errorf("the input's shape %v and the output's %v differ in rank", in.Dims, out.Dims)
	}
	if err := pl.stateAxis(s, in, &out); err != nil {
		return err
	}
	if err := pl.updateOf(s, in); err != nil {
		return err
	}
	if err := pl.stateDims(s, in, &out); err != nil {
		return err
	}
	if s.Appends(s.AppendAxis) && s.Dims[s.AppendAxis] >= 0 {
		return fmt.Errorf("state_updates says append(%d), but that axis of %v is fixed: a state grows along a dynamic axis", s.AppendAxis, s.Dims)
	}
	if err := pl.initialValue(s); err != nil {
		return err
	}
	if s.Varies() {
		return nil
	}
	var err error
	s.Layout, err = statebuffer.LayoutOf(s.Dims, s.Axis, s.DType)
	return err
}

// stateAxis finds the batch axis of a state. Exporters often name the axes of an
// input but not of an output; the input's axis holds for both.
func (pl *planner) stateAxis(s *plan.State, in, out *onnx.TensorInfo) (err error) {
	if s.Axis, s.AxisFrom, err = pl.inputAxis(s.In); err != nil {
		return err
	}
	if axis, given := pl.givenAxis(out); given && axis != s.Axis && pl.namesAxis(out) {
		return fmt.Errorf("the batch is at %s, and batch_axes says %s: they must be the same", batchaxis.Text(s.Input, s.Axis), batchaxis.Text(s.Output, axis))
	}
	if s.Axis == tensor.NoAxis {
		pl.unbatched(s.Input)
		return nil
	}
	if in.Dims[s.Axis] >= 0 {
		return fixedAxis(s.Axis, in)
	}
	if found := pl.candidate.Out[s.Out]; found.Known && found.How != batchaxis.ByParameter && found.Index != tensor.NoAxis && found.Index != s.Axis {
		return fmt.Errorf("the batch is axis %d of the input's shape %v and axis %d of the output's shape %v: they must be the same; set the parameter batch_axes", s.Axis, in.Dims, found.Index, out.Dims)
	}
	if out.Dims[s.Axis] >= 0 {
		return fmt.Errorf("the batch is axis %d of the input's shape %v, but that axis is fixed in the output's shape %v", s.Axis, in.Dims, out.Dims)
	}
	return nil
}

// stateDims joins the extents of input, output and configuration. What none of
// them fixes varies at run time.
func (pl *planner) stateDims(s *plan.State, in, out *onnx.TensorInfo) error {
	s.Dims = in.Dims.Clone().With(s.Axis, 1)
	for i := range s.Dims {
		// An output that is dynamic where the input is fixed is an exporter that
		// lost the extent: ONNX Runtime refuses at run time what does not fit.
		o := out.Dims[i]
		if i == s.Axis || o < 0 || o == s.Dims[i] || s.Appends(i) {
			continue
		}
		if s.Dims[i] >= 0 {
			return fmt.Errorf("the input's shape %v and the output's %v differ", in.Dims, out.Dims)
		}
		s.Dims[i] = o
	}
	if s.StateSpec.GivenDims == nil {
		return nil
	}
	asked, model := slices.Clone(s.StateSpec.GivenDims), s.Dims.Clone()
	misfit := func() error {
		return fmt.Errorf("dims are %v in the configuration and %v in the model: %s", s.StateSpec.GivenDims, in.Dims, pl.writeStateDims(model, s.Axis))
	}
	if len(s.Dims.Without(s.Axis)) == 0 && (len(asked) == 0 || asked.Equal(tensor.Shape{1})) {
		return nil
	}
	// Implicit state writes dims without the batch when max_batch_size is given.
	if pl.config.MaxBatchSize > 0 && (s.Axis != tensor.NoAxis || len(asked) != len(s.Dims)) {
		axis := max(s.Axis, 0)
		if len(asked) != len(s.Dims)-1 {
			return misfit()
		}
		asked = slices.Insert(asked, axis, 1)
	}
	if len(asked) != len(s.Dims) {
		return misfit()
	}
	for i, d := range asked {
		switch {
		case i == s.Axis || d < 0:
		case s.Dims[i] < 0:
			s.Dims[i] = d
		case s.Dims[i] != d:
			return misfit()
		}
	}
	return nil
}

// exactName finds a tensor by its exact name, or gives -1.
func exactName(name string, infos []onnx.TensorInfo) int {
	return slices.IndexFunc(infos, func(t onnx.TensorInfo) bool { return t.Name == name })
}
