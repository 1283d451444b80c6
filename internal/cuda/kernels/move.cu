// Gather and scatter of the states of a whole batch: one launch moves all states
// of all lanes. The grid is (parts of a row, lanes, moves). And wipe, which clears
// all rows that were left; its grid is (parts of an area, areas).
//
// A row of a store is `runs` runs of `run_bytes`, one after the other; in the
// batched tensor run x of lane j starts at (x * lanes + j) * run_bytes. Threads
// walk along the row, so that neighbours touch neighbouring bytes on both sides.
// A unit never crosses a run: the host chooses it so that it divides everything.
//
// The same source is compiled for the host (on_host.h), where tests run it.
#include "move.h"

#ifndef STATEFUL_ON_HOST
#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void

template <class T>
DEVICE T *at(u64 address) {
  return reinterpret_cast<T *>(address);
}

// The conversions of the hardware: to nearest even, subnormals kept.
DEVICE u32 hardware_wide(u32 h) {
  u32 bits;
  asm("{ .reg .b16 t; cvt.u16.u32 t, %1; cvt.f32.f16 %0, t; }" : "=r"(bits) : "r"(h));
  return bits;
}

DEVICE u32 hardware_narrow(u32 bits) {
  u32 h;
  asm("{ .reg .b16 t; cvt.rn.f16.f32 t, %1; cvt.u32.u16 %0, t; }"
      : "=r"(h) : "f"(__uint_as_float(bits)));
  return h;
}
#endif

// Where a lane meets its row. For the lane's side, `stride` units lie between the
// beginnings of two runs.
struct meeting {
  u64 row, lane;
  u32 units, run_units;
  u64 stride;
};

DEVICE meeting meet(const move &m, u64 row, u32 lane) {
  meeting k;
  k.run_units = (u32)(m.run_bytes / m.unit);
  k.units = k.run_units * m.runs;
  k.stride = (u64)k.run_units * m.lanes;
  k.row = row;
  k.lane = m.tensor + lane * m.run_bytes;
  return k;
}

DEVICE u64 row_at(const move &m, place p) {
  return at<const u64>(m.chunks)[p.chunk] + (u64)(u32)p.index * m.row_bytes;
}

// The place of the row's unit i in the lane.
DEVICE u64 in_lane(const meeting &k, u32 i) {
  if (k.units == k.run_units) return i;
  u32 run = i / k.run_units; // of 32 bits: a division of 64 would cost more than the copy
  return (u64)run * k.stride + (i - run * k.run_units);
}

#define EACH_UNIT(i, k)                                           \
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < k.units; \
       i += gridDim.x * blockDim.x)

// ---- bytes as they are ----

template <class unit>
DEVICE void to_lane(const meeting &k) {
  const unit *row = at<const unit>(k.row);
  unit *lane = at<unit>(k.lane);
  EACH_UNIT(i, k) lane[in_lane(k, i)] = row[i];
}

template <class unit>
DEVICE void to_row(const meeting &k) {
  unit *row = at<unit>(k.row);
  const unit *lane = at<const unit>(k.lane);
  EACH_UNIT(i, k) row[i] = lane[in_lane(k, i)];
}

// ---- FP32 in the tensor, FP16 in the store ----

// narrow clamps what is finite and too large to the largest finite FP16.
DEVICE u32 narrow(u32 bits, u32 &clamped) {
  u32 h = hardware_narrow(bits);
  if ((h & 0x7fff) != 0x7c00 || (bits & 0x7fffffff) == 0x7f800000) return h;
  clamped++;
  return (h & 0x8000) | 0x7bff;
}

DEVICE void widen_to_lane(const move &m, const meeting &k) {
  if (m.unit == 16) {
    const uint2 *row = at<const uint2>(k.row);
    uint4 *lane = at<uint4>(k.lane);
    EACH_UNIT(i, k) {
      uint2 h = row[i];
      uint4 f;
      f.x = hardware_wide(h.x & 0xffff);
      f.y = hardware_wide(h.x >> 16);
      f.z = hardware_wide(h.y & 0xffff);
      f.w = hardware_wide(h.y >> 16);
      lane[in_lane(k, i)] = f;
    }
    return;
  }
  const unsigned short *row = at<const unsigned short>(k.row);
  u32 *lane = at<u32>(k.lane);
  EACH_UNIT(i, k) lane[in_lane(k, i)] = hardware_wide(row[i]);
}

DEVICE u32 narrow_to_row(const move &m, const meeting &k) {
  u32 clamped = 0;
  if (m.unit == 16) {
    uint2 *row = at<uint2>(k.row);
    const uint4 *lane = at<const uint4>(k.lane);
    EACH_UNIT(i, k) {
      uint4 f = lane[in_lane(k, i)];
      uint2 h;
      h.x = narrow(f.x, clamped);
      h.x |= narrow(f.y, clamped) << 16;
      h.y = narrow(f.z, clamped);
      h.y |= narrow(f.w, clamped) << 16;
      row[i] = h;
    }
    return clamped;
  }
  unsigned short *row = at<unsigned short>(k.row);
  const u32 *lane = at<const u32>(k.lane);
  EACH_UNIT(i, k) row[i] = (unsigned short)narrow(lane[in_lane(k, i)], clamped);
  return clamped;
}

// ---- the kernels ----

KERNEL gather(u64 plan) {
  const move &m = at<const move>(plan)[blockIdx.z];
  u32 lane = blockIdx.y;
  if (lane >= m.lanes) return;
  u64 row = m.initial;
  if (lane < m.given) {
    place p = at<const place>(m.places)[lane];
    if (p.chunk >= 0) row = row_at(m, p);
  }
  meeting k = meet(m, row, lane);
  if (m.half) {
    widen_to_lane(m, k);
    return;
  }
  switch (m.unit) {
    case 16: to_lane<uint4>(k); break;
    case 8: to_lane<uint2>(k); break;
    case 4: to_lane<u32>(k); break;
    case 2: to_lane<unsigned short>(k); break;
    default: to_lane<unsigned char>(k);
  }
}

KERNEL scatter(u64 plan) {
  move &m = at<move>(plan)[blockIdx.z];
  u32 lane = blockIdx.y;
  if (lane >= m.given) return;
  place p = at<const place>(m.places)[lane];
  if (p.chunk < 0) return;
  meeting k = meet(m, row_at(m, p), lane);
  if (m.half) {
    u32 clamped = narrow_to_row(m, k);
    if (clamped != 0) atomicAdd(&m.clamped, (u64)clamped);
    return;
  }
  switch (m.unit) {
    case 16: to_row<uint4>(k); break;
    case 8: to_row<uint2>(k); break;
    case 4: to_row<u32>(k); break;
    case 2: to_row<unsigned short>(k); break;
    default: to_row<unsigned char>(k);
  }
}

template <class unit>
DEVICE void zero(const area &a, unit nothing) {
  unit *to = at<unit>(a.address);
  u32 units = (u32)(a.bytes / sizeof(unit));
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < units; i += gridDim.x * blockDim.x)
    to[i] = nothing;
}

KERNEL wipe(u64 areas) {
  area a = at<const area>(areas)[blockIdx.y];
  if (a.bytes == 0) return;
  if ((a.address | a.bytes) % 16 == 0)
    zero(a, uint4{0, 0, 0, 0});
  else
    zero(a, (unsigned char)0);
}
