package main

// #include "memory.h"
import "C"

import (
	"log/slog"
	"unsafe"

	"tritonstateful/backend"
)

// A use is the same in memory of Go and of C.
var _ [C.sizeof_memory_use]byte = [unsafe.Sizeof(backend.MemoryUse{})]byte{}

// memoryReporter returns what tells Triton of a model's memory, or nil where this server does
// not take it. It is called until the model's last instance is finalized.
func memoryReporter(of *C.TRITONBACKEND_Model, log *slog.Logger) func([]backend.MemoryUse) {
	if !C.memory_is_taken() {
		return nil
	}
	return func(uses []backend.MemoryUse) {
		err := takeError(C.memory_report(of, (*C.memory_use)(unsafe.Pointer(unsafe.SliceData(uses))), C.uint32_t(len(uses))))
		if err != nil {
			log.Debug("could not report the memory of the model", "cause", err)
		}
	}
}
