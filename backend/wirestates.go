package backend

import (
	"fmt"
	"slices"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// states wires every state that the configuration or the model describes.
func (w *wirer) states() {
	if w.config.Sequence == nil {
		if w.params.PairsGiven {
			w.fault("sequence_batching is missing: states need it, for example sequence_batching { oldest { max_candidate_sequences: 1024 } }")
		}
		return
	}
	specs := w.specs()
	if len(specs) == 0 && len(w.faults) == 0 {
		w.fault("%s", w.noStates())
		return
	}
	for i := range specs {
		w.state(specs[i], specs)
	}
}

// state wires one state of all.
func (w *wirer) state(spec stateSpec, all []stateSpec) {
	in, out := exactName(spec.input, w.sig.Inputs), exactName(spec.output, w.sig.Outputs)
	if in < 0 {
		w.fault("%s: %q is not an input of the model: its inputs are %s", spec.source, spec.input, onnx.Names(w.sig.Inputs))
	}
	if out < 0 {
		w.fault("%s: %q is not an output of the model: its outputs are %s", spec.source, spec.output, onnx.Names(w.sig.Outputs))
	}
	if in < 0 || out < 0 {
		return
	}
	if !w.claim(w.takenIn, in, spec.input, spec.String()) || !w.claim(w.takenOut, out, spec.output, spec.String()) {
		return
	}
	s := stateWire{stateSpec: spec, in: in, out: out}
	if err := w.matchState(&s); err != nil {
		w.fault("%v: %w%s", &spec, err, orNot(&spec, all))
		return
	}
	if !s.varies() {
		if s.LaneBytes() == 0 {
			w.wiring.hollow = append(w.wiring.hollow, len(w.wiring.states))
		}
		w.wiring.states = append(w.wiring.states, s)
		return
	}
	w.wiring.varies = true
	w.wiring.varying = append(w.wiring.varying, s)
}

// matchState checks that what a step writes is what the next one can read. An output
// of which not even the rank is known counts as open at every axis.
func (w *wirer) matchState(s *stateWire) error {
	in, out := &w.sig.Inputs[s.in], w.sig.Outputs[s.out]
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
	if s.stateSpec.dtype != tensor.Invalid && s.stateSpec.dtype != in.DType {
		return fmt.Errorf("data_type is %s in the configuration, the model has %s: write data_type: %s", s.stateSpec.dtype.ConfigName(), in.DType.ConfigName(), in.DType.ConfigName())
	}
	s.dtype = in.DType
	if len(in.Dims) != len(out.Dims) {
		return fmt.Errorf("the input's shape %v and the output's %v differ in rank", in.Dims, out.Dims)
	}
	if err := w.stateAxis(s, in, &out); err != nil {
		return err
	}
	if err := w.updateOf(s, in); err != nil {
		return err
	}
	if err := w.stateDims(s, in, &out); err != nil {
		return err
	}
	if s.appends(s.appendAxis) && s.dims[s.appendAxis] >= 0 {
		return fmt.Errorf("state_updates says append(%d), but that axis of %v is fixed: a state grows along a dynamic axis", s.appendAxis, s.dims)
	}
	if err := w.initialValue(s); err != nil {
		return err
	}
	if s.varies() {
		return nil
	}
	var err error
	s.Layout, err = statebuffer.LayoutOf(s.dims, s.axis, s.dtype)
	return err
}

// stateAxis finds the batch axis of a state. Exporters often name the axes of an
// input but not of an output; the input's axis holds for both.
func (w *wirer) stateAxis(s *stateWire, in, out *onnx.TensorInfo) (err error) {
	if s.axis, s.how, err = w.inputAxis(s.in); err != nil {
		return err
	}
	faults := len(w.faults)
	if axis, given := w.givenAxis(out); given && axis != s.axis && w.namesAxis(out) && len(w.faults) == faults {
		return fmt.Errorf("the batch is at %s, and batch_axes says %s: they must be the same", axisText(s.input, s.axis), axisText(s.output, axis))
	}
	if s.axis == tensor.NoAxis {
		w.unbatched(s.input)
		return nil
	}
	if in.Dims[s.axis] >= 0 {
		return fixedAxis(s.axis, in)
	}
	if found := w.axes.Out[s.out]; found.Known && found.How != "batch_axes" && found.Index != tensor.NoAxis && found.Index != s.axis {
		return fmt.Errorf("the batch is axis %d of the input's shape %v and axis %d of the output's shape %v: they must be the same; say by the parameter batch_axes where it is", s.axis, in.Dims, found.Index, out.Dims)
	}
	if out.Dims[s.axis] >= 0 {
		return fmt.Errorf("the batch is axis %d of the input's shape %v, but that axis is fixed in the output's shape %v", s.axis, in.Dims, out.Dims)
	}
	return nil
}

// stateDims joins the extents of input, output and configuration. What none of
// them fixes varies at run time.
func (w *wirer) stateDims(s *stateWire, in, out *onnx.TensorInfo) error {
	s.dims = in.Dims.Clone().With(s.axis, 1)
	for i := range s.dims {
		// An output that is dynamic where the input is fixed is an exporter that
		// lost the extent: ONNX Runtime refuses at run time what does not fit.
		o := out.Dims[i]
		if i == s.axis || o < 0 || o == s.dims[i] || s.appends(i) {
			continue
		}
		if s.dims[i] >= 0 {
			return fmt.Errorf("the input's shape %v and the output's %v differ", in.Dims, out.Dims)
		}
		s.dims[i] = o
	}
	if s.stateSpec.dims == nil {
		return nil
	}
	cfg, model := slices.Clone(s.stateSpec.dims), s.dims.Clone()
	misfit := func() error {
		return fmt.Errorf("dims are %v in the configuration and %v in the model: %s", s.stateSpec.dims, in.Dims, w.writeStateDims(model, s.axis))
	}
	if len(s.dims.Without(s.axis)) == 0 && (len(cfg) == 0 || cfg.Equal(tensor.Shape{1})) {
		return nil
	}
	// Implicit state writes dims without the batch when max_batch_size is given.
	if w.config.MaxBatchSize > 0 && (s.axis != tensor.NoAxis || len(cfg) != len(s.dims)) {
		axis := max(s.axis, 0)
		if len(cfg) != len(s.dims)-1 {
			return misfit()
		}
		cfg = slices.Insert(cfg, axis, 1)
	}
	if len(cfg) != len(s.dims) {
		return misfit()
	}
	for i, d := range cfg {
		switch {
		case i == s.axis || d < 0:
		case s.dims[i] < 0:
			s.dims[i] = d
		case s.dims[i] != d:
			return misfit()
		}
	}
	return nil
}

// exactName finds a tensor by its exact name, or gives -1.
func exactName(name string, infos []onnx.TensorInfo) int {
	return slices.IndexFunc(infos, func(t onnx.TensorInfo) bool { return t.Name == name })
}
