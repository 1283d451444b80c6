package config

import (
	"errors"
	"fmt"
	"strings"

	"tritonstateful/internal/status"
)

// unserved is the part of a model configuration that means something to other
// backends. It is read to be refused, or warned of, rather than passed over.
type unserved struct {
	BatchInput  []batchTensor `json:"batch_input"`
	BatchOutput []batchTensor `json:"batch_output"`
}

// batchTensor is a batch_input or batch_output.
type batchTensor struct {
	Kind       string   `json:"kind"`
	TargetName []string `json:"target_name"`
}

func (b *batchTensor) String() string {
	return b.Kind + " for " + strings.Join(b.TargetName, ", ")
}

// Refusals is what the configuration asks for and would not get.
func (c *Config) Refusals() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, status.Errorf(status.InvalidArg, format, args...))
	}
	for i := range c.BatchInput {
		fault("batch_input %v: this backend does not generate inputs for a batch: remove it; requests of different shapes run separately, and the parameter derived_inputs provides the lengths of sequences", &c.BatchInput[i])
	}
	for i := range c.BatchOutput {
		fault("batch_output %v: this backend does not scatter outputs: remove it; every output has its batch axis, and requests of different shapes run separately", &c.BatchOutput[i])
	}
	if c.Sequence != nil && c.Sequence.Iterative {
		fault("sequence_batching.iterative_sequence: this backend runs each request once: remove it")
	}
	return errors.Join(faults...)
}

// Warnings is what the configuration says that goes wrong, or does nothing, though
// the model can be served.
func (c *Config) Warnings() (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	// The server writes the text of an ID into the control as it is, and counts
	// on TYPE_STRING for the room (SequenceBatch::SetControlTensors).
	if name, control := c.control(ControlCorrID); control != nil && control.DataType != "TYPE_STRING" {
		warn("control %q has data_type %s: tritonserver before 25.01 may crash when a client sends a string as the correlation ID; "+
			"remove the control if the model has no input %q, because this backend does not need it, or write data_type: TYPE_STRING if clients may send strings", name, control.DataType, name)
	}
	if c.Optimization.CUDA.Graphs {
		warn("optimization.cuda.graphs has no effect: use the parameter enable_cuda_graph")
	}
	return warnings
}
