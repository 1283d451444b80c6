package main

// #include "describe.h"
// #include "signals.h"
import "C"

import (
	"log/slog"

	"tritonstateful/backend"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/triton"
	"tritonstateful/internal/version"
)

// executor is what this package needs of a model's instance; *backend.Instance
// implements it.
type executor interface {
	// Execute runs one batch at a time, whatever the number of goroutines that call it.
	Execute(backend.Batch)
	// LargestBatch is the number of requests that it takes at once.
	LargestBatch() int
	Inputs() []onnx.IOTensor
	Outputs() []onnx.IOTensor
	StringIDs() bool
	Close()
}

// model is what this package needs of a loaded model.
type model interface {
	NewInstance(backend.InstanceInfo) (executor, error)
}

// components are what a backend is assembled from.
type components struct {
	onnxRuntime string // its version
	open        onnx.OpenRunner
	trim        func() // returns free memory to the system
	load        func(backend.ModelInfo, backend.Server) (model, error)
	capability  func(device int) (string, error) // compute capability of a GPU
	// globalThreads: all models share one pool of threads.
	globalThreads bool
}

// assembler returns the components for the settings of the server's command line.
type assembler func(settings, *slog.Logger) (components, error)

// library is the state of a TRITONBACKEND_Backend.
type library struct {
	server  backend.Server
	load    func(backend.ModelInfo, backend.Server) (model, error)
	metrics *metrics
}

// instance is the state of a TRITONBACKEND_ModelInstance.
type instance struct {
	executor
	batch  *batch
	reruns *reruns
}

// backendObject has a name because test files cannot say C.
type backendObject = *C.TRITONBACKEND_Backend

func initialize(of backendObject, assemble assembler) error {
	if missing := C.table_fill(); missing != nil {
		return status.Errorf(status.Unsupported, "this server has no function %s: want TRITONBACKEND API %d.%d or newer",
			C.GoString(missing), triton.OldestAPIMajor, triton.OldestAPIMinor)
	}
	C.signals_adopt()
	log := newLog()
	config, err := readSettings(of, log)
	if err != nil {
		return err
	}
	parts, err := assemble(config, log)
	if err != nil {
		return err
	}
	log.Info("loaded the stateful backend", "version", version.Number, "commit", version.Commit(), "onnxruntime", parts.onnxRuntime)
	metrics := &metrics{log: log, onnxRuntime: parts.onnxRuntime}
	server := backend.Server{Log: log, Clock: newClock(), Open: parts.open, Trim: parts.trim, After: after, Capability: parts.capability, GlobalThreads: parts.globalThreads, DefaultBatch: config.defaultBatch}
	if config.metrics {
		server.Metrics = metrics.open
	}
	return storeHandle(&library{server, parts.load, metrics}, func(handle C.uintptr_t) *C.TRITONSERVER_Error {
		return C.set_backend_state(of, handle)
	})
}

// readSettings checks the version of Triton's API and reads the backend's settings.
func readSettings(of backendObject, log *slog.Logger) (settings, error) {
	var d C.backend_description
	if err := takeError(C.describe_backend(of, &d)); err != nil {
		return settings{}, err
	}
	if err := checkVersion(int(d.major), int(d.minor)); err != nil {
		return settings{}, err
	}
	return parseSettings(goBytes(d.config, d.config_bytes), log)
}

func checkVersion(major, minor int) error {
	if major == triton.OldestAPIMajor && minor >= triton.OldestAPIMinor {
		return nil
	}
	return status.Errorf(status.Unsupported, "this server has TRITONBACKEND API %d.%d: want %d.%d, or a newer %d.x",
		major, minor, triton.OldestAPIMajor, triton.OldestAPIMinor, triton.OldestAPIMajor)
}

// finalize leaves ONNX Runtime as it is: its environment belongs to the process,
// and Triton may initialise the backend again.
func finalize(of backendObject) error {
	return releaseHandle(C.backend_state(of), func(lib *library) { lib.metrics.close() })
}

func setAttributes(attributes *C.TRITONBACKEND_BackendAttribute) error {
	return takeError(C.set_attributes(attributes))
}

func initializeModel(of *C.TRITONBACKEND_Model) error {
	var d C.model_description
	if err := takeError(C.describe_model(of, &d)); err != nil {
		return err
	}
	info, err := modelInfo(&d)
	if err != nil {
		return err
	}
	lib, err := loadHandle[*library](C.backend_state(d.backend))
	if err != nil {
		return err
	}
	if d.auto_complete {
		if info, err = completeModel(of, info, lib.server); err != nil {
			return err
		}
	}
	info.ReportMemory = memoryReporter(of, lib.server.Log)
	loaded, err := lib.load(info, lib.server)
	if err != nil {
		return err
	}
	return storeHandle(loaded, func(handle C.uintptr_t) *C.TRITONSERVER_Error {
		return C.set_model_state(of, handle)
	})
}

