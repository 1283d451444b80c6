package faketriton

// #include <stdlib.h>
// #include "server.h"
import "C"

import "unsafe"

// Backend is a TRITONBACKEND_Backend.
type Backend struct{ c *C.TRITONBACKEND_Backend }

// NewBackend makes a backend with that configuration (JSON). The caller deletes it.
func NewBackend(config string) Backend {
	c := newObject[C.TRITONBACKEND_Backend]()
	text := C.CString(config)
	defer C.free(unsafe.Pointer(text))
	c.config = C.fake_message(text)
	return Backend{c}
}

// Pointer is the object itself, for a test that calls the library's Go function.
func (b Backend) Pointer() unsafe.Pointer { return unsafe.Pointer(b.c) }

// Initialize is TRITONBACKEND_Initialize.
func (b Backend) Initialize() error { return take(C.fake_initialize(b.c)) }

// InitializeThrough is TRITONBACKEND_Initialize of the library at that path,
// which is opened as Triton opens a backend.
func (b Backend) InitializeThrough(library string) error {
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	return take(C.fake_initialize_through(path, b.c))
}

// Finalize is TRITONBACKEND_Finalize.
func (b Backend) Finalize() error { return take(C.fake_finalize(b.c)) }

// Attributes is what TRITONBACKEND_GetBackendAttribute sets.
func (b Backend) Attributes() (parallelLoading bool, preferredKind int, err error) {
	c := newObject[C.TRITONBACKEND_BackendAttribute]()
	defer C.free(unsafe.Pointer(c))
	err = take(C.fake_get_attribute(b.c, c))
	return bool(c.parallel_loading), int(c.preferred), err
}

// Delete frees the backend.
func (b Backend) Delete() {
	C.TRITONSERVER_MessageDelete(b.c.config)
	C.free(unsafe.Pointer(b.c))
}

// SetAPIVersion sets what TRITONBACKEND_ApiVersion returns from now on.
func SetAPIVersion(major, minor int) { C.fake_set_api_version(C.uint32_t(major), C.uint32_t(minor)) }

// Model is a TRITONBACKEND_Model.
type Model struct{ c *C.TRITONBACKEND_Model }

// NewModel makes a model with that configuration (JSON). The caller deletes it.
func NewModel(of Backend, name, directory, config string) Model {
	c := newObject[C.TRITONBACKEND_Model]()
	c.backend = of.c
	c.name, c.directory, c.config = C.CString(name), C.CString(directory), C.CString(config)
	c.version = 1
	return Model{c}
}

// AutoComplete sets what TRITONBACKEND_ModelAutoCompleteConfig returns from now on.
func (m Model) AutoComplete(on bool) { m.c.auto_complete = C.bool(on) }

// Config is the configuration, as last set.
func (m Model) Config() string { return C.GoString(m.c.config) }

// Memory is what was reported of the model's memory, "0:0=123 2:1=456": type, id and bytes.
func (m Model) Memory() string { return C.GoString(&m.c.memory[0]) }

// Initialize is TRITONBACKEND_ModelInitialize.
func (m Model) Initialize() error { return take(C.fake_model_initialize(m.c)) }

// Finalize is TRITONBACKEND_ModelFinalize.
func (m Model) Finalize() error { return take(C.fake_model_finalize(m.c)) }

// Delete frees the model.
func (m Model) Delete() {
	freeStrings(m.c.name, m.c.directory, m.c.config)
	C.free(unsafe.Pointer(m.c))
}

// Instance is a TRITONBACKEND_ModelInstance.
type Instance struct {
	c *C.TRITONBACKEND_ModelInstance
}

// NewInstance makes an instance of kind TRITONSERVER_InstanceGroupKind, and its
// thread. The caller deletes it.
func NewInstance(of Model, name string, kind, device int) Instance {
	c := newObject[C.TRITONBACKEND_ModelInstance]()
	c.model = of.c
	c.name = C.CString(name)
	c.kind = C.TRITONSERVER_InstanceGroupKind(kind)
	c.device = C.int32_t(device)
	c.thread = C.fake_new_thread()
	i := Instance{c}
	i.SetHostPolicy(`{"cpu":{}}`)
	return i
}

