#include "implicit.h"

#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <string.h>

// Functions of the ABI that our library does not use. A new state is current after StateUpdate.
typedef struct TRITONBACKEND_State TRITONBACKEND_State;
TRITONSERVER_Error *TRITONBACKEND_StateNew(TRITONBACKEND_State **state, TRITONBACKEND_Request *request, const char *name,
                                           TRITONSERVER_DataType datatype, const int64_t *shape, uint32_t dims_count);
TRITONSERVER_Error *TRITONBACKEND_StateBuffer(TRITONBACKEND_State *state, void **buffer, uint64_t buffer_byte_size,
                                              TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);
TRITONSERVER_Error *TRITONBACKEND_StateUpdate(TRITONBACKEND_State *state);

enum { MAX_TEXT = 512 };

// check_buffer fails unless bytes are those of one lane, in memory of the host.
static TRITONSERVER_Error *check_buffer(const inplace_tensor *tensor, uint64_t bytes, TRITONSERVER_MemoryType memory) {
  if (bytes == tensor->bytes && memory != TRITONSERVER_MEMORY_GPU) {
    return NULL;
  }
  char text[MAX_TEXT];
  snprintf(text, sizeof text, "%s has a buffer of %zu bytes in memory of type %d: want %zu bytes of the host", tensor->name,
           (size_t)bytes, (int)memory, tensor->bytes);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
}

// input_buffer finds the value of a request for a tensor. It is one buffer, as the load generator sends it.
static TRITONSERVER_Error *input_buffer(TRITONBACKEND_Request *request, const inplace_tensor *tensor, const void **buffer) {
  TRITONBACKEND_Input *input;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestInput(request, tensor->name, &input);
  if (error != NULL) {
    return error;
  }
  uint64_t bytes;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  error = TRITONBACKEND_InputBuffer(input, 0, buffer, &bytes, &memory, &memory_id);
  return error != NULL ? error : check_buffer(tensor, bytes, memory);
}

// gather copies tensor i of all requests. A batch of one request is read from where it is, as Triton's own helper for
// backends does.
static TRITONSERVER_Error *gather(inplace *model, int i, const inplace_tensor *tensor, TRITONBACKEND_Request **requests,
                                  int count) {
  const void *buffer;
  for (int lane = 0; lane < count; lane++) {
    TRITONSERVER_Error *error = input_buffer(requests[lane], tensor, &buffer);
    if (error != NULL) {
      return error;
    }
    if (count > 1) {
      memcpy(tensor->memory + (size_t)lane * tensor->bytes, buffer, tensor->bytes);
    }
  }
  const char *failure = count > 1 ? NULL : inplace_read_from(model, i, buffer);
  return failure == NULL ? NULL : TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, failure);
}

TRITONSERVER_Error *implicit_run(inplace *model, TRITONBACKEND_Request **requests, int count) {
  for (int i = 0; i < inplace_count(model); i++) {
    inplace_tensor tensor;
    if (!inplace_input(model, i, count, &tensor)) {
      continue;
    }
    TRITONSERVER_Error *error = gather(model, i, &tensor, requests, count);
    if (error != NULL) {
      return error;
    }
  }
  const char *failure = inplace_run(model, count, 0);
  return failure == NULL ? NULL : TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, failure);
}

static TRITONSERVER_Error *keep(TRITONBACKEND_Request *request, const inplace_tensor *tensor, int lane) {
  // The benchmark's models have states of float32 alone.
  TRITONSERVER_DataType type =
      tensor->type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT ? TRITONSERVER_TYPE_FP32 : TRITONSERVER_TYPE_INVALID;
  TRITONBACKEND_State *state;
  TRITONSERVER_Error *error = TRITONBACKEND_StateNew(&state, request, tensor->name, type, tensor->shape, tensor->dims);
  if (error != NULL) {
    return error;
  }
  void *buffer;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  error = TRITONBACKEND_StateBuffer(state, &buffer, tensor->bytes, &memory, &memory_id);
  if (error == NULL) {
    error = check_buffer(tensor, tensor->bytes, memory);
  }
  if (error != NULL) {
    return error;
  }
  memcpy(buffer, tensor->memory + (size_t)lane * tensor->bytes, tensor->bytes);
  return TRITONBACKEND_StateUpdate(state);
}

TRITONSERVER_Error *implicit_keep(const inplace *model, TRITONBACKEND_Request *request, int lane, int lanes) {
  TRITONSERVER_Error *error = NULL;
  for (int i = 0; i < inplace_count(model) && error == NULL; i++) {
    inplace_tensor tensor;
    if (inplace_output(model, i, lanes, &tensor) && tensor.state) {
      error = keep(request, &tensor, lane);
    }
  }
  return error;
}

const char *implicit_output(const inplace *model, const char *name, int lane, int lanes) {
  for (int i = 0; i < inplace_count(model); i++) {
    inplace_tensor tensor;
    if (inplace_output(model, i, lanes, &tensor) && strcmp(tensor.name, name) == 0) {
      return tensor.memory + (size_t)lane * tensor.bytes;
    }
  }
  return NULL;
}
