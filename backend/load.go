package backend

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"tritonstateful/backend/config"
	"tritonstateful/backend/plan"
	"tritonstateful/backend/plan/planner"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// modelFile is the path of the ONNX file, which lies in the version's folder.
func modelFile(info ModelInfo, cfg *config.Config, params *config.Parameters) (string, error) {
	name, err := params.ModelFile(cfg)
	if err != nil {
		return "", err
	}
	return filepath.Join(versionFolder(info), name), nil
}

// planFor makes the plan, once for all instances. Runs of the model prove the batch axes, as
// the parameter verify says. path is the model's file; the others that cc_model_filenames
// names must have the same tensors.
func (m *Model) planFor(r onnx.Runner, path string) (*plan.Plan, error) {
	m.planLock.Lock()
	defer m.planLock.Unlock()
	if m.plan != nil {
		return m.plan, m.sameTensors(r.Signature(), path)
	}
	from := planner.Source{Config: m.config, Parameters: m.params, Signature: r.Signature(), Directory: m.info.Directory}
	from.Open = func() (onnx.Runner, error) {
		return m.server.Open(toLook(m.params, path, "batch axes"))
	}
	from.Runner = func() (onnx.Runner, error) { return r, nil }
	// The proof has a session of its own where that of the instance does not suit it: the
	// host cannot write the memory of a GPU, a plugin may round in other ways for each batch
	// size, and what threads of a session log of a run that fails cannot be told from errors.
	_, device := r.(onnx.DeviceRunner)
	ownSession := device || m.params.Session.Plugin != nil || m.params.Session.Parallel
	if ownSession {
		var onCPU onnx.Runner
		from.Runner = func() (_ onnx.Runner, err error) {
			if onCPU == nil {
				if onCPU, err = from.Open(); err != nil {
					return nil, fmt.Errorf("the model cannot be opened on the CPU: %w", err)
				}
			}
			return onCPU, nil
		}
		defer func() {
			if onCPU != nil {
				onCPU.Close()
			}
		}()
	}
	began := time.Now()
	made, proof, err := planner.Make(&from)
	if proof.Runs > 0 {
		m.log.Info("batch axes", "runs", proof.Runs, "took", time.Since(began).Round(time.Millisecond), "isolated", err == nil && proof.Warning == "")
	}
	if err != nil {
		return nil, err
	}
	if proof.Warning != "" {
		m.log.Warn(proof.Warning)
	}
	m.plan, m.planned = made, r.Signature()
	if proof.RanAlone && !ownSession {
		m.ranAlone = r
	}
	if size := m.config.MaxBatchSize; size > 1 && made.MaxLanes == 1 && m.config.Sequence == nil && !made.Free { // a request of a sequence has a batch of 1
		m.log.Warn(fmt.Sprintf("max_batch_size is %d, but requests run one at a time, and a request with a larger batch than 1 is refused: %s: export the model with a dynamic batch, or write max_batch_size: 1", size, made.WhyOneLane))
	}
	return m.plan, nil
}

// hasRunAlone reports whether the model has run with one lane in the session of a runner when the
// plan was made.
func (m *Model) hasRunAlone(r onnx.Runner) bool {
	m.planLock.Lock()
	defer m.planLock.Unlock()
	return m.ranAlone == r
}

