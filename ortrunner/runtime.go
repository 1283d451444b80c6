package ortrunner

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"tritonstateful/internal/cuda"
	"tritonstateful/internal/status"
)

// Options is how ONNX Runtime is to be opened.
type Options struct {
	// Library is the path of libonnxruntime.so, version 1.29 or later.
	Library string
	// LogLevel is the least severe level that ONNX Runtime logs, as
	// OrtLoggingLevel: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal. The level
	// of the first Runtime of the process holds.
	LogLevel int
	// LogSink, if not 0, is the address of a C function
	// void (int level, const char *message) that gets ONNX Runtime's log lines.
	// It is called from ONNX Runtime's threads, concurrently. 0 leaves the sink of
	// an earlier Runtime, or stderr.
	LogSink uintptr
	// Log gets this package's own messages; nil is slog.Default.
	Log *slog.Logger
	// Identify returns what NVIDIA's management library knows of the GPU that CUDA
	// knows by this UUID, 8-4-4-4-12 hexadecimal digits. nil: nothing is known.
	Identify func(uuid string) (Identity, error)
}

// Identity is what the management library says of a GPU, or a part of one.
type Identity struct {
	UUID   string // as NVIDIA's tools print it
	Whole  string // that of the GPU of which it is a part, or empty
	Memory string // what is free, for people
}

// Runtime is the ONNX Runtime library and its environment. There is one of them
// in a process and it is never released: ONNX Runtime does not start again
// cleanly, and a backend is not unloaded. A Runtime is safe for concurrent use.
type Runtime struct {
	log *slog.Logger
	// driver opens the GPU's driver, when the first model wants it.
	driver   func() (*cuda.Driver, error)
	identify func(uuid string) (Identity, error)
	gpu      gpuBackend
}

// process is what the C side holds for the whole process: the path of the library
// that was opened, or "".
var process struct {
	sync.Mutex
	library string
}

// New opens ONNX Runtime. A second New with the same library shares the
// environment of the first; one with another library fails, because ONNX
// Runtime's environment is one per process.
func New(o Options) (*Runtime, error) {
	process.Lock()
	defer process.Unlock()
	log := o.Log
	if log == nil {
		log = slog.Default()
	}
	library, err := realPath(o.Library)
	if err != nil {
		return nil, status.Errorf(status.NotFound, "onnxruntime library: %w", err)
	}
	if o.LogSink != 0 {
		C.ortx_set_log_sink(C.uintptr_t(o.LogSink))
	}
	switch process.library {
	case library:
	case "":
		err := checkWhole(library)
		if err == nil {
			err = initialize(library, o.LogLevel)
		}
		if err != nil {
			return nil, status.Errorf(status.Unavailable, "onnxruntime library %s: %w", library, err)
		}
		process.library = library
		log.Info("opened ONNX Runtime", "library", library, "version", version())
	default:
		return nil, status.Errorf(status.AlreadyExists,
			"onnxruntime library %s: this process already uses %s", library, process.library)
	}
	return &Runtime{log: log, driver: openDriver(cuda.Library), identify: o.Identify, gpu: realGPU}, nil
}

// openDriver opens a GPU's driver at the first call.
func openDriver(library string) func() (*cuda.Driver, error) {
	return sync.OnceValues(func() (*cuda.Driver, error) { return cuda.OpenLibrary(library) })
}

// realPath is the absolute path of a file without symbolic links: two names of one
// library are the same library.
func realPath(path string) (string, error) {
	if path == "" {
		return "", errors.New("the path is empty")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// Version is the library's version, "1.31.1".
func (r *Runtime) Version() string { return version() }

func version() string { return C.GoString(C.ortx_version()) }

// initialize opens the library and creates the environment with our logger; the
// wrapper's own environment then attaches to it, as OrtEnv is one per process.
// The shim comes first also because it refuses a library that is too old for the
// wrapper, which must not be touched after a failed start (triton-go.md, T6).
func initialize(library string, logLevel int) error {
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if failure := C.ortx_load(path, C.uint(logLevel)); failure != nil {
		defer C.free(unsafe.Pointer(failure))
		return errors.New(C.GoString(failure))
	}
	ort.SetSharedLibraryPath(library)
	return ort.InitializeEnvironment()
}
