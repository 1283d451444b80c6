package main

// #include <stdlib.h>
// #include "metrics.h"
import "C"

import (
	"log/slog"
	"strconv"
	"sync"
	"unsafe"

	"tritonstateful/backend"
	"tritonstateful/internal/status"
	"tritonstateful/internal/version"
)

// metrics are the metrics of all instances, kept by Triton and shown on its
// metrics port. They are created with the first instance. All instances share the
// families: while a model is reloaded, its old and its new instance have the same
// labels, and only within a family does Triton count the owners of a metric.
type metrics struct {
	log         *slog.Logger
	onnxRuntime string // its version, for stateful_build_info

	mu          sync.Mutex // of what follows, and of making and freeing metrics
	tried       bool
	families    *C.metric_families // nil: Triton takes none
	build       *C.metric_build    // nil: there are no metrics, or this one failed
	definitions []C.metric_definition
}

// open begins to report the metrics of an instance. It returns nil if Triton takes
// none.
func (m *metrics) open(labels backend.MetricLabels) backend.MetricSink {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tried {
		m.tried = true
		m.report(m.define(backend.Metrics()))
		m.describeBuild()
	}
	if m.families == nil {
		return nil
	}
	var of C.metric_labels
	for to, text := range map[**C.char]string{
		&of.model: labels.Model, &of.version: strconv.FormatUint(labels.Version, 10), &of.instance: labels.Instance,
		&of.gpu_uuid: labels.GPUUUID, &of.gpu_name: labels.GPUName, &of.gpu_part: labels.GPUPart,
	} {
		if text != "" {
			*to = C.CString(text)
			defer C.free(unsafe.Pointer(*to))
		}
	}
	var set *C.metric_set
	if err := takeError(C.metric_set_new(m.families, &of, &set)); err != nil {
		m.report(err)
		return nil
	}
	return &instanceMetrics{of: m, c: set}
}

// report logs why there are no metrics, at debug level if the server has none at all.
func (m *metrics) report(err error) {
	switch {
	case err == nil:
	case status.CodeOf(err) == status.Unsupported:
		m.log.Debug("metrics are off", "cause", err)
	default:
		m.log.Warn("metrics are off", "cause", err)
	}
}

// define creates the families. Their definitions are in C memory, which close frees.
func (m *metrics) define(infos []backend.MetricInfo) error {
	size := C.size_t(len(infos)) * C.sizeof_metric_definition
	m.definitions = unsafe.Slice((*C.metric_definition)(C.calloc(1, size)), len(infos))
	for i, info := range infos {
		d := &m.definitions[i]
		d.name, d.help, d.kind = C.CString(info.Name), C.CString(info.Help), C.TRITONSERVER_MetricKind(info.Kind)
		if info.Reason != "" {
			d.reason = C.CString(info.Reason)
		}
		bounds := C.calloc(C.size_t(len(info.Buckets)+1), C.sizeof_double)
		copy(unsafe.Slice((*float64)(bounds), len(info.Buckets)), info.Buckets)
		d.bounds, d.bound_count = (*C.double)(bounds), C.uint64_t(len(info.Buckets))
	}
	return takeError(C.metric_families_new(&m.definitions[0], C.uint32_t(len(infos)), &m.families))
}

// describeBuild creates stateful_build_info. Without it, the other metrics go on.
func (m *metrics) describeBuild() {
	if m.families == nil {
		return
	}
	ours, theirs := C.CString(version.Number), C.CString(m.onnxRuntime)
	defer C.free(unsafe.Pointer(ours))
	defer C.free(unsafe.Pointer(theirs))
	if err := takeError(C.metric_build_new(ours, theirs, &m.build)); err != nil {
		m.log.Warn("could not create the metric stateful_build_info", "cause", err)
	}
}

// close frees the families. No instance may have metrics left.
func (m *metrics) close() {
	if m.build != nil {
		C.metric_build_free(m.build)
		m.build = nil
	}
	if m.families != nil {
		C.metric_families_free(m.families)
		m.families = nil
	}
	for i := range m.definitions {
		d := &m.definitions[i]
		for _, text := range []*C.char{d.name, d.help, d.reason} {
			C.free(unsafe.Pointer(text))
		}
		C.free(unsafe.Pointer(d.bounds))
	}
	C.free(unsafe.Pointer(unsafe.SliceData(m.definitions)))
	m.definitions = nil
}

// instanceMetrics implements backend.MetricSink.
type instanceMetrics struct {
	of *metrics
	c  *C.metric_set
}

// An update is the same in memory of Go and of C.
var _ [C.sizeof_metric_update]byte = [unsafe.Sizeof(backend.MetricUpdate{})]byte{}

// Record implements backend.MetricSink.
func (s *instanceMetrics) Record(updates []backend.MetricUpdate) {
	C.metric_set_record(s.c, (*C.metric_update)(unsafe.Pointer(unsafe.SliceData(updates))), C.uint32_t(len(updates)))
}

// Close implements backend.MetricSink.
func (s *instanceMetrics) Close() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	C.metric_set_free(s.c)
}
