package parity

import (
	"errors"
	"fmt"
	"slices"

	"tritonstateful/backend"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/cli/localserver"
	"tritonstateful/internal/cli/offline"
	"tritonstateful/internal/cli/recording"
	"tritonstateful/internal/modelconfig"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/tensor"
)

// Options are what is compared.
type Options struct {
	Lanes, Steps int
	// Extent is that of open axes of requests; 0 tries until the model runs.
	Extent int64
	// Data are files for inputs, as FILE or INPUT=FILE.
	Data []string
}

// A Report is the results of all comparisons, and what they were made with.
type Report struct {
	Lanes   int      `json:"sequences"`
	Steps   int      `json:"steps"`
	Extent  int64    `json:"extent"` // of open axes of requests
	Results []Result `json:"results"`
	// Notes say what the requests cannot show.
	Notes []string `json:"notes"`
	// Open reports whether requests have axes that the model leaves open.
	Open bool `json:"-"`
}

// Good reports whether nothing is wrong.
func (r *Report) Good() bool {
	return !slices.ContainsFunc(r.Results, func(one Result) bool { return !one.Good() })
}

// script is what the sequences send, and what ONNX Runtime says of each of them alone.
type script struct {
	inputs [][][]backend.Input // by lane and step
	want   [][][]localserver.Output
	notes  []string // what it cannot show
	// stateBytes is how large the states of the first lane are after its last step.
	stateBytes int64
}

// checker is what all comparisons share.
type checker struct {
	model   *offline.Model
	open    onnx.OpenRunner
	options Options
	script  script
	outputs []onnx.IOTensor
}

// answers are those to each lane and step.
type answers [][]localserver.Answer

// Check compares. The error is that there is nothing to compare: the model does not load, or does not run with what was
// made up for it.
func Check(m *offline.Model, open onnx.OpenRunner, o Options) (*Report, error) {
	c := &checker{model: m, open: open, options: o}
	in, err := c.load("")
	if err != nil {
		return nil, err
	}
	defer in.Close()
	c.outputs = in.Outputs()
	most := in.LargestBatch()
	if m.Sequences() {
		most = min(most, m.Candidates())
	}
	c.options.Lanes = max(1, min(o.Lanes, most))
	used, err := c.write()
	if err != nil {
		return nil, err
	}
	report := &Report{Lanes: c.options.Lanes, Steps: c.options.Steps, Extent: used.extent, Notes: c.script.notes, Open: hasOpenAxes(m)}
	report.Results = append(report.Results,
		c.against("one by one", c.alone(in), c.order(), 0),
		c.batched(in), c.permuted(in), c.restarted(in), c.restored())
	return report, nil
}

func hasOpenAxes(m *offline.Model) bool {
	return slices.ContainsFunc(m.Plan.Inputs, func(in plan.IO) bool { return slices.Contains(in.Dims.With(in.Axis, 1), tensor.Dynamic) })
}

// Requests makes up the inputs of requests, by sequence and step, as those of Check are. It also returns how many bytes the
// states of the first sequence have after the last step.
func Requests(m *offline.Model, open onnx.OpenRunner, o Options) (inputs [][][]backend.Input, stateBytes int64, err error) {
	c := &checker{model: m, open: open, options: o}
	if _, err := c.write(); err != nil {
		return nil, 0, err
	}
	return c.script.inputs, c.script.stateBytes, nil
}

// load serves the model; store is the URL of its state store, or empty. A store that the configuration names is not touched.
func (c *checker) load(store string) (*localserver.Instance, error) {
	full, err := c.model.WithStore(store)
	if err != nil {
		return nil, err
	}
	info := backend.ModelInfo{Name: c.model.Name, Version: c.model.Version, Directory: c.model.Directory, Config: modelconfig.JSON(full)}
	return localserver.Load(info, nil, c.open)
}

