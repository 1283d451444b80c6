// What the C files of this package share.
#ifndef STATEFUL_SHIM_INTERNAL_H
#define STATEFUL_SHIM_INTERNAL_H

#include "shim.h"

// Process-wide, as ONNX Runtime's environment is: filled once by ortx_load and
// never released (a backend is not unloaded; triton-go.md, T4).
extern ortx_api ortx;
extern OrtEnv *ortx_environment;
extern OrtAllocator *ortx_allocator;      // ONNX Runtime's default one
extern OrtMemoryInfo *ortx_host_memory; // says "host memory" of a tensor

// Disables the telemetry of the library that contains this code, before its first
// environment is made. False: it could not (telemetry.c).
bool ortx_silence(const void *code);

// Makes options of a run from pairs of a key and a value. On failure *options is what there
// is of them, or NULL (run.c).
OrtStatus *ortx_new_run_options(const char *const *keys, const char *const *values, size_t count,
                                OrtRunOptions **options);
// Forgets the tensors that ONNX Runtime allocated in the run before (run.c).
void ortx_drop_results(ortx_call *call);
// Fills in what a result says of its value.
OrtStatus *ortx_read_result(ortx_result *result);

// Leaves the function with the status of a call that failed.
#define ORTX_TRY(call)                 \
  do {                                 \
    OrtStatus *ortx_try_ = (call);     \
    if (ortx_try_ != NULL) return ortx_try_; \
  } while (0)

// OrtErrorCode.
enum { ORTX_FAIL = 1, ORTX_NOT_IMPLEMENTED = 9 };

// ONNXTensorElementDataType.
enum { ORTX_STRING = 8 };

#endif
