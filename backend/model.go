package backend

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
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
	// DefaultBatch is the max_batch_size that the server's operator wants filled
	// in where a configuration has none: default-max-batch-size.
	DefaultBatch int
	// Metrics begins to report the metrics of an instance. It is nil, or returns
	// nil, where the server takes none.
	Metrics func(MetricLabels) MetricSink
}

// Model is a model that the server has loaded: its configuration, understood.
// It is safe for concurrent use; its instances are not.
type Model struct {
	info   ModelInfo
	host   Host
	log    *slog.Logger // names the model
	config *Config
	params *Parameters
	sizing statebuffer.Sizing
	path   string // of the ONNX file
	// wired is what each tensor is for, which the first instance finds for all.
	wired    *wiring
	wireLock sync.Mutex
	// masks is what the first instance has seen of the masks, for all.
	masks *maskVerdict
	// faults is what is wrong with the configuration by itself. NewInstance
	// reports it, together with what does not fit the model file.
	faults error
}

// NewModel reads the configuration. The error is that it cannot be read at all;
// whatever else is wrong with it, NewInstance reports.
func NewModel(info ModelInfo, host Host) (*Model, error) {
	config, err := ParseConfig(info.Config)
	if err != nil {
		return nil, err
	}
	m := &Model{info: info, host: host, log: host.Log.With("model", info.Name), config: config}
	var warnings []string
	m.params, warnings, m.faults = ParseParameters(config.Parameters)
	for _, w := range append(warnings, config.warnings()...) {
		m.log.Warn(w)
	}
	m.faults = errors.Join(m.faults, config.refusals())
	if m.sizing, err = m.size(); err != nil {
		m.faults = errors.Join(m.faults, err)
	} else if least := m.sizing.SteadyFrom(); m.sizing.Lazy() && m.sizing.DeallocAbove < least {
		m.log.Warn(fmt.Sprintf("a chunk of slots can be allocated and released in turns, batch after batch: buffer_dealloc_threshold is %d; want at least %d, buffer_alloc_threshold %d and subsequent_buffer_size %d less 1", m.sizing.DeallocAbove, least, m.sizing.AllocBelow, m.sizing.Subsequent))
	}
	if m.params.sound("onnx_file_name") {
		if m.path, err = modelFile(info, config, m.params); err != nil {
			m.faults = errors.Join(m.faults, err)
		}
	}
	m.reportParameters()
	return m, nil
}

// modelFile is the path of the ONNX file, which lies in the version's folder.
func modelFile(info ModelInfo, config *Config, params *Parameters) (string, error) {
	name := params.file(config)
	if !filepath.IsLocal(name) {
		return "", status.Errorf(status.InvalidArg, "default_model_filename is %q: want the name of a file inside the model's version folder", name)
	}
	return filepath.Join(info.Directory, strconv.FormatUint(info.Version, 10), name), nil
}

// size computes how many sequences each instance has room for. A model without
// sequences has none.
func (m *Model) size() (statebuffer.Sizing, error) {
	c, p := m.config, m.params
	if c.Sequence == nil || !p.sound(slices.Concat(lazyNames[:], []string{"max_candidate_sequence_use_ratio"})...) {
		return statebuffer.Sizing{MaxChunks: 1}, nil
	}
	if ratio := p.ratio(c); c.direct() && ratio < 1 {
		return statebuffer.Sizing{MaxChunks: 1}, status.Errorf(status.InvalidArg, "max_candidate_sequence_use_ratio is %v: the direct scheduler needs a slot for each of the %d places in the batch: want 1 or more, or leave it out", ratio, c.places())
	}
	sizing, err := statebuffer.NewSizing(c.candidates(), max(c.MaxBatchSize, 1), p.ratio(c), p.Lazy)
	if err != nil {
		return sizing, status.Errorf(status.InvalidArg, "the slots for sequences: %w", err)
	}
	return sizing, nil
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

// wire joins configuration and model, once for all instances. Where the batch is, is
// proved by runs as the parameter verify says.
func (m *Model) wire(r Runner) (*wiring, error) {
	m.wireLock.Lock()
	defer m.wireLock.Unlock()
	if m.wired != nil {
		return m.wired, nil
	}
	files := initialFiles(m.info.Directory)
	batches := m.config.MaxBatchSize > 0
	c := chooser{verify: m.params.Verify, batches: batches, whole: !batches && m.config.Sequence == nil, finish: (*wirer).finish}
	c.attempt = func(k *candidate) *wirer { return wireInputs(m.config, m.params, r.Signature(), files, k) }
	c.open = func() (Runner, error) {
		return m.host.Open(SessionOptions{Path: m.path, Name: "batch axes", IntraOpThreads: 1, Optimization: m.params.Optimization})
	}
	c.runner = func() (Runner, error) { return r, nil }
	if _, device := r.(DeviceRunner); device { // the host cannot write the memory of a GPU
		var host Runner
		c.runner = func() (_ Runner, err error) {
			if host == nil {
				if host, err = c.open(); err != nil {
					return nil, fmt.Errorf("the CPU cannot open the model: %w", err)
				}
			}
			return host, nil
		}
		defer func() {
			if host != nil {
				host.Close()
			}
		}()
	}
	began := time.Now()
	w, err := c.choose(candidatesFor(m.config, m.params, r.Signature()))
	if c.runs > 0 {
		m.log.Info("batch axes", "runs", c.runs, "took", time.Since(began).Round(time.Millisecond), "apart", err == nil && c.warning == "")
	}
	if err != nil {
		return nil, err
	}
	if c.warning != "" {
		m.log.Warn(c.warning)
	}
	m.wired = &w.wiring
	return m.wired, nil
}
