// Requests and their inputs.
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ASK opens a function that reads a request: that must not have been released.
#define ASK(request)                                                     \
  do {                                                                   \
    if ((request)->released) fake_violation("a released request is read"); \
    CALL();                                                              \
  } while (0)

static TRITONSERVER_Error *refuse(const char *text) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
}

TRITONSERVER_Error *TRITONBACKEND_RequestFlags(TRITONBACKEND_Request *request, uint32_t *flags) {
  ASK(request);
  *flags = request->flags;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request *request,
                                                       uint64_t *id) {
  ASK(request);
  if (request->string_id != NULL) return refuse("correlation ID is not an unsigned integer");
  *id = request->number;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request *request,
                                                             const char **id) {
  ASK(request);
  if (request->string_id == NULL) return refuse("correlation ID is not a string");
  *id = request->string_id;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request *request,
                                                     bool *is_cancelled) {
  ASK(request);
  *is_cancelled = request->cancelled;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request *request, uint64_t *timeout) {
  ASK(request);
  *timeout = request->timeout_us;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request *request,
                                                        uint32_t *count) {
  ASK(request);
  *count = request->parameter_count;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameter(TRITONBACKEND_Request *request, uint32_t index,
                                                   const char **key,
                                                   TRITONSERVER_ParameterType *type,
                                                   const void **value) {
  ASK(request);
  if (index >= request->parameter_count) return refuse("parameter index out of range");
  const fake_parameter *p = &request->parameters[index];
  *key = p->name;
  *type = p->type;
  *value = p->type == TRITONSERVER_PARAMETER_STRING ? (const void *)p->text : &p->number;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInput(TRITONBACKEND_Request *request, const char *name,
                                               TRITONBACKEND_Input **input) {
  ASK(request);
  for (uint32_t i = 0; i < request->input_count; i++) {
    if (strcmp(request->inputs[i].name, name) != 0) continue;
    *input = &request->inputs[i];
    return NULL;
  }
  return refuse("unknown request input name");
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *request,
                                                     uint32_t *count) {
  ASK(request);
  *count = request->wanted_count;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *request, uint32_t index,
                                                    const char **name) {
  ASK(request);
  *name = request->wanted[index];
  return NULL;
}

// A released request's data is overwritten, as if Triton had used the memory
// again.
TRITONSERVER_Error *TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *request, uint32_t flags) {
  if (flags != TRITONSERVER_REQUEST_RELEASE_ALL) fake_violation("a request is not wholly released");
  if (request->released++ > 0) fake_violation("a request is released twice");
  for (uint32_t i = 0; i < request->input_count && !fake_keeps_data(); i++)
    for (uint32_t k = 0; k < request->inputs[i].buffer_count; k++)
      memset(request->inputs[i].buffers[k].data, 0xDD, request->inputs[i].buffers[k].bytes);
  for (uint32_t i = 0; i < request->parameter_count && !fake_keeps_data(); i++)
    memset(request->parameters[i].text, 0xDD, strlen(request->parameters[i].text));
  CALL();
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InputProperties(TRITONBACKEND_Input *input, const char **name,
                                                  TRITONSERVER_DataType *type,
                                                  const int64_t **shape, uint32_t *rank,
                                                  uint64_t *byte_size, uint32_t *buffer_count) {
  ASK(input->request);
  if (name != NULL) *name = input->name;
  if (type != NULL) *type = input->type;
  if (shape != NULL) *shape = input->shape;
  if (rank != NULL) *rank = input->rank;
  if (byte_size != NULL) {
    *byte_size = 0;
    for (uint32_t i = 0; i < input->buffer_count; i++) *byte_size += input->buffers[i].bytes;
  }
  if (buffer_count != NULL) *buffer_count = input->buffer_count;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *input, uint32_t index,
                                              const void **buffer, uint64_t *bytes,
                                              TRITONSERVER_MemoryType *memory_type,
                                              int64_t *memory_type_id) {
  ASK(input->request);
  *buffer = input->buffers[index].data;
  *bytes = input->buffers[index].bytes;
  *memory_type = input->memory;
  *memory_type_id = 0;
  return NULL;
}
