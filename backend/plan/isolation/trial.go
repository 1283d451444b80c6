package isolation

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// A Trial runs a model on contents of its own, with any number of lanes, to see how
// it treats them. It knows what the configuration says of the inputs, and nothing of
// the outputs but which are wanted. One goroutine uses a Trial.
type Trial struct {
	// Open loads the model once more: a model with chance in it draws the same
	// numbers in the first run of each session. nil where that is not possible.
	Open func() (onnx.Runner, error)
	// MayBegin: states may be tried as they begin, also with extents of 0.
	MayBegin bool
	// Runs counts the runs of the model.
	Runs int

	runner onnx.Runner
	fresh  bool // each run has a session of its own
	vary   bool // contents are those of varied
	odd    bool // and those of an odd lane
	sig    *onnx.Signature
	rng    *rand.Rand
	inputs []trialInput
	extras []trialInput // inputs that requests may leave out, see varied
	// outputs are the positions of those that are wanted.
	outputs  []int
	optional map[int]bool // outputs that the model may leave empty
	lengths  []plan.Length
	deadline time.Time
	// extents are those of open axes that are tried; succeeded counts the runs that did.
	extents   []int64
	succeeded int
}

// trialInput is an input of the model in a trial.
type trialInput struct {
	index, axis int
	dims        tensor.Shape // as far as model and configuration fix them
	dtype       tensor.DType
	begin       tensor.Shape    // of a state: the shape that it begins with; else nil
	state       int             // of a state: the position of its output
	generated   *plan.Generated // what the backend writes into it; nil for other inputs
	mask        bool            // by its name, it says what counts
	length      bool            // by its name, it is a length
}

// NewTrial makes a trial of what is planned of a model: its inputs and states. wanted
// reports whether requests can ask for an output. No run begins after the deadline.
func NewTrial(r onnx.Runner, p *plan.Plan, k *batchaxis.Candidate, wanted func(output string) bool, deadline time.Time) *Trial {
	sig := r.Signature()
	t := &Trial{runner: r, sig: sig, rng: rand.New(rand.NewPCG(1, 2)), optional: map[int]bool{}, lengths: p.Lengths, deadline: deadline, extents: usualExtents}
	for i := range p.Inputs {
		in := &p.Inputs[i]
		name, inputs := strings.ToLower(sig.Inputs[in.Index].Name), &t.inputs
		if sig.Inputs[in.Index].Optional {
			inputs = &t.extras
		}
		*inputs = append(*inputs, trialInput{
			index: in.Index, axis: k.In[in.Index].Index, dims: in.Dims, dtype: in.DType,
			mask: strings.Contains(name, "mask"), length: strings.Contains(name, "len"),
		})
	}
	for i := range p.Generated {
		f := &p.Generated[i]
		t.inputs = append(t.inputs, trialInput{index: f.Index, axis: f.Axis, dims: f.Dims, dtype: f.DType, generated: f})
	}
	for _, states := range [][]plan.State{p.States, p.Varying} {
		for i := range states {
			state := &states[i]
			begin := state.Shape
			if begin == nil {
				begin = state.Dims.With(state.Axis, 1)
			}
			t.inputs = append(t.inputs, trialInput{index: state.In, axis: state.Axis, dims: state.Dims, dtype: state.DType, begin: begin, state: state.Out})
			t.outputs = append(t.outputs, state.Out)
			t.optional[state.Out] = state.Update == statebuffer.KeepIfEmpty
		}
	}
	for i := range sig.Outputs {
		if !slices.Contains(t.outputs, i) && wanted(sig.Outputs[i].Name) {
			t.outputs = append(t.outputs, i)
		}
	}
	return t
}

// laned reports whether an input has lanes at its batch axis: one that is open.
func (t *Trial) laned(in *trialInput) bool {
	return in.axis != tensor.NoAxis && t.sig.Inputs[in.index].Dims[in.axis] < 0
}

// shape is that of an input with one lane.
func (t *Trial) shape(in *trialInput, s setting) tensor.Shape {
	shape := in.dims.Clone()
	for axis, d := range shape {
		switch {
		case axis == in.axis:
			shape[axis] = 1
		case d >= 0:
		case in.begin != nil:
			shape[axis] = s.ofState(in.begin[axis])
		case in.generated != nil && in.generated.Mask != nil:
			shape[axis] = t.maskLength(in.generated.Mask, s)
		case in.generated != nil && in.generated.Kind == plan.KindPositions:
			shape[axis] = t.sourceLength(in.generated.Length, s)
		default: // no request brings nothing, though a state of that name begins so
			if shape[axis] = t.extent(t.sig.Inputs[in.index].Symbols[axis], s); shape[axis] == 0 && in.generated == nil {
				shape[axis] = s.extent
			}
		}
	}
	return shape
}

