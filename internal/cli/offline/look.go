package offline

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/planner"
	"tritonstateful/internal/modelconfig"
	"tritonstateful/internal/onnx"
)

// A Model is what the backend makes of a model.
type Model struct {
	*Files
	Signature *onnx.Signature
	// JSON is the configuration with everything filled in; Filled says in words what was. Config and Parameters are what
	// the backend reads of it. If it could not be completed they are what was given.
	JSON       []byte
	Filled     []string
	Config     *config.Config
	Parameters *config.Parameters
	// Plan is nil if a question is open.
	Plan      *plan.Plan
	Questions []Question
	// Runs is how often the model ran for the plan, Warnings are what may be wrong with it all the same.
	Runs     int
	Warnings []string
}

// A Question is something that the model and its configuration leave open, so that it would not load.
type Question struct {
	Text string `json:"text"`
	// Lines are the parameters in the text, ready for config.pbtxt. One of them decides the question.
	Lines []string `json:"lines"`
}

// parameterLine is a parameter as the planner's errors show it.
var parameterLine = regexp.MustCompile(`parameters \{ key: '[^']*' value \{ string_value: '[^']*' \} \}`)

// questions are the lines of an error, each with the parameters that it shows.
func questions(err error) (list []Question) {
	for text := range strings.Lines(err.Error()) {
		if text = strings.TrimSpace(text); text != "" {
			list = append(list, Question{text, append([]string{}, parameterLine.FindAllString(text, -1)...)})
		}
	}
	return list
}

// Look opens the model on the CPU, completes the configuration and makes the plan. An error is that the model cannot be
// looked at; open questions are not an error.
func (f *Files) Look(open onnx.OpenRunner) (*Model, error) {
	m := &Model{Files: f, JSON: modelconfig.JSON(f.Given)}
	var err error
	if m.Config, m.Parameters, err = f.parameters(m.JSON); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Config, err)
	}
	runner, err := open(m.Session())
	if err != nil {
		return nil, err
	}
	m.Signature = runner.Signature()
	made, err := m.makePlan(runner, open)
	runner.Close()
	if err != nil {
		m.Questions = questions(m.advised(err))
		return m, nil
	}
	if m.Warnings, err = m.tryToLoad(open); err != nil {
		m.Questions = questions(err)
		return m, nil
	}
	m.Plan = made
	if warning := m.hiddenStates(); warning != "" {
		m.Warnings = append(m.Warnings, warning)
	}
	return m, nil
}

// makePlan completes the configuration, and makes the plan.
func (m *Model) makePlan(runner onnx.Runner, open onnx.OpenRunner) (*plan.Plan, error) {
	if err := m.complete(runner, open); err != nil {
		return nil, err
	}
	made, proof, err := planner.Make(m.source(runner, open))
	m.Runs = proof.Runs
	return made, errors.Join(m.Config.Refusals(), m.Parameters.FreeConflicts(m.Config), err, m.checkFree(made))
}

// checkFree says why the configuration does not suit free sequences, if the plan says that there are some.
func (m *Model) checkFree(made *plan.Plan) error {
	if made == nil || !made.Free {
		return nil
	}
	return errors.Join(m.Config.CheckFree(), m.Config.CheckCache())
}

// Sequences reports whether requests belong to sequences.
func (m *Model) Sequences() bool {
	return m.Config.Sequence != nil || m.Plan != nil && m.Plan.Free
}

// Candidates is how many sequences an instance can have at a time.
func (m *Model) Candidates() int {
	if m.Config.Sequence == nil && m.Sequences() {
		return m.Parameters.FreeSlots(m.Config)
	}
	return m.Config.Candidates()
}

// Session is how the model is opened to look at it: as an instance on the CPU would, on one thread.
func (m *Model) Session() onnx.SessionOptions {
	o := m.Parameters.Session
	o.Path, o.Name, o.IntraOpThreads, o.Parallel, o.Plugin, o.Run = m.Model, m.Name, 1, false, nil, nil
	return o
}

func (m *Model) source(runner onnx.Runner, open onnx.OpenRunner) *planner.Source {
	return &planner.Source{
		Config: m.Config, Parameters: m.Parameters, Signature: m.Signature, Directory: m.Directory,
		Runner: func() (onnx.Runner, error) { return runner, nil },
		Open:   func() (onnx.Runner, error) { return open(m.Session()) },
	}
}

// complete fills in what the configuration leaves out, as Triton has the backend do it.
func (m *Model) complete(runner onnx.Runner, open onnx.OpenRunner) (err error) {
	if len(m.Config.Inputs) > 0 && len(m.Config.Outputs) > 0 {
		return nil
	}
	text, filled, err := planner.Complete(m.source(runner, open), m.JSON, config.ServerBatch)
	if err != nil {
		return err
	}
	cfg, params, err := m.parameters(text)
	if err != nil {
		return err
	}
	m.JSON, m.Filled, m.Config, m.Parameters = text, filled, cfg, params
	return nil
}

// Reread reads Config and Parameters again from JSON, which was changed.
func (m *Model) Reread() (err error) {
	m.Config, m.Parameters, err = m.parameters(m.JSON)
	return err
}

// advised adds what helps with a model of a toolkit that is known.
func (m *Model) advised(err error) error {
	return planner.WithAdvice(err, planner.MergedDecoderAdvice(m.Config, m.Parameters, m.Signature))
}
