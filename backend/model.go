package backend

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"
)

// ModelInfo is what the server tells of a model when it loads it.
type ModelInfo struct {
	Name    string
	Version uint64
	// Directory is the model's folder in the repository; the version's folder
	// lies in it.
	Directory string
	// Config is the complete model configuration as JSON
	// (TRITONBACKEND_ModelConfig).
	Config []byte
}

// InstanceInfo is what the server tells of an instance of a model.
type InstanceInfo struct {
	Name string
	// Kind is TRITONSERVER_InstanceGroupKind as text: "cpu", "gpu", "model",
	// "auto".
	Kind   string
	Device int
}

// Host is what a model needs from the process around it.
type Host struct {
	// Log goes to the server's log. It must be cheap when a level is off.
	Log *slog.Logger
	// Clock is CLOCK_MONOTONIC, the clock of the server's statistics.
	Clock func() time.Duration
	// Open loads a model file.
	Open OpenRunner
}

// Model is a model that the server has loaded: its configuration, understood.
// It is safe for concurrent use; its instances are not.
type Model struct {
	info   ModelInfo
	host   Host
	config *Config
	params *Parameters
	path   string // of the ONNX file
}

// NewModel reads the configuration. Everything that is wrong with it is in the
// error; the model file itself is opened by the instances.
func NewModel(info ModelInfo, host Host) (*Model, error) {
	config, err := ParseConfig(info.Config)
	if err != nil {
		return nil, err
	}
	m := &Model{info: info, host: host, config: config}
	m.host.Log = host.Log.With("model", info.Name)
	params, warnings, err := ParseParameters(config.Parameters)
	for _, w := range warnings {
		m.host.Log.Warn(w)
	}
	if err != nil {
		return nil, err
	}
	m.params = params
	m.path = filepath.Join(info.Directory, strconv.FormatUint(info.Version, 10), params.file(config))
	m.reportParameters()
	return m, nil
}

// StringIDs tells whether the model's correlation IDs are texts.
func (m *Model) StringIDs() bool { return m.config.StringIDs() }

// NewInstance loads the model for one device. The caller must Close it.
func (m *Model) NewInstance(info InstanceInfo) (*Instance, error) {
	in, err := newInstance(m, info)
	if err != nil {
		return nil, fmt.Errorf("loading instance %q: %w", info.Name, err)
	}
	return in, nil
}
