package ortrunner

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"log/slog"
	"path/filepath"
	"runtime/debug"
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
	// Threads, if not nil, are pools that all sessions share, instead of threads of their
	// own. Those of the first Runtime of the process hold.
	Threads *Threads
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

// Threads are pools of threads: IntraOp for one operator, InterOp for operators that run at
// the same time; 0 leaves the number to ONNX Runtime.
type Threads struct{ IntraOp, InterOp int }

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
// that was opened, or "", and whether all sessions share threads, which does not change
// after that.
var process struct {
	sync.Mutex
	library       string
	globalThreads bool
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
			err = initialize(library, o.LogLevel, o.Threads)
		}
		if err != nil {
			return nil, status.Errorf(status.Unavailable, "onnxruntime library %s: %w", library, err)
		}
		process.library, process.globalThreads = library, o.Threads != nil
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

// SharesThreads reports whether all sessions share one pool of threads.
func (r *Runtime) SharesThreads() bool { return process.globalThreads }

// Trim gives the memory back to the system that sessions have freed. Opening one takes up to
// twice the memory of the weights for a while, and the C library keeps freed blocks that are
// smaller than its threshold for mapping, also most of a session that was closed. Go's heap
// keeps what trial runs had, for minutes; it is collected after Trim has returned. Trim locks the C
// heap, so it is for the end of a load or an unload. Safe for concurrent use.
func (r *Runtime) Trim() {
	C.ortx_trim()
	go debug.FreeOSMemory() // takes tens of milliseconds on a busy machine, and nothing waits for it
}

// Version is the library's version, "1.31.1".
func (r *Runtime) Version() string { return version() }

func version() string { return C.GoString(C.ortx_version()) }

// initialize opens the library and creates the environment with our logger; the
// wrapper's own environment then attaches to it, as OrtEnv is one per process.
// The shim comes first also because it refuses a library that is too old for the
// wrapper, which must not be touched after a failed start (triton-go.md, T6).
func initialize(library string, logLevel int, threads *Threads) error {
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	var pools C.ortx_pools
	if threads != nil {
		pools = C.ortx_pools{global: true, intra_op: C.int(threads.IntraOp), inter_op: C.int(threads.InterOp)}
	}
	if failure := C.ortx_load(path, C.uint(logLevel), pools); failure != nil {
		defer C.free(unsafe.Pointer(failure))
		return errors.New(C.GoString(failure))
	}
	ort.SetSharedLibraryPath(library)
	return ort.InitializeEnvironment()
}
