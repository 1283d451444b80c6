// ONNX Runtime on tensors that are in place already: what a step costs a server if nothing is gathered, stored or kept
// apart.
#ifndef BENCH_INPLACE_H
#define BENCH_INPLACE_H

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

#endif
