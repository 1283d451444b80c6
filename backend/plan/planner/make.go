package planner

import (
	"slices"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/batchaxis"
	"tritonstateful/internal/onnx"
)

// A Source is what a plan is made from.
type Source struct {
	Config     *config.Config
	Parameters *config.Parameters
	Signature  *onnx.Signature
	// Directory is that of the model; files of initial states are in its folder
	// initial_state.
	Directory string
	// Runner returns the loaded model, whose memory the host can write, or says why there
	// is none. It may be called several times.
	Runner func() (onnx.Runner, error)
	// Open loads the model once more: one with chance in it draws the same numbers in the
	// first run of each session. The caller of Open closes the runner.
	Open func() (onnx.Runner, error)
}

// Proof is what was seen while a plan was made.
type Proof struct {
	Runs int // of the model
	// RanAlone: the model has run with one lane, in the session of Source.Runner.
	RanAlone bool
	// Warning is why the lanes of a batch may influence each other all the same, or "".
	Warning string
}

// Make finds the batch of a model and what each of its tensors is for. The error joins
// everything that is wrong; the Proof is valid with an error, too.
func Make(s *Source) (*plan.Plan, Proof, error) {
	files := initialFiles(s.Directory)
	batches := s.Config.MaxBatchSize > 0
	search := chooser{
		verify: s.Parameters.Verify, batches: batches, whole: !batches && !haveSequences(s.Config, s.Parameters, s.Signature),
		finish: (*planner).finish, runner: s.Runner, open: s.Open,
		attempt: func(k *batchaxis.Candidate) *planner {
			return planInputs(s.Config, s.Parameters, s.Signature, files, k)
		},
	}
	pl, err := search.choose(batchaxis.Candidates(s.Config, s.Parameters, s.Signature))
	proof := Proof{Runs: search.runs, Warning: search.warning}
	if err != nil {
		return nil, proof, err
	}
	proof.RanAlone = slices.ContainsFunc(search.tried, func(a attempted) bool { return a.planner == pl && a.RanAlone })
	return &pl.plan, proof, nil
}

// Complete fills in what the configuration of a source leaves out. given is its text,
// defaultBatch the default-max-batch-size of the server. It returns the whole configuration
// as JSON, and in words what was filled in.
func Complete(s *Source, given []byte, defaultBatch int) (text []byte, filled []string, err error) {
	c := &completion{given: given, directory: s.Directory, params: s.Parameters, sig: s.Signature, batch: defaultBatch}
	if text, err = c.choose(s); err != nil {
		return nil, nil, err
	}
	return text, c.filled, nil
}
