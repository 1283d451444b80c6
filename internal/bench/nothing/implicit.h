// Triton's implicit state with as little as a backend has to do for it: it copies the inputs of all requests of a batch, of
// which the states are some, into tensors of the batch, runs ONNX Runtime, and copies new states into the buffers that Triton
// gives. All else, tensors, values and memory, stays from run to run.
#ifndef BENCH_IMPLICIT_H
#define BENCH_IMPLICIT_H

#include "../../triton/triton.h"
#include "inplace.h"

// Runs a batch. An error is of all requests.
TRITONSERVER_Error *implicit_run(inplace *model, TRITONBACKEND_Request **requests, int count);

// Hands Triton the new states of the request that was in a lane of the last run.
TRITONSERVER_Error *implicit_keep(const inplace *model, TRITONBACKEND_Request *request, int lane, int lanes);

// Finds what the last run wrote for a lane as the output of a name; NULL if the model has no such output.
const char *implicit_output(const inplace *model, const char *name, int lane, int lanes);

#endif