// write makes the script: with the first setting with which the model runs, for all steps.
func (c *checker) write() (used setting, err error) {
	runner, err := c.open(c.model.Session())
	if err != nil {
		return setting{}, err
	}
	defer runner.Close()
	recorded := map[int]*recording.Recording{}
	for _, text := range c.options.Data {
		input, r, err := readData(text, c.model.Plan)
		if err != nil {
			return setting{}, err
		}
		recorded[input] = r
	}
	var first error
	for _, s := range settings(c.options.Extent) {
		if err := c.play(runner, s, 1, recorded); err != nil {
			if first == nil || errors.Is(err, recording.ErrShort) {
				first = err
			}
			continue
		}
		return s, c.play(runner, s, c.options.Lanes, recorded)
	}
	if errors.Is(first, recording.ErrShort) {
		return setting{}, fmt.Errorf("%w, and the model does not run with less", first)
	}
	return setting{}, fmt.Errorf("the model does not run with requests that were made up: %w; give real ones with --data, or the extent of open axes with --extent", first)
}

// errNothing is about a step that writes nothing.
var errNothing = errors.New("its outputs are empty")

// play writes the script for some lanes.
func (c *checker) play(runner onnx.Runner, s setting, lanes int, recorded map[int]*recording.Recording) error {
	c.script = script{}
	first := make([][]value, c.options.Steps) // of the first lane
	for lane := range lanes {
		ref, err := newReference(c.model, runner, c.id(lane))
		if err != nil {
			return err
		}
		inputs, want := make([][]backend.Input, c.options.Steps), make([][]localserver.Output, c.options.Steps)
		for step := range c.options.Steps {
			values, err := ref.inputs(s, lane, step, recorded)
			if err != nil {
				return err
			}
			if lane == 0 {
				first[step] = values
			}
			if inputs[step] = requestInputs(c.model.Plan, values); err == nil {
				want[step], err = ref.step(values, step == 0, c.ends(step))
			}
			if err != nil {
				return fmt.Errorf("step %d of a sequence: %w", step, err)
			}
		}
		if !slices.ContainsFunc(want, func(outputs []localserver.Output) bool {
			return slices.ContainsFunc(outputs, func(o localserver.Output) bool { return len(o.Data) > 0 })
		}) {
			return errNothing
		}
		if lane == 0 {
			for i := range ref.states {
				c.script.stateBytes += int64(len(ref.states[i].data))
			}
		}
		c.script.inputs, c.script.want = append(c.script.inputs, inputs), append(c.script.want, want)
	}
	c.script.notes = c.notes(runner, first)
	return nil
}

// id is the correlation ID of a lane.
func (c *checker) id(lane int) uint64 {
	if !c.model.Sequences() {
		return 0
	}
	return uint64(lane) + 1
}

// ends reports whether a step has END. Where an END is not run, it comes as a request of its own.
func (c *checker) ends(step int) bool {
	return step == c.options.Steps-1 && c.model.Parameters.InferEnd
}

// request is that of a lane and step.
func (c *checker) request(lane, step, slot int) localserver.Request {
	r := localserver.Request{ID: c.id(lane), Inputs: c.script.inputs[lane][step], Slot: slot}
	if r.ID != 0 {
		r.Start, r.End = step == 0, c.ends(step)
	}
	return r
}

// end ends sequences whose END is not run.
func (c *checker) end(in *localserver.Instance, lanes []int) {
	if c.id(0) == 0 || c.model.Parameters.InferEnd {
		return
	}
	for slot, lane := range lanes {
		r := c.request(lane, c.options.Steps-1, slot)
		r.Start, r.End = false, true
		in.Run([]localserver.Request{r})
	}
}

// order is the lanes one after the other.
func (c *checker) order() []int {
	all := make([]int, c.options.Lanes)
	for i := range all {
		all[i] = i
	}
	return all
}

func (c *checker) none() answers {
	all := make(answers, c.options.Lanes)
	for i := range all {
		all[i] = make([]localserver.Answer, c.options.Steps)
	}
	return all
}

// against compares answers with the script, from a step on.
func (c *checker) against(name string, got answers, lanes []int, from int) Result {
	r := Result{Name: name, Verdict: SameBits, ByStep: []float64{}, FirstStep: from}
	for _, lane := range lanes {
		for step := from; step < c.options.Steps; step++ {
			r.compare(c.outputs, got[lane][step], c.script.want[lane][step], lane, step)
		}
	}
	return r
}
