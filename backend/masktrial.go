package backend

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/isolation"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// trialExtents are what open axes of inputs get in trials, until the model runs.
var trialExtents = []int64{3, 1, 2, 4, 5, 8, 16, 64, 100}

// Numbers with a fraction are random between two bounds. What integers a model takes is not
// known: they are random below each of these bounds, or all of the same value.
var trialNumbers = []struct {
	below, plus uint64
	fractions   [2]float64
}{{8, 0, [2]float64{-1, 1}}, {2, 0, [2]float64{-3, 3}}, {1, 1, [2]float64{-1, 1}}, {1, 0, [2]float64{-3, 3}}, {100, 0, [2]float64{-30, 30}}}

// lowNumbers are fractions far below 0, for masks that are a bias: next to them the 0 of
// padding is the largest value, and a bias such as -100 does not outweigh it.
var lowNumbers = [][2]float64{{-9, -1}, {-500, -150}}

// trialKind is what a trial sends, and how long it may take.
type trialKind struct {
	extent, short int64      // of the open axes of inputs, in most steps and in some
	numbers       int        // which of trialNumbers
	fractions     [2]float64 // the bounds of numbers with a fraction
	optional      bool       // with the inputs that requests may leave out
	until         time.Time
}

// maskTrial is an instance of its own on the same session, and the requests that it gets.
type maskTrial struct {
	trialKind
	in          *Instance
	runner      *trialRunner
	rng         *rand.Rand
	below, plus uint64
	shared      []Input // those without a batch axis, which lanes must agree on
	names       string
	stretched   []statebuffer.Block // see stretchStates
	turn        int                 // of headFactors
}

// trialRunner is a session that is borrowed, and runs without errors in the log.
type trialRunner struct {
	onnx.Runner
	runs  int
	after func(outputs []onnx.Tensor) error // what a run has written may be changed
}

func (r *trialRunner) Run(inputs, outputs []onnx.Tensor) error {
	r.runs++
	if err := onnx.Probe(r.Runner, inputs, outputs); err != nil {
		return err
	}
	if r.after != nil {
		return r.after(outputs)
	}
	return nil
}

func (r *trialRunner) Close() {}

// trialSlots is for all sequences of a trial, with their duplicates.
const trialSlots = 16

// newMaskTrial makes an instance like in for a few sequences at a time.
func (in *Instance) newMaskTrial(kind *trialKind) (*maskTrial, error) {
	quiet := slog.New(slog.DiscardHandler)
	m := in.model
	tensors, cfg, params := *in.plan, *m.config, *m.params
	tensors.MaxLanes, tensors.Free = min(3, tensors.MaxLanes), false
	sequence := config.SequenceConfig{}
	if m.config.Sequence != nil {
		sequence = *m.config.Sequence
	}
	sequence.Oldest, sequence.MaxIdleMicroseconds = &config.OldestConfig{MaxCandidateSequences: trialSlots}, 0
	cfg.Sequence = &sequence
	params.MaxStateBytes, params.MaxStateMemory = 0, 0
	info := m.info
	info.ReportMemory = nil // the server would take what the trial holds for all of the model
	model := &Model{info: info, server: m.server, log: quiet, config: &cfg, params: &params, sizing: statebuffer.Sizing{Initial: trialSlots, MaxChunks: 1}}
	runner := &trialRunner{Runner: in.runner}
	own := &Instance{model: model, log: quiet, name: in.name, runner: runner, plan: &tensors}
	own.verbosity = newVerbosity(quiet, &params)
	own.periodic = newPeriodicLog(&params, model.server.Clock)
	if err := own.allocate(); err != nil {
		own.release()
		return nil, err
	}
	copy(own.grows, in.grows)
	t := &maskTrial{trialKind: *kind, in: own, runner: runner, rng: rand.New(rand.NewPCG(1, 2)), names: in.masks()}
	t.below, t.plus = trialNumbers[kind.numbers].below, trialNumbers[kind.numbers].plus
	t.shared = t.step(kind.extent)
	return t, nil
}

// Close ends the trial's instance.
func (t *maskTrial) Close() { t.in.release() }

// hasIntegers reports whether requests bring integers.
func hasIntegers(pl *plan.Plan) bool {
	return slices.ContainsFunc(pl.Inputs, func(p plan.IO) bool {
		return closeness[p.DType] == 0 && p.DType != tensor.Bool && p.DType != tensor.Bytes
	})
}

// hasOptional reports whether requests may leave out inputs.
func hasOptional(pl *plan.Plan) bool {
	return slices.ContainsFunc(pl.Inputs, func(p plan.IO) bool { return p.Optional })
}

// step is the inputs of a request in which open axes have that extent.
func (t *maskTrial) step(extent int64) []Input {
	inputs := make([]Input, len(t.in.plan.Inputs))
	for i := range inputs {
		p := &t.in.plan.Inputs[i]
		if p.Optional && !t.optional {
			continue
		}
		if p.Axis == tensor.NoAxis && t.shared != nil {
			inputs[i] = t.shared[i]
			continue
		}
		shape := p.Request.Clone()
		for axis, d := range shape {
			if d < 0 {
				shape[axis] = extent
			}
		}
		inputs[i] = Input{Present: true, DType: p.DType, Shape: shape, Data: t.numbers(p.DType, elements(shape))}
	}
	return inputs
}

