package config

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// ServerBatch is the default-max-batch-size of a server without that setting.
const ServerBatch = 4

// Config is the part of Triton's model configuration that this backend reads.
// Field names follow model_config.proto. Everything else is Triton's business.
type Config struct {
	Name         string          `json:"name"`
	MaxBatchSize int             `json:"max_batch_size"`
	Inputs       []TensorConfig  `json:"input"`
	Outputs      []TensorConfig  `json:"output"`
	Sequence     *SequenceConfig `json:"sequence_batching"`
	Dynamic      *DynamicConfig  `json:"dynamic_batching"`
	// DefaultModelFilename names the model file, as the parameter onnx_file_name does.
	DefaultModelFilename string           `json:"default_model_filename"`
	Parameters           map[string]Value `json:"parameters"`
	Optimization         optimization     `json:"optimization"`
	ModelOperations      ModelOperations  `json:"model_operations"`
	// CCModelFilenames are the model files for GPUs of a compute capability, such as
	// "8.0"; other GPUs and the CPU have the file that every instance has otherwise.
	CCModelFilenames map[string]string `json:"cc_model_filenames"`
	ResponseCache    ResponseCache     `json:"response_cache"`
	InstanceGroups   []InstanceGroup   `json:"instance_group"`
	WarmUps          []WarmUp          `json:"model_warmup"`
	unserved
}

// ModelOperations is model_operations.
type ModelOperations struct {
	// OpLibraryFilename names libraries with custom operators.
	OpLibraryFilename []string `json:"op_library_filename"`
}

// Value is a parameter's value.
type Value struct {
	String string `json:"string_value"`
}

// TensorConfig is an input or an output of the configuration.
type TensorConfig struct {
	Name     string       `json:"name"`
	DataType string       `json:"data_type"`
	Dims     tensor.Shape `json:"dims"`
	Optional bool         `json:"optional,omitempty"`
	// Reshape is what requests and answers have in place of Dims.
	Reshape *Reshape `json:"reshape,omitempty"`
}

// Reshape is the shape of a tensor at the backend, where it differs from dims.
type Reshape struct {
	Shape tensor.Shape `json:"shape"`
}

// LaneDims is the shape without the batch that Triton hands over and expects.
func (t *TensorConfig) LaneDims() tensor.Shape {
	if t.Reshape != nil {
		return t.Reshape.Shape
	}
	return t.Dims
}

// SequenceConfig is sequence_batching.
type SequenceConfig struct {
	MaxIdleMicroseconds uint64          `json:"max_sequence_idle_microseconds"`
	ControlInputs       []ControlConfig `json:"control_input"`
	States              []StateConfig   `json:"state"`
	Oldest              *OldestConfig   `json:"oldest"` // nil: the direct strategy
	Iterative           bool            `json:"iterative_sequence"`
}

// StateConfig is one state of Triton's implicit state management.
type StateConfig struct {
	InputName  string         `json:"input_name"`
	OutputName string         `json:"output_name"`
	DataType   string         `json:"data_type"`
	Dims       tensor.Shape   `json:"dims"`
	Initial    []InitialState `json:"initial_state"`
}

// InitialState is the value that a state has when a sequence starts: zeros, or
// the bytes of a file in the model's folder initial_state.
type InitialState struct {
	Name     string       `json:"name"`
	DataType string       `json:"data_type"`
	Dims     tensor.Shape `json:"dims"`
	ZeroData bool         `json:"zero_data"`
	DataFile string       `json:"data_file"`
}

// Equal reports whether both give the same value.
func (a *InitialState) Equal(b *InitialState) bool {
	return a.DataType == b.DataType && a.Dims.Equal(b.Dims) && a.DataFile == b.DataFile
}

// OldestConfig is the oldest strategy of sequence_batching.
type OldestConfig struct {
	MaxCandidateSequences int   `json:"max_candidate_sequences"`
	PreferredBatchSizes   []int `json:"preferred_batch_size"`
	// MaxQueueDelayMicroseconds is how long a request may wait for others.
	MaxQueueDelayMicroseconds uint64 `json:"max_queue_delay_microseconds"`
}

// ControlConfig is one control_input.
type ControlConfig struct {
	Name     string    `json:"name"`
	Controls []Control `json:"control"`
}

// Control is what a control_input carries.
type Control struct {
	Kind           string    `json:"kind"`
	Int32FalseTrue []int32   `json:"int32_false_true"`
	FP32FalseTrue  []float32 `json:"fp32_false_true"`
	BoolFalseTrue  []bool    `json:"bool_false_true"`
	DataType       string    `json:"data_type"`
}

