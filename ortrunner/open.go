package ortrunner

// #include "shim.h"
import "C"

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/backend"
)

// Open loads a model; it is a backend.OpenRunner. The error is NotFound for a
// missing file, InvalidArg for one that ONNX Runtime refuses and Unsupported for
// tensors or execution providers that cannot be served; it names the file by its
// version folder and its name. Safe for concurrent use.
func (r *Runtime) Open(o backend.SessionOptions) (backend.Runner, error) {
	file := filepath.Join(filepath.Base(filepath.Dir(o.Path)), filepath.Base(o.Path))
	if err := checkFile(o.Path); err != nil {
		return nil, backend.Errorf(backend.CodeOf(err), "model file %s %w", file, err)
	}
	opened, err := openSession(o)
	if err != nil {
		// ONNX Runtime likes to repeat the path.
		text := strings.ReplaceAll(err.Error(), o.Path, file)
		return nil, backend.Errorf(backend.CodeOf(err), "model file %s: %s", file, text)
	}
	r.log.Debug("opened a session", "model", o.Name, "file", file,
		"inputs", len(opened.signature.Inputs), "outputs", len(opened.signature.Outputs))
	return opened, nil
}

// checkFile tells of a missing file in simpler words than ONNX Runtime does, and
// without the path on the server's disk. The error continues "model file x".
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return backend.Errorf(backend.NotFound, "does not exist")
	case err != nil:
		return backend.Errorf(backend.Unavailable, "cannot be read: %w", errors.Unwrap(err))
	case info.IsDir():
		return backend.Errorf(backend.InvalidArg, "is a folder")
	}
	return nil
}

func openSession(o backend.SessionOptions) (*runner, error) {
	options, err := newOptions(o)
	if err != nil {
		return nil, err
	}
	defer options.Destroy() //nolint:errcheck // fails only for options that do not exist
	session, err := newSession(o.Path, options)
	if err != nil {
		return nil, err
	}
	opened, err := newRunner(session)
	if err != nil {
		session.destroy()
		return nil, err
	}
	return opened, nil
}

// session is the wrapper's session and the OrtSession in it, which runs.
type session struct {
	wrapper *ort.DynamicAdvancedSession
	c       *C.OrtSession
}

// newSession loads a model file. The wrapper forgets ONNX Runtime's error code;
// what is refused here is the file, so that it is InvalidArg. It also leaks one
// copy of the path for each session.
func newSession(path string, options *ort.SessionOptions) (session, error) {
	wrapper, err := ort.NewDynamicAdvancedSession(path, nil, nil, options)
	if err != nil {
		if text := errors.Unwrap(err); text != nil {
			err = text // without the wrapper's own words
		}
		return session{}, backend.Errorf(backend.InvalidArg, "%w", err)
	}
	address, err := wrapped(wrapper, "s", "ortSession")
	if err != nil {
		_ = wrapper.Destroy() // never fails
		return session{}, err
	}
	return session{wrapper: wrapper, c: (*C.OrtSession)(address)}, nil
}

func (s session) destroy() {
	_ = s.wrapper.Destroy() // never fails
}
