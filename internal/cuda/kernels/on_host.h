// What move.cu needs of CUDA, for a C++ compiler of the host. Blocks and threads
// run one after the other: run() is a launch. Addresses go through translate(),
// which the including file defines.
#ifndef STATEFUL_ON_HOST_H
#define STATEFUL_ON_HOST_H
#define STATEFUL_ON_HOST

#include <math.h>
#include <string.h>

#include "move.h"

#define DEVICE static inline
#define KERNEL static void

struct dim3 {
  u32 x, y, z;
};
struct alignas(16) uint4 {
  u32 x, y, z, w;
};
struct alignas(8) uint2 {
  u32 x, y;
};

static thread_local dim3 blockIdx, blockDim, gridDim, threadIdx;

static void *translate(u64 address);

template <class T>
static T *at(u64 address) {
  return static_cast<T *>(translate(address));
}

static void atomicAdd(u64 *counter, u64 by) { __atomic_fetch_add(counter, by, __ATOMIC_RELAXED); }

// What the hardware does, in words: IEEE 754 binary16, to nearest even.
static u32 hardware_wide(u32 h) {
  int exponent = (int)(h >> 10 & 0x1f);
  u32 fraction = h & 0x3ff;
  float f = exponent == 0x1f ? (fraction ? NAN : INFINITY)
            : exponent == 0  ? ldexpf((float)fraction, -24)
                             : ldexpf((float)(fraction | 0x400), exponent - 25);
  if (h & 0x8000) f = -f;
  u32 bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static u32 hardware_narrow(u32 bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  u32 sign = bits >> 16 & 0x8000;
  if (f != f) return 0x7fff;
  f = fabsf(f);
  if (f >= 65520.0f) return sign | 0x7c00; // half a unit above the largest, and infinity
  if (f == 0) return sign;
  int exponent;
  frexpf(f, &exponent);
  int unit = exponent - 11 > -24 ? exponent - 11 : -24; // of the last place
  u32 units = (u32)nearbyintf(ldexpf(f, -unit));
  return sign | (((u32)(unit + 24) << 10) + units); // a carry goes into the exponent, as it should
}

// Runs a kernel.
static inline void run(void (*kernel)(u64), dim3 grid, u32 threads, u64 argument) {
  gridDim = grid;
  blockDim = {threads, 1, 1};
  for (u32 z = 0; z < grid.z; z++)
    for (u32 y = 0; y < grid.y; y++)
      for (u32 x = 0; x < grid.x; x++)
        for (u32 t = 0; t < threads; t++) {
          blockIdx = {x, y, z};
          threadIdx = {t, 0, 0};
          kernel(argument);
        }
}

#endif
