package backend

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/statebuffer"
)

// Model is a model that the server has loaded: its configuration, parsed.
// It is safe for concurrent use; its instances are not.
type Model struct {
	info   ModelInfo
	server Server
	log    *slog.Logger // names the model
	config *config.Config
	params *config.Parameters
	sizing statebuffer.Sizing
	path   string // of the ONNX file
	// plan is what each tensor is for; the first instance makes it for all.
	plan     *plan.Plan
	planned  *onnx.Signature // what the plan was made for
	ranAlone onnx.Runner     // the one whose session has run one lane for the plan, or nil
	planLock sync.Mutex
	// masks is the verdict on the masks; the first instance finds it for all.
	masks *maskVerdict
	// sessions are those that instances share.
	sessions sessions
	memory   memoryReport
	store    storeUse
	joined   joined // with free sequences
	// hash identifies the model's files. All instances share the one look at them.
	hash func() ([8]byte, error)
	// faults are those of the configuration by itself. NewInstance reports them, together
	// with what does not fit the model file.
	faults error
}

// NewModel reads the configuration. It fails if the configuration cannot be read at all;
// NewInstance reports whatever else is wrong with it.
func NewModel(info ModelInfo, server Server) (*Model, error) {
	cfg, err := config.Parse(info.Config)
	if err != nil {
		return nil, err
	}
	m := &Model{info: info, server: server, log: server.Log.With("model", info.Name), config: cfg}
	m.hash = sync.OnceValues(func() ([8]byte, error) { return modelHash(m.path) })
	var warnings []string
	m.params, warnings, m.faults = config.ParseParameters(cfg.Parameters)
	for _, warning := range append(warnings, cfg.Warnings()...) {
		m.log.Warn(warning)
	}
	m.faults = errors.Join(m.faults, m.params.AddOptimization(cfg), cfg.Refusals(), m.params.FreeConflicts(cfg), takeLibraries(info, cfg, m.params))
	m.warnOfThreads()
	if m.sizing, err = m.size(); err != nil {
		m.faults = errors.Join(m.faults, err)
	} else if least := m.sizing.SteadyFrom(); m.sizing.Lazy() && m.sizing.DeallocAbove < least {
		m.log.Warn(fmt.Sprintf("a chunk of slots can be allocated and released again and again: buffer_dealloc_threshold is %d; want at least %d, buffer_alloc_threshold %d and subsequent_buffer_size %d less 1", m.sizing.DeallocAbove, least, m.sizing.AllocBelow, m.sizing.Subsequent))
	}
	if m.params.Understood("onnx_file_name") {
		if m.path, err = modelFile(info, cfg, m.params); err != nil {
			m.faults = errors.Join(m.faults, err)
		}
	}
	m.reportParameters()
	return m, nil
}

// size computes how many sequences each instance has room for. A model without
// sequences has none.
func (m *Model) size() (statebuffer.Sizing, error) {
	c, p := m.config, m.params
	if c.Sequence == nil || !p.Understood(slices.Concat(config.LazyNames[:], []string{"max_candidate_sequence_use_ratio"})...) {
		return statebuffer.Sizing{MaxChunks: 1}, nil
	}
	if ratio := p.SlotRatio(c); c.Direct() && ratio < 1 {
		return statebuffer.Sizing{MaxChunks: 1}, status.Errorf(status.InvalidArg, "max_candidate_sequence_use_ratio is %v: the direct scheduler needs a slot for each of the %d batch slots: want 1 or more, or leave it out", ratio, c.BatchSlots())
	}
	sizing, err := statebuffer.NewSizing(c.Candidates(), max(c.MaxBatchSize, 1), p.SlotRatio(c), p.Lazy)
	if err != nil {
		return sizing, status.Errorf(status.InvalidArg, "the slots for sequences: %w", err)
	}
	return sizing, nil
}

// StringIDs reports whether the model's correlation IDs are strings.
func (m *Model) StringIDs() bool { return m.config.StringIDs() }

// open loads the model for one device.
func (m *Model) open(info InstanceInfo) (*Instance, error) {
	defer m.server.trim()
	in, err := newInstance(m, info)
	if err != nil {
		return nil, fmt.Errorf("loading instance %q: %w", info.Name, err)
	}
	return in, nil
}
