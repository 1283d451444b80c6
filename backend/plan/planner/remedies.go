package planner

import (
	"fmt"
	"slices"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// noStates is what to do about a model with sequences, some of whose inputs have no source,
// and in which no states were found.
func (pl *planner) noStates() string {
	text := fmt.Sprintf("could not find any state tensors: name them in the parameter state_pairs, <<<input, output>>> for each (the model's inputs are %s, its outputs %s)", onnx.Names(pl.sig.Inputs), onnx.Names(pl.sig.Outputs))
	text += pl.choices()
	return text + "; for a model without states, list each of its inputs in input, or remove " + pl.scheduler()
}

// choice is the inputs and the outputs of one type and shape, any of which may be a pair.
type choice struct {
	inputs  []int // positions in the signature
	outputs []int
}

// choices lists what may be states by nothing but type and shape. A pair is written out only
// where there is no other one: a wrong pair loads, and keeps the wrong values.
func (pl *planner) choices() string {
	var groups, pairs []string
	sure := true
	likely := pl.likeStates()
	if pl.onlyInput() {
		likely = nil // requests need it
	}
	for _, c := range likely {
		names := make([]string, len(c.inputs))
		for i, in := range c.inputs {
			names[i] = pl.sig.Inputs[in].Name
		}
		info := &pl.sig.Inputs[c.inputs[0]]
		groups = append(groups, fmt.Sprintf("%v %v: inputs %s, outputs %s", info.DType, info.Dims, strings.Join(names, ", "), pl.outputNames(c.outputs)))
		output := "OUTPUT"
		if len(c.inputs) == 1 && len(c.outputs) == 1 {
			output = pl.sig.Outputs[c.outputs[0]].Name
		} else {
			sure = false
		}
		for _, name := range names {
			pairs = append(pairs, fmt.Sprintf("<<<%s, %s>>>", name, output))
		}
	}
	if len(groups) == 0 {
		return ""
	}
	remedy := "write the right OUTPUT for each and keep the pairs that are states"
	if sure {
		remedy = "keep the pairs that are states"
	}
	return fmt.Sprintf("; of equal type and shape are %s: %s: %s", strings.Join(groups, "; "), parameterText("state_pairs", strings.Join(pairs, " ")), remedy)
}

// onlyInput reports whether the model has one input at most for requests and states together.
func (pl *planner) onlyInput() bool {
	free := len(pl.plan.Inputs)
	for i := range pl.sig.Inputs {
		if pl.takenIn[i] == "" && !pl.sig.Inputs[i].Optional {
			free++
		}
	}
	return free < 2
}

// likeStates groups inputs and outputs by nothing but type and shape. Inputs that the
// configuration names are no states. Outputs that it names are hardly those of states, and
// come last.
func (pl *planner) likeStates() (choices []choice) {
	for i := range pl.sig.Inputs {
		in := &pl.sig.Inputs[i]
		if in.Optional || pl.takenIn[i] != "" {
			continue
		}
		if at := slices.IndexFunc(choices, func(c choice) bool {
			other := &pl.sig.Inputs[c.inputs[0]]
			return other.DType == in.DType && other.Dims.Equal(in.Dims)
		}); at >= 0 {
			choices[at].inputs = append(choices[at].inputs, i)
			continue
		}
		if outputs := pl.outputsLike(in); len(outputs) > 0 {
			choices = append(choices, choice{[]int{i}, outputs})
		}
	}
	return choices
}

// outputsLike are the outputs of the type and shape of an input; those that the configuration
// names come last.
func (pl *planner) outputsLike(in *onnx.TensorInfo) (outputs []int) {
	var listed []int
	for j := range pl.sig.Outputs {
		out := &pl.sig.Outputs[j]
		switch {
		case !oneState(in, out) || !in.Dims.Equal(out.Dims):
		case slices.ContainsFunc(pl.config.Outputs, func(c config.TensorConfig) bool { return strings.EqualFold(c.Name, out.Name) }):
			listed = append(listed, j)
		default:
			outputs = append(outputs, j)
		}
	}
	return append(outputs, listed...)
}

// dimsText is dims as a configuration has them.
func dimsText(dims tensor.Shape) string {
	if len(dims) == 0 {
		return "dims: [ ]"
	}
	return "dims: [ " + strings.Trim(strings.ReplaceAll(dims.String(), ",", ", "), "[]") + " ]"
}

// writeDims is an end to a message about dims that do not fit: the line that would.
// They are written as the wrong ones are, with every axis of the model and -1 for the
// batch, or without the batch. It is empty where the batch is not known.
func (pl *planner) writeDims(p *plan.IO, asked tensor.Shape, info *onnx.TensorInfo, found batchaxis.Axis) string {
	axis, given, err := batchaxis.Given(pl.params, info)
	switch {
	case p.IsState:
		axis, given = pl.plan.StateAt(p.State).Axis, true
	case !given:
		axis, given = found.Index, found.Known
	}
	want := info.Dims
	switch {
	case pl.config.MaxBatchSize == 0:
	case err != nil || !given || axis == tensor.NoAxis && !info.Dims.Fixed():
		return ""
	case axis == tensor.NoAxis:
		if len(want) > 0 && want[0] == 1 && len(asked) < len(want) { // a batch that the exporter has fixed
			want = want[1:]
		}
	case len(asked) != len(want) || asked[axis] >= 0:
		want = want.Without(axis)
	}
	if len(want) == 0 {
		return ": write dims: [ 1 ] reshape: { shape: [ ] }"
	}
	return ": write " + dimsText(want)
}

// writeStateDims is the same for a state in sequence_batching, which has no reshape.
func (pl *planner) writeStateDims(model tensor.Shape, axis int) string {
	if pl.config.MaxBatchSize > 0 {
		model = model.Without(axis)
	}
	return "write " + dimsText(model)
}

// nothingFor is why a model has no input, or no output, that clients could be offered.
func (c *completion) nothingFor(field string) error {
	if field == "output" {
		return fmt.Errorf("the model leaves no output for requests: it does not say how many axes %s have", onnx.Names(c.sig.Outputs))
	}
	guess := ""
	if len(c.states) > 0 && c.states[0].Source == byNames {
		guess = fmt.Sprintf("; the states were guessed from the names: declare those that are states, without the inputs of requests, with %s; for a model without states, remove sequence_batching", pairsParameter(c.states))
	}
	return fmt.Errorf("the model leaves no input for requests: each of its inputs %s is a state or written by the backend%s", onnx.Names(c.sig.Inputs), guess)
}

// noteGuesses notes what was made of names, and what could not be described.
func (c *completion) noteGuesses() {
	if len(c.states) > 0 && c.states[0].Source == byNames {
		c.filled = append(c.filled, "guessed from the names: "+pairsParameter(c.states))
	}
	for _, m := range c.planner.mismatches {
		c.filled = append(c.filled, c.planner.unlike(m)+": they are treated as an input and an output of requests")
	}
	for i := range c.sig.Outputs {
		if t := &c.sig.Outputs[i]; t.Dims == nil && c.planner.takenOut[i] == "" && len(c.config.Outputs) == 0 {
			c.filled = append(c.filled, fmt.Sprintf("output %q is left out: the model does not say how many axes it has", t.Name))
		}
	}
}

// mergedSwitch is the input by which optimum's merged decoders tell their first
// step, in which they write the caches of the encoder, from the others, in which
// they write nothing there; mergedCaches are these.
const (
	mergedSwitch = "use_cache_branch"
	mergedCaches = "past_key_values.*.encoder.*"
)

// MergedDecoderAdvice is what a configuration lacks that serves a merged decoder, or empty.
func MergedDecoderAdvice(cfg *config.Config, params *config.Parameters, sig *onnx.Signature) string {
	if exactName(mergedSwitch, sig.Inputs) < 0 || !haveSequences(cfg, params, sig) {
		return ""
	}
	updates := slices.Clone(params.StateUpdates)
	for i := range sig.Inputs {
		name := sig.Inputs[i].Name
		_, is := config.MatchPattern(mergedCaches, name)
		if rule, _ := config.Lookup(updates, name); !is || rule == "keep" {
			continue
		}
		control := ""
		switch {
		case cfg.Sequence == nil && !slices.ContainsFunc(params.Derived, func(a config.Assignment) bool { return a.Name == mergedSwitch }):
			control = fmt.Sprintf(", and in derived_inputs %s = not_start", mergedSwitch)
		case cfg.Sequence != nil && !slices.ContainsFunc(cfg.Sequence.ControlInputs, func(input config.ControlConfig) bool { return input.Name == mergedSwitch }):
			control = fmt.Sprintf(", and in sequence_batching control_input [{ name: '%s' control [{ kind: %s bool_false_true: [ true, false ] }] }]", mergedSwitch, config.ControlStart)
		}
		return fmt.Sprintf("a merged decoder writes the caches of the encoder, such as that of %q, in the first request of a sequence only: write %s%s", name, parameterText("state_updates", mergedCaches+" = keep"), control)
	}
	return ""
}

// WithAdvice adds what may help to an error, if there is one.
func WithAdvice(err error, advice string) error {
	if err == nil || advice == "" {
		return err
	}
	return status.Errorf(status.CodeOf(err), "%w; %s", err, advice)
}
