package ortrunner

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/devicememory"
	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
	"tritonstateful/internal/tensor"
)

// gpuBackend is how sessions get to a GPU.
type gpuBackend struct {
	// memory is what ONNX Runtime calls the device's memory.
	memory string
	// check makes sure that the library has the execution provider.
	check func(onnx.Provider) error
	// provide adds the execution provider to the options of a session.
	provide func(*ort.SessionOptions, onnx.SessionOptions, *cuda.Stream) error
	// before, if not nil, is called before each run.
	before func(*cuda.Stream) error
}

// realGPU is that of ONNX Runtime's execution providers.
var realGPU = gpuBackend{memory: "Cuda", check: checkProvider, provide: provideGPU}

// provideGPU adds the execution providers: where TensorRT can do nothing, CUDA
// does it.
func provideGPU(options *ort.SessionOptions, o onnx.SessionOptions, stream *cuda.Stream) error {
	c, err := optionsOf(options)
	if err != nil {
		return err
	}
	// Weights go straight to the device, not through the arena for activations, unless
	// the configuration wants them there.
	const direct = "session.use_device_allocator_for_initializers"
	if !slices.ContainsFunc(o.Session, func(s onnx.Setting) bool { return s.Key == direct }) {
		if err := options.AddSessionConfigEntry(direct, "1"); err != nil {
			return err
		}
	}
	handle := C.uintptr_t(stream.Handle())
	if o.Provider == onnx.TensorRT {
		p := newPairs(tensorRTOptions(o))
		defer p.free()
		if err := statusError(C.ortx_append_tensorrt(c, p.keys, p.values, p.count, handle)); err != nil {
			return withHint(onnx.TensorRT, err)
		}
	}
	p := newPairs(cudaOptions(o))
	defer p.free()
	return withHint(onnx.CUDA, statusError(C.ortx_append_cuda(c, p.keys, p.values, p.count, handle)))
}

// withHint adds what usually keeps an execution provider from starting: ONNX Runtime
// only names the library that it could not load.
func withHint(p onnx.Provider, err error) error {
	if err == nil {
		return nil
	}
	needs := map[onnx.Provider]string{
		onnx.CUDA:     "libonnxruntime_providers_shared.so and libonnxruntime_providers_cuda.so next to ONNX Runtime's library, and CUDA's and cuDNN's libraries",
		onnx.TensorRT: "libonnxruntime_providers_tensorrt.so next to ONNX Runtime's library, and TensorRT's libraries",
	}
	return status.Errorf(status.Unavailable, "execution provider %v does not start: %w; it needs %s (docs/gpu.md)", p, err, needs[p])
}

// openOnGPU loads a model on a GPU. Its error names everything that the machine
// lacks.
func (r *Runtime) openOnGPU(o onnx.SessionOptions) (onnx.Runner, error) {
	driver, err := r.driver()
	if err != nil {
		err = status.Errorf(status.Unavailable, "%w", err)
	}
	if err := errors.Join(err, r.gpu.check(o.Provider)); err != nil {
		return nil, err
	}
	if folder := o.GPU.CacheFolder; folder != "" && o.Provider == onnx.TensorRT {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, status.Errorf(status.InvalidArg, "parameter trt_cache_dir: %w", err)
		}
	}
	device, err := driver.Device(o.Device)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "%w", err)
	}
	opened, err := r.openWithGraphs(device, o)
	if err != nil {
		return nil, err
	}
	if err := opened.memory.Degraded(); err != nil {
		r.log.Warn("the CUDA driver rejected the gather/scatter kernels; falling back to individual copies, which are slow", "model", o.Name, "error", err)
	}
	return opened, nil
}

// openWithGraphs opens the session, and without CUDA graphs if it cannot have them.
func (r *Runtime) openWithGraphs(device *cuda.Device, o onnx.SessionOptions) (*gpuRunner, error) {
	opened, err := newGPURunner(r, device, o)
	if err == nil || !o.GPU.CUDAGraph {
		return opened, err
	}
	o.GPU.CUDAGraph = false
	opened, plain := newGPURunner(r, device, o)
	if plain != nil {
		return nil, plain // the CUDA graphs are not to blame
	}
	r.log.Warn("enable_cuda_graph has no effect: ONNX Runtime cannot capture the runs of this model", "model", o.Name, "error", err)
	return opened, nil
}

// Capability returns the compute capability of a GPU, such as "8.0".
func (r *Runtime) Capability(ordinal int) (string, error) {
	driver, err := r.driver()
	if err != nil {
		return "", err
	}
	device, err := driver.Device(ordinal)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%d", device.Major, device.Minor), nil
}

// describe returns which device it is. Without the management library it is named
// by what the driver knows.
func (r *Runtime) describe(device *cuda.Device) onnx.Device {
	d := onnx.Device{Ordinal: device.Ordinal, Name: device.Name, UUID: "GPU-" + device.UUIDText()}
	if strings.Contains(device.Name, " MIG ") {
		d.UUID = "MIG-" + device.UUIDText()
	}
	if r.identify == nil {
		return d
	}
	identity, err := r.identify(device.UUIDText())
	if err != nil {
		r.log.Debug("no NVML data for the GPU; using what the CUDA driver reports", "gpu", d.String(), "reason", err)
		return d
	}
	d.UUID, d.Whole, d.Managed = identity.UUID, identity.Whole, identity.Memory
	return d
}