// ofState is the extent of an open axis of a state that begins with the given one.
func (s setting) ofState(begin int64) int64 {
	switch s.states {
	case statesAlike:
		return s.extent
	case statesOne:
		return 1
	default:
		return max(begin, 0)
	}
}

// extent is that of an open axis by its name, which may be a sum of others and of
// numbers, as in "past_sequence_length + 1".
func (t *Trial) extent(symbol string, s setting) (sum int64) {
	for term := range strings.SplitSeq(symbol, "+") {
		term = strings.TrimSpace(term)
		n, err := strconv.ParseInt(term, 10, 32)
		switch begin, isState := t.stateExtent(term); {
		case err == nil:
			sum += n
		case isState:
			sum += s.ofState(begin)
		default:
			sum += s.extent
		}
	}
	return max(sum, 0)
}

// stateExtent finds a state that has an open axis of that name that is not its batch.
func (t *Trial) stateExtent(symbol string) (begin int64, found bool) {
	if symbol == "" {
		return 0, false
	}
	for i := range t.inputs {
		in := &t.inputs[i]
		if axis := batchaxis.AxisNamed(&t.sig.Inputs[in.index], symbol); in.begin != nil && axis != tensor.NoAxis && axis != in.axis {
			return in.begin[axis], true
		}
	}
	return 0, false
}

// maskLength is how long a mask is that hides nothing: as the states, and as the input
// that it counts.
func (t *Trial) maskLength(m *plan.Mask, s setting) int64 {
	length := s.extent
	for i := range t.inputs {
		in := &t.inputs[i]
		if _, covered := config.MatchPattern(m.States, t.sig.Inputs[in.index].Name); covered && in.begin != nil {
			if axis := openExcept(in.dims, in.axis); axis != tensor.NoAxis {
				length = s.ofState(in.begin[axis])
			}
		}
	}
	if m.Length >= 0 {
		length += t.sourceLength(m.Length, s)
	}
	return length
}

// sourceLength is how long the input is that a derived one counts.
func (t *Trial) sourceLength(source int, s setting) int64 {
	for i := range t.inputs {
		in := &t.inputs[i]
		if !strings.EqualFold(t.lengths[source].Name, t.sig.Inputs[in.index].Name) {
			continue
		}
		axis := t.lengths[source].Axis
		if axis == tensor.NoAxis {
			axis = openExcept(in.dims, in.axis)
		}
		if axis >= 0 && axis < len(in.dims) {
			return t.shape(in, s)[axis]
		}
	}
	return s.extent
}

// openExcept is the one open axis that is not the batch, or tensor.NoAxis.
func openExcept(dims tensor.Shape, batch int) int {
	return batchaxis.OnlyOpenAxis(dims.With(batch, 1))
}

// errTooLong is about runs that are not begun any more.
var errTooLong = errors.New("the trial runs took too long")

// run runs the model with these lanes and returns the wanted outputs, in memory of
// their own and in the order of Trial.outputs.
func (t *Trial) run(s setting, lanes ...lane) (outputs []onnx.Tensor, err error) {
	if time.Now().After(t.deadline) {
		return nil, errTooLong
	}
	t.Runs++
	r := t.runner
	if t.fresh {
		if r, err = t.Open(); err != nil {
			return nil, err
		}
		defer r.Close()
	}
	var blocks []statebuffer.Block
	defer func() {
		for _, b := range blocks {
			r.Memory().Free(b)
		}
	}()
	inputs, all := make([]onnx.Tensor, len(t.sig.Inputs)), make([]onnx.Tensor, len(t.sig.Outputs))
	for i := range t.inputs {
		in := &t.inputs[i]
		shape, data := t.shape(in, s), lanes[0][i]
		if t.laned(in) {
			if data, err = joinLanes(shape, in.axis, in.dtype, lanes, i); err != nil {
				return nil, err
			}
			shape[in.axis] = int64(len(lanes))
		}
		block, err := r.Memory().Alloc(int64(len(data)))
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
		copy(block.Bytes, data)
		inputs[in.index] = onnx.Tensor{Data: block.At(0, int64(len(data))), DType: in.dtype, Shape: shape}
	}
	for _, at := range t.outputs {
		all[at].DType = t.sig.Outputs[at].DType
	}
	if err := onnx.Probe(r, inputs, all); err != nil {
		return nil, err
	}
	t.succeeded++
	for _, at := range t.outputs {
		out := &all[at]
		outputs = append(outputs, onnx.Tensor{DType: out.DType, Shape: out.Shape.Clone(), Data: statebuffer.Block{Bytes: bytes.Clone(out.Data.Bytes)}})
	}
	return outputs, nil
}