// Complete fills in what a configuration leaves out and the model file has:
// inputs, outputs, and where neither was given max_batch_size; where no scheduler
// was chosen, that too. It is what the server's auto-completion asks of a backend,
// and fills in only what the server lets a backend change. The result is the whole
// configuration as JSON, or nil where nothing is missing; then the model file is
// not opened.
func Complete(info ModelInfo, server Server) ([]byte, error) {
	cfg, err := config.Parse(info.Config)
	if err != nil {
		return nil, err
	}
	if len(cfg.Inputs) > 0 && len(cfg.Outputs) > 0 {
		return nil, nil
	}
	// NewModel logs the warnings. Loading the model reports faults of parameters together with
	// all others, so they are errors here only if nothing can be filled in.
	params, _, faults := config.ParseParameters(cfg.Parameters)
	if !params.Understood("onnx_file_name") || !params.Understood(config.TensorParameters...) {
		return nil, faults
	}
	path, err := modelFile(info, cfg, params)
	if err != nil {
		return nil, err
	}
	if err := takeLibraries(info, cfg, params); err != nil {
		return nil, err
	}
	defer server.trim()
	options := toLook(params, path, "auto-complete")
	options.Optimization = "disabled"
	runner, err := server.Open(options)
	if err != nil {
		return nil, fmt.Errorf("opening the model to read its inputs and outputs: %w", err)
	}
	defer runner.Close()
	from := planner.Source{
		Config: cfg, Parameters: params, Signature: runner.Signature(), Directory: info.Directory,
		Runner: func() (onnx.Runner, error) { return runner, nil },
		Open:   func() (onnx.Runner, error) { return server.Open(options) },
	}
	text, filled, err := planner.Complete(&from, info.Config, server.DefaultBatch)
	if err != nil {
		err = planner.WithAdvice(status.Errorf(status.InvalidArg, "filling in the configuration from the model: %w", err), planner.MergedDecoderAdvice(cfg, params, from.Signature))
		return nil, errors.Join(faults, err)
	}
	log := server.Log.With("model", info.Name)
	for _, line := range filled {
		log.Info(line)
	}
	return text, nil
}

// gpuOptions are the settings for a GPU.
func (m *Model) gpuOptions(provider onnx.Provider, path string) onnx.GPUOptions {
	p := m.params
	gpu := onnx.GPUOptions{MemoryLimit: p.GPUMemory, CUDAGraph: p.CUDAGraph, FP16: p.FP16Compute, CUDA: p.CUDA, TensorRT: p.TensorRT}
	if p.TRTCache {
		gpu.CacheFolder = p.TRTCacheDir
	}
	if provider == onnx.TensorRT && p.Understood(config.TensorParameters...) {
		gpu.Shapes = m.shapes(path)
	}
	return gpu
}

// shapes are those of the inputs that have dynamic axes, for batches from one to
// the largest. There are none if they are not known before a run, or if the model
// cannot be opened or planned for: opening it for good reports that.
func (m *Model) shapes(path string) []onnx.InputShapes {
	const learns = "TensorRT learns the shapes of this model run by run, and builds an engine again each time"
	onCPU, err := m.server.Open(toLook(m.params, path, "shapes"))
	if err != nil {
		m.log.Warn(learns+": the CPU cannot open the model to read them", "error", err)
		return nil
	}
	defer onCPU.Close()
	pl, err := m.planFor(onCPU, path)
	if err != nil {
		return nil
	}
	if pl.Varies {
		m.log.Warn(learns + ": more than the batch varies")
		return nil
	}
	return m.inputShapes(pl, onCPU.Signature())
}

func (m *Model) inputShapes(pl *plan.Plan, sig *onnx.Signature) []onnx.InputShapes {
	usual := pl.MaxLanes
	if preferred := m.config.PreferredBatchSizes(); len(preferred) > 0 {
		usual = min(usual, slices.Max(preferred))
	}
	all := make([]onnx.InputShapes, 0, len(sig.Inputs))
	add := func(index, axis int, dims tensor.Shape) {
		if sig.Inputs[index].Dims.Fixed() {
			return
		}
		all = append(all, onnx.InputShapes{
			Name:  sig.Inputs[index].Name,
			Least: dims.With(axis, 1), Usual: dims.With(axis, int64(usual)), Most: dims.With(axis, int64(pl.MaxLanes)),
		})
	}
	for i := range pl.Inputs {
		add(pl.Inputs[i].Index, pl.Inputs[i].Axis, pl.Inputs[i].Dims)
	}
	for i := range pl.Generated {
		add(pl.Generated[i].Index, pl.Generated[i].Axis, pl.Generated[i].Dims)
	}
	for i := range pl.States {
		add(pl.States[i].In, pl.States[i].Axis, pl.States[i].Dims)
	}
	return all
}
