package planner

import (
	"fmt"
	"slices"
	"sort"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/tensor"
	"tritonstateful/statebuffer"
)

// fillBatch fills in max_batch_size. A configuration with inputs or outputs has
// dims that mean what they mean without it.
func (c *completion) fillBatch() (filled bool) {
	if c.config.MaxBatchSize > 0 || len(c.config.Inputs)+len(c.config.Outputs) > 0 {
		return false
	}
	why := c.unbatched()
	if scalar := c.scalar(); why != "" && scalar != "" && c.batch > 0 {
		c.config.MaxBatchSize = 1
		c.fill("max_batch_size", 1, fmt.Sprintf("max_batch_size: 1, because %s and %q has no axes, which the server accepts only with a batch", why, scalar))
		return true
	}
	if why != "" {
		c.filled = append(c.filled, "max_batch_size stays 0: "+why)
		return false
	}
	size := c.batch
	if c.sequences() && size == config.ServerBatch {
		size = sequenceBatch
	}
	if size <= 0 {
		return false
	}
	size = max(1, sort.Search(size, func(n int) bool { return !c.hasSlots(n + 1) }))
	c.config.MaxBatchSize = size
	c.fill("max_batch_size", size, fmt.Sprintf("max_batch_size: %d from the model, which has a batch axis", size))
	return true
}

// hasSlots reports whether sequence_batching as given has sequences enough for a
// batch of that size.
func (c *completion) hasSlots(batch int) bool {
	trial := *c.config
	trial.MaxBatchSize = batch
	sizing, err := statebuffer.NewSizing(trial.Candidates(), batch, c.params.SlotRatio(&trial), c.params.Lazy)
	return trial.Sequence == nil || err == nil && sizing.Initial >= batch
}

// unbatched is why requests cannot run together, or empty. Without states the
// batch is the outermost axis of every tensor, as Triton's backend for ONNX has it;
// with states it may be any axis, and an input of fixed shape may lack it, no
// matter who writes it: requests with other values run separately then. Correlation IDs
// always differ, and a mask differs between lanes.
func (c *completion) unbatched() string {
	tensors := slices.Concat(c.freeInputs(), c.freeOutputs())
	for _, s := range c.states {
		tensors = append(tensors, c.input(exactName(s.Input, c.sig.Inputs)))
	}
	for _, f := range c.planner.plan.Generated {
		if t := c.input(f.Index); f.Kind == plan.KindID || f.Kind == plan.KindMask || f.Kind != plan.KindConstant && !t.Dims.Fixed() {
			tensors = append(tensors, t)
		}
	}
	if c.candidate.SingleLane && c.candidate.HasLanes() {
		return "the model runs with one request at a time only"
	}
	inputs := len(c.freeInputs())
	for i, t := range tensors {
		axis := t.batchAxis()
		switch {
		case axis == tensor.NoAxis && c.sequences() && i < inputs && t.Dims.Fixed():
		case axis == tensor.NoAxis:
			return fmt.Sprintf("%q %v of the model has no batch axis", t.Name, t.Dims)
		case axis > 0 && !c.sequences():
			return fmt.Sprintf("the outermost axis of %q %v is not the batch", t.Name, t.Dims)
		}
	}
	return ""
}

// scalar is an input or output for clients that has no axes at all, or empty.
func (c *completion) scalar() string {
	for _, t := range slices.Concat(c.freeInputs(), c.freeOutputs()) {
		if len(t.Dims) == 0 {
			return t.Name
		}
	}
	return ""
}

// batchAxis is the batch axis of a tensor, or tensor.NoAxis. Where nothing says so, it is the only
// one that is open.
func (t *modelTensor) batchAxis() int {
	if open := batchaxis.OpenAxes(t.TensorInfo); !t.Known && len(open) == 1 {
		return open[0]
	}
	return t.Index
}

// fillTensors fills in the inputs and the outputs, each where none was given.
func (c *completion) fillTensors() error {
	for _, part := range []struct {
		field string
		given *[]config.TensorConfig
		model []modelTensor
	}{{"input", &c.config.Inputs, c.freeInputs()}, {"output", &c.config.Outputs, c.freeOutputs()}} {
		if len(*part.given) > 0 {
			continue
		}
		if len(part.model) == 0 {
			return c.nothingFor(part.field)
		}
		var words []string
		for i := range part.model {
			described, err := c.describe(part.model[i])
			if err == nil && described.Reshape != nil && c.config.MaxBatchSize == 0 {
				err = errScalar
			}
			if err != nil {
				return fmt.Errorf("%s %q: %w", part.field, part.model[i].Name, err)
			}
			*part.given = append(*part.given, described)
			words = append(words, fmt.Sprintf("%s %q %s %v from the model", part.field, described.Name, described.DataType, described.Dims))
		}
		c.fill(part.field, *part.given, words...)
	}
	return nil
}

// describe writes a tensor of the model as a configuration has it: without the
// batch axis. Triton wants at least one axis; what has none is reshaped.
func (c *completion) describe(info modelTensor) (config.TensorConfig, error) {
	described := config.TensorConfig{Name: info.Name, DataType: info.DType.ConfigName(), Dims: info.Dims.Clone()}
	if info.DType == tensor.Invalid {
		return described, fmt.Errorf("its element type has no counterpart in Triton")
	}
	if c.config.MaxBatchSize > 0 {
		axis := info.batchAxis()
		if axis == tensor.NoAxis && !info.Known && !info.Dims.Fixed() {
			return described, fmt.Errorf("the batch axis of %v is unknown: set the parameter batch_axes, \"%s = none\" if there is none", info.Dims, info.Name)
		}
		described.Dims = described.Dims.Without(axis)
	}
	if len(described.Dims) == 0 {
		described.Dims, described.Reshape = tensor.Shape{1}, &config.Reshape{Shape: tensor.Shape{}}
	}
	return described, nil
}

// stateWords says which states there are.
func (c *completion) stateWords() (words []string) {
	for _, s := range c.states {
		words = append(words, fmt.Sprintf("state %q -> %q from the model, paired by %s", s.Input, s.Output, s.Source))
	}
	return words
}

// fillSequences fills in sequence_batching. The states are listed in it for people to
// see, and for the server to tell sequences of one ID apart. A state that grows must not
// be in it: it would begin with one element. Those listed would count as all there are,
// so that then none is, but one that no model has.
func (c *completion) fillSequences() {
	type state struct {
		Input  string       `json:"input_name"`
		Output string       `json:"output_name"`
		Type   string       `json:"data_type"`
		Dims   tensor.Shape `json:"dims"`
	}
	sequences := struct {
		Oldest map[string]int `json:"oldest"`
		States []state        `json:"state,omitempty"`
	}{Oldest: map[string]int{"max_candidate_sequences": sequenceCandidates}}
	words := []string{fmt.Sprintf("sequence_batching { oldest { max_candidate_sequences: %d } }, because the model has states", sequenceCandidates)}
	words = append(words, c.stateWords()...)
	for _, s := range c.states {
		described, err := c.describe(c.input(exactName(s.Input, c.sig.Inputs)))
		if err == nil && described.Dims.Fixed() {
			sequences.States = append(sequences.States, state{s.Input, s.Output, described.DataType, described.LaneDims()})
		}
	}
	if len(sequences.States) < len(c.states) {
		sequences.States = []state{{config.TokenState, config.TokenState, "TYPE_UINT8", tensor.Shape{1}}}
	}
	c.fill("sequence_batching", sequences, words...)
}
