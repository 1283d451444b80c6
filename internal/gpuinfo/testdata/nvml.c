// A fake NVML with one GPU and few functions. -DLACKS_NAME leaves out a function that
// is needed. With -DHAS_MIG the GPU is split and has a MIG device.
#include <string.h>

#define WHOLE "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
#define PART "MIG-10111213-1415-1617-1819-1a1b1c1d1e1f"
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6 };

static int gpu, part;

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == SUCCESS ? "Success" : "a fake error"; }

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  strncpy(version, "580.1.2", size);
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 1;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = &gpu;
  return index == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = &gpu;
  if (strcmp(uuid, WHOLE) == 0) return SUCCESS;
#ifdef HAS_MIG
  *device = &part;
  if (strcmp(uuid, PART) == 0) return SUCCESS;
#endif
  return NOT_FOUND;
}

#ifndef LACKS_NAME
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
  strncpy(name, device == &part ? "Fake GPU MIG 1g.4gb" : "Fake GPU", size);
  return SUCCESS;
}
#endif

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
  strncpy(uuid, device == &part ? PART : WHOLE, size);
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used) {
  unsigned long long parts = device == &part ? 2 : 1;
  total_free_used[0] = (8ull << 30) / parts;
  total_free_used[1] = (3ull << 29) / parts;
  total_free_used[2] = (13ull << 29) / parts;
  return SUCCESS;
}

#ifdef HAS_MIG
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
  (void)device;
  *current = *pending = 1;
  return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *device, void **whole) {
  *whole = &gpu;
  return device == &part ? SUCCESS : INVALID_ARGUMENT;
}
#endif
