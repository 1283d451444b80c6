// Gather and scatter of the states of a whole batch: one launch moves all states
// of all lanes. The grid is (parts of a slot, lanes, moves). And wipe, which clears
// all slots that sequences left; its grid is (parts of a span, spans).
//
// A slot of a store is `pieces` pieces of `piece_bytes`, one after the other; in the
// batched tensor piece x of lane j starts at (x * lanes + j) * piece_bytes. Threads
// walk along the slot, so that neighbours touch neighbouring bytes on both sides.
// A unit never crosses a piece: the host chooses it so that it divides everything.
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

// A copy between a lane and what is stored for it. On the lane's side, two pieces
// begin `stride` units apart.
struct lane_copy {
  u64 stored, lane;
  u32 units, piece_units;
  u64 stride;
};

DEVICE lane_copy lane_copy_of(const move &m, u64 stored, u32 lane) {
  lane_copy k;
  k.piece_units = (u32)(m.piece_bytes / m.unit);
  k.units = k.piece_units * m.pieces;
  k.stride = (u64)k.piece_units * m.lanes;
  k.stored = stored;
  k.lane = m.tensor + lane * m.piece_bytes;
  return k;
}

DEVICE u64 stored_at(const move &m, slot p) {
  return at<const u64>(m.chunks)[p.chunk] + (u64)(u32)p.index * m.slot_bytes;
}

// Where in the lane unit i of the slot is.
DEVICE u64 in_lane(const lane_copy &k, u32 i) {
  if (k.units == k.piece_units) return i;
  u32 piece = i / k.piece_units; // of 32 bits: a division of 64 would cost more than the copy
  return (u64)piece * k.stride + (i - piece * k.piece_units);
}

#define EACH_UNIT(i, k)                                           \
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < k.units; \
       i += gridDim.x * blockDim.x)

// ---- bytes as they are ----

template <class unit>
DEVICE void to_lane(const lane_copy &k) {
  const unit *stored = at<const unit>(k.stored);
  unit *lane = at<unit>(k.lane);
  EACH_UNIT(i, k) lane[in_lane(k, i)] = stored[i];
}

template <class unit>
DEVICE void to_slot(const lane_copy &k) {
  unit *stored = at<unit>(k.stored);
  const unit *lane = at<const unit>(k.lane);
  EACH_UNIT(i, k) stored[i] = lane[in_lane(k, i)];
}

// ---- FP32 in the tensor, FP16 in the store ----

// narrow clamps what is finite and too large to the largest finite FP16.
DEVICE u32 narrow(u32 bits, u32 &clamped) {
  u32 h = hardware_narrow(bits);
  if ((h & 0x7fff) != 0x7c00 || (bits & 0x7fffffff) == 0x7f800000) return h;
  clamped++;
  return (h & 0x8000) | 0x7bff;
}

DEVICE void widen_to_lane(const move &m, const lane_copy &k) {
  if (m.unit == 16) {
    const uint2 *stored = at<const uint2>(k.stored);
    uint4 *lane = at<uint4>(k.lane);
    EACH_UNIT(i, k) {
      uint2 h = stored[i];
      uint4 f;
      f.x = hardware_wide(h.x & 0xffff);
      f.y = hardware_wide(h.x >> 16);
      f.z = hardware_wide(h.y & 0xffff);
      f.w = hardware_wide(h.y >> 16);
      lane[in_lane(k, i)] = f;
    }
    return;
  }
  const unsigned short *stored = at<const unsigned short>(k.stored);
  u32 *lane = at<u32>(k.lane);
  EACH_UNIT(i, k) lane[in_lane(k, i)] = hardware_wide(stored[i]);
}

DEVICE u32 narrow_to_slot(const move &m, const lane_copy &k) {
  u32 clamped = 0;
  if (m.unit == 16) {
    uint2 *stored = at<uint2>(k.stored);
    const uint4 *lane = at<const uint4>(k.lane);
    EACH_UNIT(i, k) {
      uint4 f = lane[in_lane(k, i)];
      uint2 h;
      h.x = narrow(f.x, clamped);
      h.x |= narrow(f.y, clamped) << 16;
      h.y = narrow(f.z, clamped);
      h.y |= narrow(f.w, clamped) << 16;
      stored[i] = h;
    }
    return clamped;
  }
  unsigned short *stored = at<unsigned short>(k.stored);
  const u32 *lane = at<const u32>(k.lane);
  EACH_UNIT(i, k) stored[i] = (unsigned short)narrow(lane[in_lane(k, i)], clamped);
  return clamped;
}

// ---- the kernels ----

KERNEL gather(u64 moves) {
  const move &m = at<const move>(moves)[blockIdx.z];
  u32 lane = blockIdx.y;
  if (lane >= m.lanes) return;
  u64 stored = m.initial;
  if (lane < m.given) {
    slot p = at<const slot>(m.slots)[lane];
    if (p.chunk >= 0) stored = stored_at(m, p);
  }
  lane_copy k = lane_copy_of(m, stored, lane);
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

KERNEL scatter(u64 moves) {
  move &m = at<move>(moves)[blockIdx.z];
  u32 lane = blockIdx.y;
  if (lane >= m.given) return;
  slot p = at<const slot>(m.slots)[lane];
  if (p.chunk < 0) return;
  lane_copy k = lane_copy_of(m, stored_at(m, p), lane);
  if (m.half) {
    u32 clamped = narrow_to_slot(m, k);
    if (clamped != 0) atomicAdd(&m.clamped, (u64)clamped);
    return;
  }
  switch (m.unit) {
    case 16: to_slot<uint4>(k); break;
    case 8: to_slot<uint2>(k); break;
    case 4: to_slot<u32>(k); break;
    case 2: to_slot<unsigned short>(k); break;
    default: to_slot<unsigned char>(k);
  }
}

template <class unit>
DEVICE void zero(const span &a, unit nothing) {
  unit *to = at<unit>(a.address);
  u32 units = (u32)(a.bytes / sizeof(unit));
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < units; i += gridDim.x * blockDim.x)
    to[i] = nothing;
}

KERNEL wipe(u64 spans) {
  span a = at<const span>(spans)[blockIdx.y];
  if (a.bytes == 0) return;
  if ((a.address | a.bytes) % 16 == 0)
    zero(a, uint4{0, 0, 0, 0});
  else
    zero(a, (unsigned char)0);
}
