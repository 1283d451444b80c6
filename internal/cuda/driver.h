// The part of the CUDA driver API that is used, in our own words: nothing of
// CUDA is needed to build or to load this library. The functions are looked up
// in libcuda.so.1 at run time. Names and types follow NVIDIA's documentation of
// the driver API; where a function has a later version, its name says which.
#ifndef STATEFUL_CUDA_DRIVER_H
#define STATEFUL_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult; // 0 is success
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct {
  unsigned char bytes[16];
} CUuuid;

enum { GPU_MAJOR = 75, GPU_MINOR = 76 };   // CUdevice_attribute: compute capability
enum { GPU_STREAM_NON_BLOCKING = 1 };      // does not wait for the legacy default stream
enum { GPU_EVENT_DISABLE_TIMING = 2 };     // cheaper to record
enum { GPU_HOST_PORTABLE = 1 };            // pinned for every context

// X(name, parameters): each returns a CUresult.
#define GPU_FUNCTIONS(X)                                                                         \
  X(cuInit, (unsigned flags))                                                                    \
  X(cuDriverGetVersion, (int *version))                                                          \
  X(cuGetErrorName, (CUresult, const char **name))                                               \
  X(cuGetErrorString, (CUresult, const char **text))                                             \
  X(cuDeviceGetCount, (int *count))                                                              \
  X(cuDeviceGet, (CUdevice *, int ordinal))                                                      \
  X(cuDeviceGetName, (char *name, int size, CUdevice))                                           \
  X(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                    \
  X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice))                                              \
  X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice))                                 \
  X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                    \
  X(cuCtxSetCurrent, (CUcontext))                                                                \
  X(cuMemGetInfo_v2, (size_t *free, size_t *total))                                              \
  X(cuMemAlloc_v2, (CUdeviceptr *, size_t bytes))                                                \
  X(cuMemFree_v2, (CUdeviceptr))                                                                 \
  X(cuMemHostAlloc, (void **, size_t bytes, unsigned flags))                                     \
  X(cuMemFreeHost, (void *))                                                                     \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream))            \
  X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream))                  \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream))            \
  X(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream))              \
  X(cuStreamCreate, (CUstream *, unsigned flags))                                                \
  X(cuStreamDestroy_v2, (CUstream))                                                              \
  X(cuStreamSynchronize, (CUstream))                                                             \
  X(cuEventCreate, (CUevent *, unsigned flags))                                                  \
  X(cuEventDestroy_v2, (CUevent))                                                                \
  X(cuEventRecord, (CUevent, CUstream))                                                          \
  X(cuEventSynchronize, (CUevent))                                                               \
  X(cuModuleLoadData, (CUmodule *, const void *image))                                           \
  X(cuModuleUnload, (CUmodule))                                                                  \
  X(cuModuleGetFunction, (CUfunction *, CUmodule, const char *name))                             \
  X(cuLaunchKernel,                                                                              \
    (CUfunction, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,            \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream, void **parameters,     \
     void **extra))

typedef struct {
#define X(name, parameters) CUresult(*name) parameters;
  GPU_FUNCTIONS(X)
#undef X
} gpu_driver;

// gpu_open opens the driver library and fills the table. If there is no such library
// or it lacks a function, it returns NULL and sets *failure to a message that the
// caller frees. An opened driver stays open: it starts threads of its own.
gpu_driver *gpu_open(const char *library, char **failure);

// The wrappers below make the context current to the calling thread first, so
// that it does not matter which thread that is.

typedef struct {
  const gpu_driver *driver;
  CUcontext context;
} gpu_context;

CUresult gpu_mem_info(const gpu_context *, size_t *free, size_t *total);
CUresult gpu_alloc(const gpu_context *, CUdeviceptr *, size_t bytes);
CUresult gpu_free(const gpu_context *, CUdeviceptr);
CUresult gpu_host_alloc(const gpu_context *, void **, size_t bytes);
CUresult gpu_host_free(const gpu_context *, void *);
CUresult gpu_stream_new(const gpu_context *, CUstream *);
CUresult gpu_stream_free(const gpu_context *, CUstream);
CUresult gpu_stream_sync(const gpu_context *, CUstream);
CUresult gpu_event_new(const gpu_context *, CUevent *);
CUresult gpu_event_free(const gpu_context *, CUevent);
CUresult gpu_event_record(const gpu_context *, CUevent, CUstream);
CUresult gpu_event_sync(const gpu_context *, CUevent);
CUresult gpu_module_load(const gpu_context *, CUmodule *, const void *image);
CUresult gpu_module_free(const gpu_context *, CUmodule);
CUresult gpu_function(const gpu_context *, CUfunction *, CUmodule, const char *name);

// Host addresses are numbers here, so that Go passes no pointer.
CUresult gpu_copy_in(const gpu_context *, CUstream, CUdeviceptr to, uintptr_t from, size_t bytes);
CUresult gpu_copy_out(const gpu_context *, CUstream, uintptr_t to, CUdeviceptr from, size_t bytes);
CUresult gpu_copy(const gpu_context *, CUstream, CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult gpu_set(const gpu_context *, CUstream, CUdeviceptr to, unsigned char value, size_t bytes);
// gpu_launch starts a kernel that takes one argument of 64 bits.
CUresult gpu_launch(const gpu_context *, CUstream, CUfunction, unsigned grid_x, unsigned grid_y,
                    unsigned grid_z, unsigned threads, uint64_t argument);

// For functions that need no context.
CUresult gpu_init(const gpu_driver *, int *version, int *devices);
CUresult gpu_describe(const gpu_driver *, int ordinal, CUdevice *, char *name, int name_size,
                      CUuuid *, size_t *bytes, int *major, int *minor);
CUresult gpu_retain(const gpu_driver *, CUdevice, CUcontext *);
CUresult gpu_release(const gpu_driver *, CUdevice);
// The error's name and explanation, never NULL.
const char *gpu_error_name(const gpu_driver *, CUresult);
const char *gpu_error_text(const gpu_driver *, CUresult);

#endif
