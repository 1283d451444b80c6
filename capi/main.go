package main

// #cgo CFLAGS: -O2 -Wall
// #cgo LDFLAGS: -ldl
// #ifndef _GNU_SOURCE
// #define _GNU_SOURCE
// #endif
// #include <dlfcn.h>
// #include "table.h"
import "C"

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"unsafe"

	"tritonstateful/backend"
	"tritonstateful/internal/gpuinfo"
	"tritonstateful/internal/status"
	"tritonstateful/ortrunner"
)

// main is never called; a c-shared library needs one.
func main() {}

// ortLibrary is next to this library. Its name is its own, so that Triton's
// onnxruntime backend can bring another version.
const ortLibrary = "libonnxruntime_stateful.so"

// assemble returns the shipped components: models of package backend, run by the ONNX
// Runtime that was installed with this library.
func assemble(s settings, log *slog.Logger) (components, error) {
	library := filepath.Join(ownFolder(), ortLibrary)
	if _, err := os.Stat(library); err != nil {
		return components{}, status.Errorf(status.NotFound, "%s is missing: copy the whole folder of the backend; in the archive for GPUs, add_onnxruntime_gpu.py makes this file", library)
	}
	return assembleOver(library, s, log)
}

// assembleOver is assemble with the ONNX Runtime at that path.
func assembleOver(library string, s settings, log *slog.Logger) (components, error) {
	options := ortrunner.Options{
		Library:  library,
		LogLevel: s.ortLogging,
		LogSink:  uintptr(C.log_onnxruntime),
		Log:      log,
		Identify: identify,
	}
	if s.globalThreads {
		options.Threads = &ortrunner.Threads{IntraOp: s.intraOp, InterOp: s.interOp}
	}
	runtime, err := ortrunner.New(options)
	if err != nil {
		return components{}, err
	}
	logGPUs(log)
	return components{
		onnxRuntime: runtime.Version(), open: runtime.Open, load: loadModel,
		trim:       func() { go runtime.Trim() }, // it takes some milliseconds, and nothing waits for it
		capability: runtime.Capability, globalThreads: runtime.SharesThreads(),
	}, nil
}

// logGPUs logs which GPUs the machine has. On one without a driver only the verbose
// log says so.
func logGPUs(log *slog.Logger) {
	gpus, driver, err := gpuinfo.List()
	if err != nil {
		log.Debug("could not list the GPUs of the machine", "reason", err)
		return
	}
	for i, gpu := range gpus {
		log.Info(fmt.Sprintf("GPU %d of the machine: %v", i, gpu), "driver", driver)
	}
}

// identify returns what NVML knows of a GPU.
func identify(uuid string) (ortrunner.Identity, error) {
	gpu, err := gpuinfo.Find(uuid)
	return ortrunner.Identity{UUID: gpu.UUID, Whole: gpu.Whole, Memory: gpu.Memory()}, err
}

// ownFolder returns the folder of this library.
func ownFolder() string {
	var self C.Dl_info
	C.dladdr(unsafe.Pointer(C.log_onnxruntime), &self) // any function of this library
	return filepath.Dir(C.GoString(self.dli_fname))
}

// loadedModel makes *backend.Model a model: its instances are executors.
type loadedModel struct{ *backend.Model }

func loadModel(info backend.ModelInfo, server backend.Server) (model, error) {
	m, err := backend.NewModel(info, server)
	if err != nil {
		return nil, err
	}
	return withFaults(loadedModel{m}, info), nil
}

func (m loadedModel) NewInstance(info backend.InstanceInfo) (executor, error) {
	in, err := m.Model.NewInstance(info)
	if err != nil {
		return nil, err // and not in, which would be an executor that is not nil
	}
	return in, nil
}