func elements(shape tensor.Shape) (n int64) {
	n = 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// numbers are that many elements; strings are empty.
func (t *maskTrial) numbers(dtype tensor.DType, count int64) []byte {
	if dtype == tensor.Bytes {
		return make([]byte, 4*count)
	}
	size := int64(dtype.Size())
	data := make([]byte, count*size)
	for i := range count {
		to := data[i*size : (i+1)*size]
		switch dtype {
		case tensor.FP64, tensor.FP32, tensor.FP16, tensor.BF16:
			copy(to, tensor.FloatElement(t.fractions[0]+(t.fractions[1]-t.fractions[0])*t.rng.Float64(), dtype))
		case tensor.Bool:
			to[0] = byte(min(1, t.rng.Uint64N(min(t.below, 2))+t.plus))
		default:
			tensor.PutInt(to, dtype, int64(t.rng.Uint64N(t.below)+t.plus))
		}
	}
	return data
}

// trialRequest is a request of a sequence.
type trialRequest struct {
	id     uint64
	start  bool
	inputs []Input
}

// duplicate is the same request of another sequence, which runs with it so that a run has two
// lanes of equal length.
func (request trialRequest) duplicate() trialRequest {
	request.id += 100
	return request
}

// trialAnswer is the answer to one.
type trialAnswer struct {
	shapes []tensor.Shape
	data   [][]byte
	err    error
}

// run executes requests as one batch. A request that fails is no verdict.
func (t *maskTrial) run(asks ...trialRequest) ([]trialAnswer, error) {
	b := &trialBatch{answers: make([]trialAnswer, len(asks))}
	for _, a := range asks {
		b.requests = append(b.requests, Request{Sequence: SequenceID{Number: a.id}, Token: a.id, Start: a.start, Inputs: a.inputs})
	}
	t.in.Execute(b)
	for i := range b.answers {
		if err := b.answers[i].err; err != nil {
			return nil, fmt.Errorf("%wthe model does not run with what was tried: %w", errUndecided, err)
		}
	}
	return b.answers, nil
}

// trialBatch is a batch that no client sent.
type trialBatch struct {
	requests []Request
	answers  []trialAnswer
}

func (b *trialBatch) Requests() []Request { return b.requests }

func (b *trialBatch) Fail(req int, err error) {
	if b.answers[req].err == nil {
		b.answers[req].err = err
	}
}

func (b *trialBatch) Answer(req int, outputs []Output, lane, _ int) {
	answer := &b.answers[req]
	for i := range outputs {
		o := &outputs[i]
		var data []byte
		if o.Offsets != nil {
			data = append(data, o.Tensor[o.Offsets[lane]:o.Offsets[lane+1]]...)
		} else {
			data = make([]byte, o.Layout.LaneBytes())
			o.Layout.TakeLane(data, o.Tensor, o.Lanes, lane)
		}
		answer.shapes, answer.data = append(answer.shapes, o.Shape.Clone()), append(answer.data, data)
	}
}

func (b *trialBatch) Reserve(int, []Output, int, int) []uint64 { return nil }
func (b *trialBatch) Describe(int, AnswerParameters)           {}
func (b *trialBatch) Hold(int) Held                            { return released{} }
func (b *trialBatch) Park(int) func(any)                       { panic("a trial resumes nothing") }
func (b *trialBatch) Send()                                    {}
func (b *trialBatch) Finish(Timing)                            {}

// released is a Held for which nothing waits.
type released struct{}

func (released) Release()                             {}
func (released) ReleaseWith(*AnswerParameters, error) {}

// closeness is by how much two answers may differ, as isolation.Difference takes it, of
// an output. Padding and other lanes change the order of a sum, and with it the last bits, a
// little more after each layer: in the models that were measured by 1.2e-6 for FP32. What a
// mask fails to hide makes some hundredths or more. Types that are not here must be equal.
var closeness = map[tensor.DType]float64{tensor.FP64: 1e-9, tensor.FP32: 1e-4, tensor.FP16: 8e-3, tensor.BF16: 6e-2}

// differ says which output differs from what was wanted, and by how much.
func (t *maskTrial) differ(got, want *trialAnswer) string {
	for i := range t.in.plan.Outputs {
		p := &t.in.plan.Outputs[i]
		if !got.shapes[i].Equal(want.shapes[i]) {
			return fmt.Sprintf("output %q has shape %v and not %v", p.Name, got.shapes[i], want.shapes[i])
		}
		share, inexact := closeness[p.DType]
		if !inexact {
			if !slices.Equal(got.data[i], want.data[i]) {
				return fmt.Sprintf("output %q differs", p.Name)
			}
			continue
		}
		if g, w, differ := isolation.Difference(got.data[i], want.data[i], p.DType, share); differ {
			return fmt.Sprintf("output %q has %.6g and not %.6g", p.Name, g, w)
		}
	}
	return ""
}