// modelInfo copies the description of a model, and deletes the message.
func modelInfo(d *C.model_description) (backend.ModelInfo, error) {
	info := backend.ModelInfo{
		Name:      C.GoString(d.name),
		Version:   uint64(d.version),
		Directory: C.GoString(d.directory),
		Config:    goBytes(d.config, d.config_bytes),
	}
	if err := takeError(C.delete_message(d.message)); err != nil {
		return info, err
	}
	if d.artifact != C.TRITONBACKEND_ARTIFACT_FILESYSTEM {
		return info, status.Errorf(status.Unsupported, "the model repository is of type %d: want one in the file system", d.artifact)
	}
	return info, nil
}

func finalizeModel(of *C.TRITONBACKEND_Model) error {
	return releaseHandle(C.model_state(of), func(model) {})
}

var kinds = [...]string{
	C.TRITONSERVER_INSTANCEGROUPKIND_AUTO:  "auto",
	C.TRITONSERVER_INSTANCEGROUPKIND_CPU:   "cpu",
	C.TRITONSERVER_INSTANCEGROUPKIND_GPU:   "gpu",
	C.TRITONSERVER_INSTANCEGROUPKIND_MODEL: "model",
}

func initializeInstance(of *C.TRITONBACKEND_ModelInstance) error {
	var d C.instance_description
	if err := takeError(C.describe_instance(of, &d)); err != nil {
		return err
	}
	loaded, err := loadHandle[model](C.model_state(d.model))
	if err != nil {
		return err
	}
	policy, err := readHostPolicy(goBytes(d.host_policy, d.host_policy_bytes))
	if err != nil {
		return err
	}
	var saved C.signals_saved
	C.signals_save(&saved)
	exec, err := loaded.NewInstance(backend.InstanceInfo{
		Name:       C.GoString(d.name),
		Kind:       kinds[d.kind],
		Device:     int(d.device),
		HostPolicy: policy,
	})
	C.signals_restore(&saved)
	if err != nil {
		return err
	}
	in, err := newInstance(of, exec)
	if err != nil {
		exec.Close()
		return err
	}
	err = storeHandle(in, func(handle C.uintptr_t) *C.TRITONSERVER_Error {
		return C.set_instance_state(of, handle)
	})
	if err != nil {
		in.close()
	}
	return err
}

// readier is an executor that can say why it cannot execute.
type readier interface{ Ready() error }

// ready is called on any thread, also during Execute.
func ready(of *C.TRITONBACKEND_ModelInstance) error {
	in, err := loadHandle[*instance](C.instance_state(of))
	if err != nil {
		return err
	}
	if r, ok := in.executor.(readier); ok {
		return r.Ready()
	}
	return nil
}

func newInstance(of *C.TRITONBACKEND_ModelInstance, exec executor) (*instance, error) {
	b, err := newBatch(of, exec)
	if err != nil {
		return nil, err
	}
	if takes, ok := exec.(parametered); ok && takes.TakesParameters() && !bool(b.c.takes_parameters) {
		newLog().Warn("requests cannot have stateful_* parameters, because this server is too old: want Triton 23.04 or newer")
	}
	adjustProcs(1)
	b.reruns = newReruns(of, exec)
	return &instance{exec, b, b.reruns}, nil
}

func (in *instance) close() {
	in.reruns.close()
	adjustProcs(-1)
	in.batch.free()
	in.Close()
	in.reruns.holds.Wait() // they report to the instance; if Close was not the last, they go on
}

func finalizeInstance(of *C.TRITONBACKEND_ModelInstance) error {
	return releaseHandle(C.instance_state(of), (*instance).close)
}

// execute runs one batch. After an error Triton still owns the requests; after
// nil every one was answered once and released.
func execute(of *C.TRITONBACKEND_ModelInstance, requests **C.TRITONBACKEND_Request, count C.uint32_t) error {
	in, err := loadHandle[*instance](C.instance_state(of))
	if err != nil {
		return err
	}
	if err := in.batch.open(requests, nil, count); err != nil {
		return err
	}
	defer in.batch.ensureFinished()
	in.batch.readRequests()
	in.Execute(in.batch)
	return nil
}

// goBytes copies C memory.
func goBytes(data *C.char, size C.size_t) []byte {
	return []byte(C.GoStringN(data, C.int(size)))
}
