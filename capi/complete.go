package main

// #include <stdlib.h>
// #include "describe.h"
// #include "signals.h"
import "C"

import (
	"tritonstateful/backend"
	"tritonstateful/internal/status"
)

// completeModel fills in what the configuration of a model leaves out, and returns
// the model with the configuration as Triton took it: Triton merges some fields
// only, and adds its own defaults.
func completeModel(of *C.TRITONBACKEND_Model, info backend.ModelInfo, server backend.Server) (backend.ModelInfo, error) {
	var saved C.signals_saved
	C.signals_save(&saved)
	config, err := backend.Complete(info, server)
	C.signals_restore(&saved)
	if err != nil || config == nil {
		return info, err
	}
	json := C.CBytes(config)
	defer C.free(json)
	if err := takeError(C.set_model_config(of, (*C.char)(json), C.size_t(len(config)))); err != nil {
		return info, status.Errorf(status.CodeOf(err), "the configuration as filled in from the model, %s: %w", config, err)
	}
	var d C.model_description
	if err := takeError(C.describe_model(of, &d)); err != nil {
		return info, err
	}
	return modelInfo(&d)
}
