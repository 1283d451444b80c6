// What the host tells the kernels of one movement: a statebuffer.Transfer. The
// host writes it field by field (plan.go in internal/devicememory has the
// same struct).
#ifndef STATEFUL_MOVE_H
#define STATEFUL_MOVE_H

typedef unsigned long long u64;
typedef unsigned int u32;

// A row of a store.
struct place {
  int chunk; // below zero: none as a destination, the initial value as a source
  int index;
};

// Addresses are numbers, because not only the device reads this.
struct move {
  u64 tensor;    // the batched tensor
  u64 initial;   // the row that a source below zero stands for
  u64 chunks;    // a table of u64: where each chunk begins
  u64 places;    // a table of struct place: the row of each lane
  u64 run_bytes; // bytes of a run in the tensor
  u64 row_bytes; // bytes of a row in the store
  u64 clamped;   // out: elements that were too large for FP16
  u32 runs;      // of a lane
  u32 lanes;     // of the tensor
  u32 given;     // lanes that have a row; the others are padding
  u32 unit;      // bytes of the tensor in one access: 16, 8, 4, 2 or 1
  u32 half;      // 1: FP32 in the tensor, FP16 in the store
  u32 reserved;
};

// A piece of memory to be overwritten with zeros.
struct area {
  u64 address, bytes;
};

static_assert(sizeof(place) == 8 && sizeof(move) == 80 && sizeof(area) == 16,
              "the host writes these by their size");

#endif
