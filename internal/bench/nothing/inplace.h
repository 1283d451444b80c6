// ONNX Runtime on tensors that are in place already: what a step costs a server if nothing is gathered, stored or kept
// apart.
#ifndef BENCH_INPLACE_H
#define BENCH_INPLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct inplace inplace;

// Reads PATH and makes a session. NULL and a text in error, which has room for size bytes, if that fails.
//
// The file, which the benchmark writes, has a line for each of: the library of ONNX Runtime, the model, the greatest
// number of sequences, and then for each tensor one of
//
//     input  NAME          BYTES-OF-AN-ELEMENT TYPE DIM DIM ...
//     output NAME          BYTES-OF-AN-ELEMENT TYPE DIM DIM ...
//     state  INPUT OUTPUT  BYTES-OF-AN-ELEMENT TYPE DIM DIM ...
//
// where TYPE is a number, an ONNXTensorElementDataType, and a DIM of -1 the batch.
inplace *inplace_open(const char *path, char *error, int size);

// Runs one step of the number of lanes, of as many live sequences as there are. NULL, or what went wrong, which stays
// valid until the next call. One thread at a time.
const char *inplace_run(inplace *model, int lanes, int live);

// What follows is for runs on real values, in models that have the batch on the first axis of every tensor, with 0 for the
// live sequences: then a run reads a state at one place and writes it to another.

// One tensor that a run reads or writes, state or not.
typedef struct {
  const char *name; // that of the new state, for what a run writes
  int type; // an ONNXTensorElementDataType
  const int64_t *shape; // of one lane
  uint32_t dims;
  size_t bytes; // of one lane
  char *memory; // of all lanes
  bool state;
} inplace_tensor;

// The number of tensors of the model; a state counts once.
int inplace_count(const inplace *model);

// What the next run of the number of lanes reads as tensor i; false for an output.
bool inplace_input(const inplace *model, int i, int lanes, inplace_tensor *tensor);

// What the last run of the number of lanes wrote as tensor i; false for an input.
bool inplace_output(const inplace *model, int i, int lanes, inplace_tensor *tensor);

// Lets the next run, of one lane, read tensor i from other memory, which must stay as it is until then. NULL, or what went
// wrong, as inplace_run.
const char *inplace_read_from(inplace *model, int i, const void *memory);

#endif
