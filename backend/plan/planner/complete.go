package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
)

const (
	// sequenceBatch is filled in for models with states instead: a batch of 4
	// would waste what batching sequences is for.
	sequenceBatch = 64
	// sequenceCandidates is how many sequences an instance then takes.
	sequenceCandidates = 256
)

// choose completes the configuration by the candidate for the batch that is shown to
// hold. Where none is, loading the model will say so; a model without states is then
// served as it is, without a batch.
func (c *completion) choose(s *Source) (text []byte, err error) {
	candidates := batchaxis.Candidates(s.Config, c.params, c.sig)
	files := initialFiles(c.directory)
	search := chooser{fills: true, verify: c.params.Verify, batches: s.Config.MaxBatchSize > 0, runner: s.Runner, open: s.Open}
	search.attempt = func(k *batchaxis.Candidate) *planner {
		if err := c.begin(k); err != nil {
			return &planner{candidate: k, faults: []error{err}}
		}
		return planInputs(c.trialConfig(), c.params, c.sig, files, k)
	}
	search.finish = func(pl *planner) error {
		text, err := c.complete(pl.candidate)
		if err != nil {
			return err
		}
		config, err := config.Parse(text)
		if err != nil {
			return err
		}
		return planInputs(config, c.params, c.sig, files, pl.candidate).finish()
	}
	chosen := &candidates[0]
	pl, err := search.choose(candidates)
	switch stateless := c.config != nil && !c.sequences(); {
	case err == nil:
		chosen = pl.candidate
	case search.refused && !stateless:
		return nil, err
	case search.refused:
		chosen = &candidates[len(candidates)-1]
	}
	return c.complete(chosen)
}

// completion is a configuration on its way to being complete.
type completion struct {
	given     []byte // the configuration as JSON
	directory string // the model's folder
	params    *config.Parameters
	sig       *onnx.Signature
	batch     int // the server's default-max-batch-size

	candidate *batchaxis.Candidate // where the batch is
	config    *config.Config
	fields    map[string]json.RawMessage // the whole configuration, by field
	filled    []string                   // in words, what was filled in
	chosen    bool                       // the configuration chooses a scheduler
	// planner knows what the configuration uses each tensor of the model for, states
	// are those of the model.
	planner *planner
	states  []plan.StateSpec
}

// begin starts from what was given, with the batch at the axes of a candidate.
func (c *completion) begin(axes *batchaxis.Candidate) (err error) {
	if c.config, err = config.Parse(c.given); err != nil {
		return err
	}
	c.candidate, c.filled, c.fields = axes, nil, nil
	if len(c.given) > 0 {
		if err := json.Unmarshal(c.given, &c.fields); err != nil {
			return err
		}
	}
	if c.fields == nil { // no text, or null
		c.fields = map[string]json.RawMessage{}
	}
	c.chosen = c.schedulerChosen()
	return c.findStates(c.chosen)
}

// trialConfig is the configuration for trial runs: with inputs, and nothing of outputs,
// whose axes are not known yet.
func (c *completion) trialConfig() *config.Config {
	cfg := *c.config
	if len(cfg.Inputs) > 0 {
		return &cfg
	}
	cfg.MaxBatchSize = max(cfg.MaxBatchSize, 1)
	for _, info := range c.freeInputs() {
		cfg.Inputs = append(cfg.Inputs, config.TensorConfig{Name: info.Name, DataType: info.DType.ConfigName(), Dims: info.Dims.Without(info.batchAxis())})
	}
	return &cfg
}

// complete fills in everything, with the batch at the axes of a candidate.
func (c *completion) complete(axes *batchaxis.Candidate) ([]byte, error) {
	if err := c.begin(axes); err != nil {
		return nil, err
	}
	c.noteGuesses()
	filled := c.fillBatch()
	if err := c.fillTensors(); err != nil {
		return nil, err
	}
	switch {
	case c.chosen:
	case c.config.Sequence != nil:
		c.fillSequences()
	case c.sequences():
		c.fill("dynamic_batching", struct{}{}, append([]string{"dynamic_batching { }, because sequences is free"}, c.stateWords()...)...)
	case filled && c.config.MaxBatchSize > 1: // as Triton's backend for ONNX does
		c.fill("dynamic_batching", struct{}{}, "dynamic_batching { }, because max_batch_size is filled in")
	}
	return json.Marshal(c.fields)
}