// SetHostPolicy sets what TRITONBACKEND_ModelInstanceHostPolicy returns: JSON.
func (i Instance) SetHostPolicy(policy string) {
	if i.c.host_policy != nil {
		C.TRITONSERVER_MessageDelete(i.c.host_policy)
	}
	text := C.CString(policy)
	defer C.free(unsafe.Pointer(text))
	i.c.host_policy = C.fake_message(text)
}

// Ready is TRITONBACKEND_ModelInstanceReady.
func (i Instance) Ready() error { return take(C.fake_instance_ready(i.c)) }

// Initialize is TRITONBACKEND_ModelInstanceInitialize.
func (i Instance) Initialize() error { return take(C.fake_instance_initialize(i.c)) }

// Finalize is TRITONBACKEND_ModelInstanceFinalize.
func (i Instance) Finalize() error { return take(C.fake_instance_finalize(i.c)) }

// Delete ends the instance's thread and frees the instance.
func (i Instance) Delete() {
	C.fake_end_thread(i.c.thread)
	freeStrings(i.c.name)
	C.TRITONSERVER_MessageDelete(i.c.host_policy)
	C.free(unsafe.Pointer(i.c))
}

// Statistics is what was reported of a request or, by an instance, of its
// batches. Times are nanoseconds.
type Statistics struct {
	Reports   int
	Success   bool
	BatchSize int
	// The last report.
	ExecStart, ComputeStart, ComputeEnd, ExecEnd uint64
}

func statistics(c C.fake_statistics) Statistics {
	return Statistics{
		Reports: int(c.reports), Success: bool(c.success), BatchSize: int(c.batch_size),
		ExecStart: uint64(c.exec_start), ComputeStart: uint64(c.compute_start),
		ComputeEnd: uint64(c.compute_end), ExecEnd: uint64(c.exec_end),
	}
}

// BatchStatistics is what was reported of batches.
func (i Instance) BatchStatistics() Statistics { return statistics(i.c.statistics) }

// Execute is TRITONBACKEND_ModelInstanceExecute, called on the instance's thread.
func (i Instance) Execute(requests ...*Request) error {
	_, err := i.ExecuteTimes(1, requests...)
	return err
}

// ExecuteTimes executes the same batch the given number of times and returns the
// nanoseconds that the library took. The requests have the answers of the last time.
func (i Instance) ExecuteTimes(times int, requests ...*Request) (ns uint64, err error) {
	array := requestArray(requests)
	defer C.free(unsafe.Pointer(array))
	var took C.uint64_t
	err = take(C.fake_execute(i.c, array, C.uint32_t(len(requests)), C.uint(times), &took))
	return uint64(took), err
}

// ExecuteEach executes the requests in batches of that size and returns the
// nanoseconds that the library took.
func (i Instance) ExecuteEach(size int, requests []*Request) (ns uint64, err error) {
	array := requestArray(requests)
	defer C.free(unsafe.Pointer(array))
	var took C.uint64_t
	err = take(C.fake_execute_each(i.c, array, C.uint32_t(size), C.uint(len(requests)/size), &took))
	return uint64(took), err
}

// requestArray is the requests as an array of C, to be freed.
func requestArray(requests []*Request) **C.TRITONBACKEND_Request {
	array := (**C.TRITONBACKEND_Request)(C.malloc(C.size_t(len(requests)+1) * C.size_t(unsafe.Sizeof(uintptr(0)))))
	for r, slots := 0, unsafe.Slice(array, len(requests)); r < len(slots); r++ {
		slots[r] = requests[r].c
	}
	return array
}

// newObject is zeroed C memory, which outlives the call that made it.
func newObject[T any]() *T {
	var zero T
	return (*T)(C.calloc(1, C.size_t(unsafe.Sizeof(zero))))
}

func freeStrings(list ...*C.char) {
	for _, text := range list {
		C.free(unsafe.Pointer(text))
	}
}