// newGPURunner opens everything; Close closes it.
func newGPURunner(rt *Runtime, device *cuda.Device, o onnx.SessionOptions) (*gpuRunner, error) {
	context, err := device.Retain()
	if err != nil {
		return nil, err
	}
	r := &gpuRunner{log: rt.log.With("model", o.Name), thread: newOSThread(), device: rt.describe(device), context: context, before: rt.gpu.before, captures: o.GPU.CUDAGraph, runSettings: o.Run}
	r.submitJob, r.runJob, r.warmUpJob = r.submit, r.run, r.warmUp
	err = r.openMemory()
	if err == nil {
		err = r.thread.do(func() error { return r.openSession(&rt.gpu, o) })
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *gpuRunner) openMemory() (err error) {
	r.pinned.context = r.context
	if r.stream, err = r.context.NewStream(); err != nil {
		return err
	}
	if r.done, err = r.context.NewEvent(); err != nil {
		return err
	}
	if r.memory, err = devicememory.New(r.context, r.stream); err != nil {
		return err
	}
	r.io = &staging{context: r.context, device: deviceMemory{r.memory}, stream: r.stream}
	return nil
}

func (r *gpuRunner) openSession(gpu *gpuBackend, o onnx.SessionOptions) error {
	options, err := newOptions(o, func(options *ort.SessionOptions) error {
		return gpu.provide(options, o, r.stream)
	})
	if err != nil {
		return err
	}
	defer options.Destroy() //nolint:errcheck // fails only for options that do not exist
	if r.session, err = newSession(o.Path, options); err != nil {
		return err
	}
	if r.signature, err = readSignature(r.session); err != nil {
		return err
	}
	if err := checkTypes(r.signature); err != nil {
		return err
	}
	if err := r.newWhere(gpu.memory, o.Device); err != nil {
		return err
	}
	r.inputs, r.outputs = newSessionTensors(r.signature.Inputs), newSessionTensors(r.signature.Outputs)
	for _, tensors := range [][]sessionTensor{r.inputs, r.outputs} {
		for i := range tensors {
			tensors[i].where = r.where
		}
	}
	if r.call, err = newCall(r.session, len(r.inputs), len(r.outputs), nil); err != nil {
		return err
	}
	return nil
}

// newWhere makes the name of the device's memory.
func (r *gpuRunner) newWhere(memory string, device int) error {
	if memory == "Cpu" {
		device = 0
	}
	name := C.CString(memory)
	defer C.free(unsafe.Pointer(name))
	return statusError(C.ortx_new_memory(name, C.int(device), &r.where))
}

// checkTypes refuses strings, which ONNX Runtime keeps on the host only.
func checkTypes(s *onnx.Signature) error {
	for _, infos := range [][]onnx.TensorInfo{s.Inputs, s.Outputs} {
		if at := slices.IndexFunc(infos, func(t onnx.TensorInfo) bool { return t.DType == tensor.Bytes }); at >= 0 {
			return status.Errorf(status.Unsupported, "tensor %q has strings, which a GPU cannot hold: use KIND_CPU instances", infos[at].Name)
		}
	}
	return nil
}

// Close implements onnx.Runner. A second Close does nothing.
func (r *gpuRunner) Close() {
	if r.context == nil {
		return
	}
	if err := r.thread.do(r.closeSession); err != nil {
		r.log.Error("closing a session", "error", err)
	}
	r.thread.stop()
	if err := r.closeMemory(); err != nil {
		r.log.Error("freeing GPU memory", "error", err)
	}
}

func (r *gpuRunner) closeSession() error {
	r.bindings.close()
	if r.call.c != nil {
		r.call.close()
	}
	for _, tensors := range [][]sessionTensor{r.inputs, r.outputs} {
		for i := range tensors {
			tensors[i].close()
		}
	}
	C.ortx_release_memory(r.where)
	if r.session != nil {
		C.ortx_release_session(r.session)
	}
	r.session = nil
	return nil
}

func (r *gpuRunner) closeMemory() (err error) {
	if r.memory != nil {
		err = errors.Join(r.memory.Sync(), r.pinned.close())
	}
	if r.io != nil {
		err = errors.Join(err, r.io.close())
	}
	if r.memory != nil {
		err = errors.Join(err, r.memory.Close())
	}
	if r.done != nil {
		err = errors.Join(err, r.done.Destroy())
	}
	if r.stream != nil {
		err = errors.Join(err, r.stream.Destroy())
	}
	err = errors.Join(err, r.context.Release())
	r.context = nil
	return err
}

// Device implements onnx.DeviceRunner.
func (r *gpuRunner) Device() onnx.Device { return r.device }

// MemInfo implements onnx.DeviceRunner.
func (r *gpuRunner) MemInfo() (free, total int64, err error) { return r.context.MemInfo() }
