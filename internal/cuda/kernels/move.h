// What the host tells the kernels about one state: a statebuffer.Transfer. The host
// writes it field by field (movelist.go in internal/devicememory has the same struct).
#ifndef STATEFUL_MOVE_H
#define STATEFUL_MOVE_H

typedef unsigned long long u64;
typedef unsigned int u32;

// A slot of a store: a statebuffer.Slot.
struct slot {
  int chunk; // below zero: none as a destination, the initial value as a source
  int index;
};

// Addresses are numbers, because not only the device reads this.
struct move {
  u64 tensor;    // the batched tensor
  u64 initial;   // the values that a source below zero means
  u64 chunks;    // a table of u64: where each chunk begins
  u64 slots;    // a table of struct slot: that of each lane
  u64 piece_bytes; // bytes of a piece in the tensor
  u64 slot_bytes; // bytes of a slot in the store
  u64 clamped;   // out: elements that were too large for FP16
  u32 pieces;      // of a lane
  u32 lanes;     // of the tensor
  u32 given;     // lanes that have a slot; the others are padding
  u32 unit;      // bytes of the tensor in one access: 16, 8, 4, 2 or 1
  u32 half;      // 1: FP32 in the tensor, FP16 in the store
  u32 reserved;
};

// Memory to be overwritten with zeros.
struct span {
  u64 address, bytes;
};

static_assert(sizeof(slot) == 8 && sizeof(move) == 80 && sizeof(span) == 16,
              "the host writes these by their size");

#endif
