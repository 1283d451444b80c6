package backend

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tritonstateful/backend/config"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// sessionOf returns how an instance loads its model file.
func (m *Model) sessionOf(provider onnx.Provider, info InstanceInfo) (onnx.SessionOptions, error) {
	o := m.params.Session
	o.Path, o.Provider, o.Device, o.Name = m.path, provider, info.Device, info.Name
	if provider == onnx.CPU {
		return o, nil
	}
	if o.Plugin != nil {
		return o, status.Errorf(status.InvalidArg, "parameter ort_ep_library is given: an execution provider of a library of its own computes for instances on the CPU only, because states stay in host memory: want instance_group [{ kind: KIND_CPU }]")
	}
	file, err := m.fileForGPU(info.Device)
	if err != nil {
		return o, err
	}
	if file != "" {
		o.Path = file
	}
	if o.Path != "" { // else the file's name is wrong, which is reported
		o.GPU = m.gpuOptions(provider, o.Path)
	}
	return o, nil
}

// checkArenas makes sure that a session has the arenas that it is to shrink after each run.
// ONNX Runtime fails every run otherwise.
func checkArenas(o *onnx.SessionOptions) error {
	has := []string{"cpu:0"}
	if o.Provider != onnx.CPU {
		has = append(has, "gpu:"+strconv.Itoa(o.Device))
	}
	for _, s := range o.Run {
		if s.Key != onnx.ArenaShrinkage {
			continue
		}
		for arena := range strings.SplitSeq(s.Value, ";") {
			if !slices.Contains(has, arena) {
				return status.Errorf(status.InvalidArg, "parameter %s is %q: the instance has no arena %s: want %s", s.Key, s.Value, arena, strings.Join(has, " or "))
			}
		}
	}
	return nil
}

// sameTensors makes sure that a file can be served by the plan of another one.
func (m *Model) sameTensors(s *onnx.Signature, path string) error {
	same := func(a, b onnx.TensorInfo) bool {
		return a.Name == b.Name && a.DType == b.DType && a.Optional == b.Optional && a.Dims.Equal(b.Dims)
	}
	if slices.EqualFunc(s.Inputs, m.planned.Inputs, same) && slices.EqualFunc(s.Outputs, m.planned.Outputs, same) {
		return nil
	}
	return status.Errorf(status.InvalidArg, "cc_model_filenames: the inputs and outputs of %s are not those of the file that another instance has: want the same names, types, shapes and order", filepath.Base(path))
}

// fileForGPU returns the path of the file that cc_model_filenames names for a GPU, or "".
func (m *Model) fileForGPU(device int) (string, error) {
	if len(m.config.CCModelFilenames) == 0 || m.server.Capability == nil {
		return "", nil
	}
	capability, err := m.server.Capability(device)
	if err != nil {
		return "", status.Errorf(status.Unavailable, "cc_model_filenames: reading the compute capability of GPU %d: %w", device, err)
	}
	name := m.config.CCModelFilenames[capability]
	if name == "" {
		return "", nil
	}
	if !filepath.IsLocal(name) {
		return "", status.Errorf(status.InvalidArg, "cc_model_filenames: the file for %s is %q: want the name of a file inside the model's version folder", capability, name)
	}
	m.log.Info("cc_model_filenames names a file for this GPU", "gpu", device, "compute_capability", capability, "file", name)
	return filepath.Join(versionFolder(m.info), name), nil
}

// toLook returns how a model is opened on the CPU to learn something of it, when no instance
// is there, or none on the CPU. The settings of runs are for arenas that it may not have.
func toLook(p *config.Parameters, path, name string) onnx.SessionOptions {
	o := p.Session
	o.Path, o.Name, o.IntraOpThreads, o.Parallel, o.Plugin, o.Run = path, name, 1, false, nil, nil
	return o
}

// versionFolder is where the model's files lie.
func versionFolder(info ModelInfo) string {
	return filepath.Join(info.Directory, strconv.FormatUint(info.Version, 10))
}

// takeLibraries completes the session's options by what lies in the model's folder.
func takeLibraries(info ModelInfo, cfg *config.Config, p *config.Parameters) (err error) {
	folders := []string{versionFolder(info), info.Directory}
	p.Session.Operators, err = cfg.OperatorLibraries(folders...)
	if plugin := p.Session.Plugin; plugin != nil {
		plugin.Library = config.FindLibrary(plugin.Library, folders...)
	}
	return err
}

// warnOfThreads warns of parameters in whose place the server's own pool of threads is.
func (m *Model) warnOfThreads() {
	if !m.server.GlobalThreads {
		return
	}
	for _, name := range []string{"intra_op_threads", "intra_op_thread_count", "inter_op_threads", "inter_op_thread_count"} {
		if strings.TrimSpace(m.config.Parameters[name].String) != "" {
			m.log.Warn("parameter " + name + " has no effect: all models share the threads of --backend-config=stateful,enable-global-threadpool")
		}
	}
}

// reportLibraries logs where the libraries are that the configuration names.
func (m *Model) reportLibraries() {
	o := &m.params.Session
	for _, path := range o.Operators {
		m.log.Info("custom operators", "library", path)
	}
	if o.Plugin != nil {
		m.log.Info("execution provider", "library", o.Plugin.Library)
	}
}
