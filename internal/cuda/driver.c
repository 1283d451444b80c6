#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// The opened drivers stay open, and a second gpu_open finds them here.
typedef struct opened {
  gpu_driver driver;
  char *library;
  struct opened *next;
} opened;

static opened *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// look_up fills the table of functions, or says which one is missing.
static bool look_up(gpu_driver *driver, void *handle, char **failure) {
#define X(name, parameters)                              \
  *(void **)(&driver->name) = dlsym(handle, #name);      \
  if (driver->name == NULL && *failure == NULL)          \
    *failure = strdup("the driver is too old: it has no function " #name);
  GPU_FUNCTIONS(X)
#undef X
  return *failure == NULL;
}

static opened *open_new(const char *library, char **failure) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    *failure = strdup(dlerror());
    return NULL;
  }
  opened *o = calloc(1, sizeof *o);
  if (o != NULL) o->library = strdup(library);
  if (o == NULL || o->library == NULL) *failure = strdup("out of memory");
  if (*failure == NULL && look_up(&o->driver, handle, failure)) return o;
  if (o != NULL) free(o->library);
  free(o);
  dlclose(handle);
  return NULL;
}

gpu_driver *gpu_open(const char *library, char **failure) {
  pthread_mutex_lock(&lock);
  opened *o = all;
  while (o != NULL && strcmp(o->library, library) != 0) o = o->next;
  if (o == NULL && (o = open_new(library, failure)) != NULL) {
    o->next = all;
    all = o;
  }
  pthread_mutex_unlock(&lock);
  return o != NULL ? &o->driver : NULL;
}

// Leaves the function with the result of a call that failed.
#define TRY(call)                                \
  do {                                           \
    CUresult failed_ = (call);                   \
    if (failed_ != 0) return failed_;            \
  } while (0)

#define ENTER(c) TRY((c)->driver->cuCtxSetCurrent((c)->context))

CUresult gpu_init(const gpu_driver *d, int *version, int *devices) {
  TRY(d->cuInit(0));
  TRY(d->cuDriverGetVersion(version));
  return d->cuDeviceGetCount(devices);
}

CUresult gpu_describe(const gpu_driver *d, int ordinal, CUdevice *device, char *name,
                      int name_size, CUuuid *uuid, size_t *bytes, int *major, int *minor) {
  TRY(d->cuDeviceGet(device, ordinal));
  TRY(d->cuDeviceGetName(name, name_size, *device));
  TRY(d->cuDeviceGetUuid_v2(uuid, *device));
  TRY(d->cuDeviceTotalMem_v2(bytes, *device));
  TRY(d->cuDeviceGetAttribute(major, GPU_MAJOR, *device));
  return d->cuDeviceGetAttribute(minor, GPU_MINOR, *device);
}

CUresult gpu_retain(const gpu_driver *d, CUdevice device, CUcontext *context) {
  return d->cuDevicePrimaryCtxRetain(context, device);
}

CUresult gpu_release(const gpu_driver *d, CUdevice device) {
  return d->cuDevicePrimaryCtxRelease_v2(device);
}

const char *gpu_error_name(const gpu_driver *d, CUresult result) {
  const char *name = NULL;
  return d->cuGetErrorName(result, &name) == 0 && name != NULL ? name : "an unknown error";
}

const char *gpu_error_text(const gpu_driver *d, CUresult result) {
  const char *text = NULL;
  return d->cuGetErrorString(result, &text) == 0 && text != NULL ? text : "no explanation";
}

CUresult gpu_mem_info(const gpu_context *c, size_t *free, size_t *total) {
  ENTER(c);
  return c->driver->cuMemGetInfo_v2(free, total);
}

CUresult gpu_alloc(const gpu_context *c, CUdeviceptr *address, size_t bytes) {
  ENTER(c);
  return c->driver->cuMemAlloc_v2(address, bytes);
}

CUresult gpu_free(const gpu_context *c, CUdeviceptr address) {
  ENTER(c);
  return c->driver->cuMemFree_v2(address);
}

CUresult gpu_host_alloc(const gpu_context *c, void **at, size_t bytes) {
  ENTER(c);
  return c->driver->cuMemHostAlloc(at, bytes, GPU_HOST_PORTABLE);
}

CUresult gpu_host_free(const gpu_context *c, void *at) {
  ENTER(c);
  return c->driver->cuMemFreeHost(at);
}

CUresult gpu_stream_new(const gpu_context *c, CUstream *stream) {
  ENTER(c);
  return c->driver->cuStreamCreate(stream, GPU_STREAM_NON_BLOCKING);
}

CUresult gpu_stream_free(const gpu_context *c, CUstream stream) {
  ENTER(c);
  return c->driver->cuStreamDestroy_v2(stream);
}

CUresult gpu_stream_sync(const gpu_context *c, CUstream stream) {
  ENTER(c);
  return c->driver->cuStreamSynchronize(stream);
}

CUresult gpu_event_new(const gpu_context *c, CUevent *event) {
  ENTER(c);
  return c->driver->cuEventCreate(event, GPU_EVENT_DISABLE_TIMING);
}

CUresult gpu_event_free(const gpu_context *c, CUevent event) {
  ENTER(c);
  return c->driver->cuEventDestroy_v2(event);
}

CUresult gpu_event_record(const gpu_context *c, CUevent event, CUstream stream) {
  ENTER(c);
  return c->driver->cuEventRecord(event, stream);
}

CUresult gpu_event_sync(const gpu_context *c, CUevent event) {
  ENTER(c);
  return c->driver->cuEventSynchronize(event);
}

CUresult gpu_module_load(const gpu_context *c, CUmodule *module, const void *image) {
  ENTER(c);
  return c->driver->cuModuleLoadData(module, image);
}

CUresult gpu_module_free(const gpu_context *c, CUmodule module) {
  ENTER(c);
  return c->driver->cuModuleUnload(module);
}

CUresult gpu_function(const gpu_context *c, CUfunction *function, CUmodule module,
                      const char *name) {
  ENTER(c);
  return c->driver->cuModuleGetFunction(function, module, name);
}

CUresult gpu_copy_in(const gpu_context *c, CUstream stream, CUdeviceptr to, uintptr_t from,
                     size_t bytes) {
  ENTER(c);
  return c->driver->cuMemcpyHtoDAsync_v2(to, (const void *)from, bytes, stream);
}

CUresult gpu_copy_out(const gpu_context *c, CUstream stream, uintptr_t to, CUdeviceptr from,
                      size_t bytes) {
  ENTER(c);
  return c->driver->cuMemcpyDtoHAsync_v2((void *)to, from, bytes, stream);
}

CUresult gpu_copy(const gpu_context *c, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                  size_t bytes) {
  ENTER(c);
  return c->driver->cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

CUresult gpu_set(const gpu_context *c, CUstream stream, CUdeviceptr to, unsigned char value,
                 size_t bytes) {
  ENTER(c);
  return c->driver->cuMemsetD8Async(to, value, bytes, stream);
}

CUresult gpu_launch(const gpu_context *c, CUstream stream, CUfunction function, unsigned grid_x,
                    unsigned grid_y, unsigned grid_z, unsigned threads, uint64_t argument) {
  void *parameters[] = {&argument};
  ENTER(c);
  return c->driver->cuLaunchKernel(function, grid_x, grid_y, grid_z, threads, 1, 1, 0, stream,
                                   parameters, NULL);
}
