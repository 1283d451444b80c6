// An NVML with one GPU and few functions, for tests. -DLACKS_NAME leaves out one
// that is needed, -DHAS_MIG adds one that is not.
#include <string.h>

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 0 ? "Success" : "a fake error"; }

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  strncpy(version, "580.1.2", size);
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 1;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  static int gpu;
  *device = &gpu;
  return index == 0 ? 0 : 2;
}

#ifndef LACKS_NAME
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
  (void)device;
  strncpy(name, "Fake GPU", size);
  return 0;
}
#endif

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
  (void)device;
  strncpy(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", size);
  return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used) {
  (void)device;
  total_free_used[0] = 8ull << 30;
  total_free_used[1] = 3ull << 29;
  total_free_used[2] = 13ull << 29;
  return 0;
}

#ifdef HAS_MIG
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
  (void)device;
  *current = *pending = 1;
  return 0;
}
#endif
