package ortrunner

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/status"
)

// optimization translates onnx.SessionOptions.Optimization; "" is "all".
var optimization = map[string]ort.GraphOptimizationLevel{
	"disabled": ort.GraphOptimizationLevelDisableAll,
	"basic":    ort.GraphOptimizationLevelEnableBasic,
	"extended": ort.GraphOptimizationLevelEnableExtended,
	"all":      ort.GraphOptimizationLevelEnableAll,
	"":         ort.GraphOptimizationLevelEnableAll,
}

// newOptions builds the options of a session; provider, if not nil, adds an
// execution provider in front of the CPU's, which is always there. The caller
// destroys them when the session has been made.
func newOptions(o onnx.SessionOptions, provider func(*ort.SessionOptions) error) (*ort.SessionOptions, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	err = setOptions(options, o)
	if err == nil && provider != nil {
		err = provider(options)
	}
	if err != nil {
		_ = options.Destroy() // it exists, so it can be destroyed
		return nil, err
	}
	return options, nil
}

// setLogID makes ONNX Runtime name the model in its log lines.
func setLogID(options *ort.SessionOptions, name string) error {
	if name == "" {
		return nil
	}
	c, err := optionsOf(options)
	if err != nil {
		return err
	}
	id := C.CString(name)
	defer C.free(unsafe.Pointer(id))
	return statusError(C.ortx_set_log_id(c, id))
}

// checkProvider makes sure that the library has an execution provider.
func checkProvider(p onnx.Provider) error {
	name := C.CString(providerNames[p])
	defer C.free(unsafe.Pointer(name))
	var has C.int
	if err := statusError(C.ortx_has_provider(name, &has)); err != nil {
		return fmt.Errorf("execution provider %v: %w", p, err)
	}
	if has == 0 {
		return status.Errorf(status.Unsupported,
			"execution provider %v: this ONNX Runtime library was built for CPU only: "+
				"replace it by one that has %s, such as that of onnxruntime-gpu (docs/gpu.md), or use KIND_CPU instances", p, providerNames[p])
	}
	return nil
}

// providerNames are ONNX Runtime's own (OrtApi::GetAvailableProviders).
var providerNames = map[onnx.Provider]string{
	onnx.CUDA:     "CUDAExecutionProvider",
	onnx.TensorRT: "TensorrtExecutionProvider",
}

// optionsOf is the OrtSessionOptions in the wrapper's, for what the wrapper cannot
// do with it. A version of the wrapper that names its field otherwise gives an
// error.
func optionsOf(options *ort.SessionOptions) (*C.OrtSessionOptions, error) {
	field := reflect.ValueOf(options).Elem().FieldByName("o")
	if !field.IsValid() || field.Kind() != reflect.Pointer {
		return nil, errors.New("this version of onnxruntime_go keeps its session options elsewhere")
	}
	return (*C.OrtSessionOptions)(field.UnsafePointer()), nil
}