// fill sets a field of the configuration and notes it.
func (c *completion) fill(field string, value any, words ...string) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // plain data of ours
	}
	c.fields[field] = text
	for _, w := range words {
		c.filled = append(c.filled, "filled in "+w)
	}
}

func (c *completion) schedulerChosen() bool {
	for _, scheduler := range []string{"sequence_batching", "dynamic_batching", "ensemble_scheduling"} {
		if text, ok := c.fields[scheduler]; ok && string(text) != "null" {
			return true
		}
	}
	return false
}

// findStates decides whether the model keeps states. Where no scheduler was
// chosen, it does if the parameters say something of sequences, or if states can
// be found that leave an input and an output for clients.
func (c *completion) findStates(chosen bool) error {
	if chosen {
		c.look()
		return c.checkDeclared()
	}
	if c.params.Free.Scheduling == config.ScheduleFree {
		c.config.Dynamic = &config.DynamicConfig{}
	} else {
		c.config.Sequence = &config.SequenceConfig{Oldest: &config.OldestConfig{MaxCandidateSequences: sequenceCandidates}}
	}
	c.look()
	if len(c.planner.faults) > 0 {
		return fmt.Errorf("%w; write sequence_batching { oldest { } } for a model with states, dynamic_batching { } for one without", errors.Join(c.planner.faults...))
	}
	said := c.params.Free.Scheduling == config.ScheduleFree || c.params.PairsGiven || len(c.params.Derived) > 0 || len(c.params.InitialStates) > 0 || len(c.params.StateUpdates) > 0
	free := slices.Contains(c.planner.takenOut, "") && len(c.freeInputs()) > 0
	if !said && (len(c.states) == 0 || !free) {
		if len(c.states) > 0 && c.states[0].Source == byNames {
			c.filled = append(c.filled, fmt.Sprintf("served without states: the names would pair every input with an output; if some of %s are states, write those as %s", pairsText(c.states), parameterText("state_pairs", "<<<INPUT, OUTPUT>>>")))
		}
		c.config.Sequence = nil
		c.look()
	}
	return nil
}

// look finds what each tensor of the model is for, as loading the model will.
func (c *completion) look() {
	c.planner = newPlanner(c.config, c.params, c.sig, nil, c.candidate)
	c.planner.generated()
	c.planner.clientInputs()
	c.states = nil
	if !c.sequences() {
		return
	}
	for _, spec := range c.planner.specs() {
		in, out := exactName(spec.Input, c.sig.Inputs), exactName(spec.Output, c.sig.Outputs)
		if in < 0 || out < 0 {
			continue // loading the model will say so
		}
		c.planner.takenIn[in], c.planner.takenOut[out] = spec.String(), spec.String()
		c.states = append(c.states, spec)
	}
}

// sequences reports whether requests belong to sequences, once look has been called.
func (c *completion) sequences() bool { return c.planner.sequences() }

// modelTensor is a tensor of the model with what is held of its batch axis.
type modelTensor struct {
	*onnx.TensorInfo
	batchaxis.Axis
}

func (c *completion) input(at int) modelTensor {
	return modelTensor{&c.sig.Inputs[at], c.candidate.In[at]}
}

// freeInputs are the inputs of the model that requests must bring.
func (c *completion) freeInputs() (inputs []modelTensor) {
	for i := range c.sig.Inputs {
		if c.planner.takenIn[i] == "" && !c.sig.Inputs[i].Optional {
			inputs = append(inputs, c.input(i))
		}
	}
	return inputs
}

// freeOutputs are the outputs that clients can want: those of no state, or all if
// there are no others. What has no known rank cannot be described.
func (c *completion) freeOutputs() (outputs []modelTensor) {
	var ofStates []modelTensor
	for i := range c.sig.Outputs {
		switch t := (modelTensor{&c.sig.Outputs[i], c.candidate.Out[i]}); {
		case t.Dims == nil:
		case c.planner.takenOut[i] == "":
			outputs = append(outputs, t)
		default:
			ofStates = append(ofStates, t)
		}
	}
	if len(outputs) == 0 {
		return ofStates
	}
	return outputs
}
