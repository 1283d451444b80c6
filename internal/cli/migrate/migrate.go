package migrate

import (
	"fmt"
	"strings"

	"tritonstateful/internal/modelconfig"
)

// Target is the backend that a configuration is for.
type Target string

// The targets.
const (
	Stateful Target = "stateful" // this backend
	NVIDIA   Target = "nvidia"   // NVIDIA's stateful_backend
	Triton   Target = "triton"   // Triton's onnxruntime backend, with implicit state
)

// Options are the choices of Migrate.
type Options struct {
	To Target
	// Pairs: for Stateful, declare states by state_pairs instead of sequence_batching { state }.
	Pairs bool
}

// A State is one of the model, as a look at it found it.
type State struct {
	Input, Output string
	DataType      string  // such as TYPE_FP32
	Dims          []int64 // of one sequence, without the batch axis; -1 where they vary
	BatchAxis     int     // negative: none
	Begins        string  // in words
	Zeros         bool    // it begins with zeros, and with no extent of 0
	Varies        bool    // its size changes from step to step
}

// A Result is a migrated configuration.
type Result struct {
	Before, After string
	Changes       []Change
	// Open is what the target cannot do, or what someone has to decide.
	Open []string
}

// Migrate rewrites a configuration; that of a model for another kind of backend, or of an
// ensemble, stays as it is. look is called if the target needs what only the model file
// says.
func Migrate(text string, look func() ([]State, error), o Options) (*Result, error) {
	if _, err := modelconfig.Parse([]byte(text)); err != nil {
		return nil, err
	}
	fields, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	e := &editor{text: text, fields: fields}
	if !e.isONNX() {
		return &Result{Before: text, After: text}, nil
	}
	switch o.To {
	case Stateful:
		err = e.toStateful(o.Pairs)
	case NVIDIA:
		err = e.toNVIDIA(look)
	case Triton:
		err = e.toTriton(look)
	default:
		return nil, fmt.Errorf("migrate to %q: want %s, %s or %s", o.To, Stateful, NVIDIA, Triton)
	}
	if err != nil {
		return nil, err
	}
	r := &Result{Before: text, After: e.result(), Changes: e.changes, Open: e.open}
	if _, err := modelconfig.Parse([]byte(r.After)); err != nil {
		return nil, fmt.Errorf("the migrated configuration cannot be read, which is a defect of this command: %w", err)
	}
	return r, nil
}

// isONNX reports whether a configuration is one of the targets'. Without a backend it is taken from
// the model file, which can be ONNX.
func (e *editor) isONNX() bool {
	backend, platform := valueOf(e.fields, "backend"), valueOf(e.fields, "platform")
	return backend == "stateful" || backend == "onnxruntime" || backend == "" && (platform == "" || platform == "onnxruntime_onnx")
}

// sequence returns the fields of sequence_batching, and its field.
func (e *editor) sequence() (*field, []*field) {
	for _, f := range named(e.fields, "sequence_batching") {
		return f, f.fields
	}
	return nil, nil
}

// listed returns the states of sequence_batching { state }.
func (e *editor) listed() [][]*field {
	_, sequence := e.sequence()
	return messages(sequence, "state")
}

// pairsOf is the parameter state_pairs for some states.
func pairsOf[S any](states []S, names func(S) (in, out string)) string {
	pairs := make([]string, len(states))
	for i, state := range states {
		in, out := names(state)
		pairs[i] = "<<<" + in + ", " + out + ">>>"
	}
	return strings.Join(pairs, " ")
}
