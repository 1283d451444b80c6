package ortrunner

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/onnx"
	"tritonstateful/internal/onnxfile"
	"tritonstateful/internal/status"
)

// Open loads a model; it is a onnx.OpenRunner. If the path is a folder, as for a
// model with external data, the model is model.onnx in it. The error is NotFound for a
// missing file, InvalidArg for one that ONNX Runtime refuses and Unsupported for
// tensors or execution providers that cannot be served; it names the file by its
// version folder and its name. Safe for concurrent use.
func (r *Runtime) Open(o onnx.SessionOptions) (onnx.Runner, error) {
	file := filepath.Join(filepath.Base(filepath.Dir(o.Path)), filepath.Base(o.Path))
	if info, err := os.Stat(o.Path); err == nil && info.IsDir() {
		o.Path, file = filepath.Join(o.Path, inFolder), filepath.Join(file, inFolder)
	}
	if err := checkFile(o.Path); err != nil {
		return nil, status.Errorf(status.CodeOf(err), "model file %s %w", file, err)
	}
	open := openSession
	if o.Provider != onnx.CPU {
		open = r.openOnGPU
	}
	opened, err := open(o)
	if err != nil {
		// ONNX Runtime often repeats the path.
		text := strings.ReplaceAll(err.Error(), o.Path, file)
		return nil, status.Errorf(status.CodeOf(err), "model file %s: %s%s", file, text, passedOn(o.Session, text))
	}
	sig := opened.Signature()
	if sig.Operators, sig.Nodes, err = onnxfile.Read(o.Path); err != nil {
		sig.Unread = true
		r.log.Warn("could not read which operators the model file has; it is served as if it had those on which ONNX Runtime crashes with empty tensors, so requests with an extent of 0 are refused", "model", o.Name, "file", file, "reason", err)
	}
	if sig.EndsOnEmpty() == "" {
		sig.Nodes = nil // no one asks for them
	}
	r.log.Debug("opened a session", "model", o.Name, "file", file,
		"inputs", len(opened.Signature().Inputs), "outputs", len(opened.Signature().Outputs))
	return opened, nil
}

// passedOn reminds of the settings that the configuration has passed on: any of them can be
// why ONNX Runtime refuses a model. It is empty if the reason names one of them.
func passedOn(settings []onnx.Setting, reason string) string {
	if len(settings) == 0 {
		return ""
	}
	given := make([]string, len(settings))
	for i, s := range settings {
		if strings.Contains(reason, s.Key) {
			return ""
		}
		given[i] = s.Key + " = " + s.Value
	}
	return "; if it is not the file, look at what the parameters pass on: " + strings.Join(given, ", ")
}

// inFolder is the name of a model that has a folder for itself, in Triton's
// onnxruntime backend too.
const inFolder = "model.onnx"

func openSession(o onnx.SessionOptions) (onnx.Runner, error) {
	options, err := newOptions(o, pluginOf(o))
	if err != nil {
		return nil, err
	}
	defer options.Destroy() //nolint:errcheck // fails only for options that do not exist
	c, err := newSession(o.Path, options)
	if err != nil {
		return nil, err
	}
	s := newSharedSession(c, o.Run)
	defer s.leave() // the runner has joined it, or there is none
	if s.signature, err = readSignature(c); err != nil {
		return nil, err
	}
	opened, err := newRunner(s)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// newSession loads a model file; OrtApi::CreateSession. It does not use the
// wrapper, which drops the error's code and leaks a copy of the path: a few
// bytes, but they pin the heap, and the process grows by 0.1 MB and more with
// each model that is loaded and unloaded.
func newSession(path string, options *ort.SessionOptions) (*C.OrtSession, error) {
	c, err := optionsOf(options)
	if err != nil {
		return nil, err
	}
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	var session *C.OrtSession
	if err := statusError(C.ortx_new_session(cPath, c, &session)); err != nil {
		return nil, withRemedy(path, err)
	}
	return session, nil
}