// Effective is the control whose value the input has, nil if there is none. With several
// it is as in Triton, which writes START, END, READY and CORRID one over the other.
func (input *ControlConfig) Effective() (last *Control) {
	order := []string{ControlStart, ControlEnd, ControlReady, ControlCorrID}
	for i := range input.Controls {
		if last == nil || slices.Index(order, input.Controls[i].Kind) > slices.Index(order, last.Kind) {
			last = &input.Controls[i]
		}
	}
	return last
}

// The kinds of a Control.
const (
	ControlStart  = "CONTROL_SEQUENCE_START"
	ControlEnd    = "CONTROL_SEQUENCE_END"
	ControlReady  = "CONTROL_SEQUENCE_READY"
	ControlCorrID = "CONTROL_SEQUENCE_CORRID"
)

// Parse reads a model configuration as TRITONBACKEND_ModelConfig gives it.
// An empty text is a configuration of defaults.
func Parse(text []byte) (*Config, error) {
	c := &Config{}
	if len(text) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, status.Errorf(status.InvalidArg, "reading the model configuration: %w", err)
	}
	return c, nil
}

// Idle is how long a sequence may go without a request; 0 is for ever.
func (c *Config) Idle() time.Duration {
	if c.Sequence == nil {
		return 0
	}
	return microseconds(c.Sequence.MaxIdleMicroseconds)
}

func microseconds(n uint64) time.Duration {
	const most = uint64(1<<63-1) / 1000 / 4 // four times that must not overflow
	return time.Duration(min(n, most)) * time.Microsecond
}

// control finds the first control of a kind, and the name of its tensor.
func (c *Config) control(kind string) (name string, control *Control) {
	if c.Sequence == nil {
		return "", nil
	}
	for i := range c.Sequence.ControlInputs {
		in := &c.Sequence.ControlInputs[i]
		for j := range in.Controls {
			if in.Controls[j].Kind == kind {
				return in.Name, &in.Controls[j]
			}
		}
	}
	return "", nil
}

// StringIDs reports whether correlation IDs are strings.
func (c *Config) StringIDs() bool {
	_, control := c.control(ControlCorrID)
	return control != nil && control.DataType == "TYPE_STRING"
}

// Candidates is how many sequences Triton keeps for one instance.
func (c *Config) Candidates() int {
	switch {
	case c.Sequence == nil:
		return 0
	case c.Sequence.Oldest != nil && c.Sequence.Oldest.MaxCandidateSequences > 0:
		return c.Sequence.Oldest.MaxCandidateSequences
	default: // direct, and Triton's own reading of an oldest without the field
		return max(c.MaxBatchSize, 1)
	}
}

// Direct reports whether the scheduler gives each sequence a batch slot,
// which is Triton's default.
func (c *Config) Direct() bool { return c.Sequence != nil && c.Sequence.Oldest == nil }

// BatchSlots is how many batch slots the direct scheduler has.
func (c *Config) BatchSlots() int {
	if !c.Direct() {
		return 0
	}
	return max(c.MaxBatchSize, 1)
}

// TokenState is the name of a state that no model has: listed in the configuration, it
// lets the server tell sequences of one ID apart where the model's states cannot be
// listed.
const TokenState = "stateful_token"

// TokenInput names the first of the server's own states that has room for anything; a
// direct scheduler needs none.
func (c *Config) TokenInput() string {
	if c.Sequence == nil || c.Direct() {
		return ""
	}
	for i := range c.Sequence.States {
		if s := &c.Sequence.States[i]; !slices.Contains(s.Dims, 0) {
			return s.InputName
		}
	}
	return ""
}

// CandidatesField is the field that candidates follows from.
func (c *Config) CandidatesField() string {
	if c.Direct() {
		return "max_batch_size"
	}
	return "max_candidate_sequences"
}

// QueueDelay is how long the oldest scheduler or the dynamic batcher may have a request wait
// for others.
func (c *Config) QueueDelay() time.Duration {
	switch {
	case c.Dynamic != nil:
		return microseconds(c.Dynamic.MaxQueueDelayMicroseconds)
	case c.Sequence == nil || c.Sequence.Oldest == nil:
		return 0
	default:
		return microseconds(c.Sequence.Oldest.MaxQueueDelayMicroseconds)
	}
}

// PreferredBatchSizes are the batch sizes that Triton tries to form.
func (c *Config) PreferredBatchSizes() []int {
	switch {
	case c.Dynamic != nil:
		return c.Dynamic.PreferredBatchSizes
	case c.Sequence == nil || c.Sequence.Oldest == nil:
		return nil
	default:
		return c.Sequence.Oldest.PreferredBatchSizes
	}
}

// CanRequest reports whether requests can ask for an output of the model: for those that are
// listed, or for any if none is.
func (c *Config) CanRequest(output string) bool {
	return len(c.Outputs) == 0 || slices.ContainsFunc(c.Outputs, func(t TensorConfig) bool { return strings.EqualFold(t.Name, output) })
}
