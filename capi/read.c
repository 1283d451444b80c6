#include "read.h"

#include "trace.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

// ---- inputs ----

// join appends a buffer to the joined bytes. That may move them, so inputs get
// their addresses only when all are read.
static bool join(batch *b, const void *data, uint64_t bytes) {
  uint64_t need = b->joined_bytes + bytes;
  if (need > b->joined_capacity) {
    uint64_t capacity = need + need / 2;
    char *larger = realloc(b->joined, capacity);
    if (larger == NULL) return false;
    b->joined = larger;
    b->joined_capacity = capacity;
  }
  if (bytes != 0) memcpy(b->joined + b->joined_bytes, data, bytes);
  b->joined_bytes = need;
  return true;
}

static void locate_joined(batch *b) {
  size_t count = (size_t)b->count * b->inputs.count;
  for (size_t i = 0; i < count; i++) {
    batch_input *input = &b->request_inputs[i];
    if (input->is_joined) input->data = b->joined + input->joined_at;
  }
}

// read_buffers uses the memory of a single buffer as it is, and joins several.
static batch_reading read_buffers(batch *b, batch_request *req, TRITONBACKEND_Input *from,
                                  uint32_t buffers, batch_input *input) {
  input->is_joined = buffers > 1;
  input->joined_at = b->joined_bytes;
  for (uint32_t i = 0; i < buffers; i++) {
    const void *data = NULL;
    uint64_t bytes = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    req->refusal = triton.TRITONBACKEND_InputBuffer(from, i, &data, &bytes, &memory, &memory_id);
    if (req->refusal != NULL) return BATCH_REFUSED;
    input->on_device = memory == TRITONSERVER_MEMORY_GPU;
    if (input->on_device && (!b->takes_device || input->is_joined)) return BATCH_ON_DEVICE;
    if (input->is_joined && !join(b, data, bytes)) return BATCH_NO_MEMORY;
    input->data = data;
    input->bytes += bytes;
  }
  return BATCH_READ;
}

static batch_reading read_input(batch *b, batch_request *req, const char *name, batch_input *input) {
  TRITONBACKEND_Input *from = NULL;
  TRITONSERVER_Error *absent = triton.TRITONBACKEND_RequestInput(req->request, name, &from);
  if (absent != NULL) { // whether it may be, is not for this side to know
    triton.TRITONSERVER_ErrorDelete(absent);
    return BATCH_READ;
  }
  input->present = true;
  uint32_t buffers = 0;
  req->refusal = triton.TRITONBACKEND_InputProperties(from, NULL, &input->type, &input->shape,
                                                      &input->rank, NULL, &buffers);
  if (req->refusal != NULL) return BATCH_REFUSED;
  return read_buffers(b, req, from, buffers, input);
}

static batch_reading read_inputs(batch *b, batch_request *req, batch_input *inputs) {
  for (uint32_t i = 0; i < b->inputs.count; i++) {
    req->faulty_input = i;
    batch_reading reading = read_input(b, req, b->inputs.names[i], &inputs[i]);
    if (reading != BATCH_READ) return reading;
  }
  return BATCH_READ;
}

// ---- everything else ----

static TRITONSERVER_Error *read_number(batch_request *req) {
  return triton.TRITONBACKEND_RequestCorrelationId(req->request, &req->number);
}

static TRITONSERVER_Error *read_string(batch_request *req) {
  return triton.TRITONBACKEND_RequestCorrelationIdString(req->request, &req->string);
}

// read_id asks for the kind of id that the model is configured for, and for the
// other kind when the client sent that.
static TRITONSERVER_Error *read_id(const batch *b, batch_request *req) {
  TRITONSERVER_Error *other_kind = b->string_ids ? read_string(req) : read_number(req);
  if (other_kind == NULL) return NULL;
  triton.TRITONSERVER_ErrorDelete(other_kind);
  return b->string_ids ? read_number(req) : read_string(req);
}

// read_token notes where Triton keeps a state of the request's sequence: no other
// sequence that it serves has it there. Triton gives its states to a request as
// inputs. We never write them, so they stay where they are until the next START.
static TRITONSERVER_Error *read_token(const batch *b, batch_request *req) {
  if (b->token_input == NULL) return NULL;
  TRITONBACKEND_Input *state = NULL;
  const void *data = NULL;
  uint64_t bytes = 0;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  TRITONSERVER_Error *absent =
      triton.TRITONBACKEND_RequestInput(req->request, b->token_input, &state);
  if (absent != NULL) { // the ID alone counts then
    triton.TRITONSERVER_ErrorDelete(absent);
    return NULL;
  }
  TRITONSERVER_Error *failed =
      triton.TRITONBACKEND_InputBuffer(state, 0, &data, &bytes, &memory, &memory_id);
  req->token = (uintptr_t)data;
  return failed;
}

// is_ours reports whether a parameter has a name of the backend's. A name that is forwarded
// from a header has dashes, and capital letters as the client's library likes them.
static bool is_ours(const char *name) {
  static const char prefix[] = "stateful";
  size_t length = sizeof prefix - 1;
  return strncasecmp(name, prefix, length) == 0 && (name[length] == '_' || name[length] == '-');
}

// note_parameter appends a parameter to those of the batch.
static TRITONSERVER_Error *note_parameter(batch *b, batch_parameter parameter) {
  if (b->parameter_count == b->parameter_capacity) {
    uint32_t capacity = 2 * b->parameter_capacity + 8;
    batch_parameter *larger = realloc(b->parameters, capacity * sizeof *larger);
    if (larger == NULL)
      return error_new(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for the request's parameters");
    b->parameters = larger;
    b->parameter_capacity = capacity;
  }
  b->parameters[b->parameter_count++] = parameter;
  return NULL;
}

static TRITONSERVER_Error *read_parameters(batch *b, batch_request *req) {
  req->first_parameter = b->parameter_count;
  if (!b->takes_parameters) return NULL;
  uint32_t count = 0;
  TRITONSERVER_Error *failed = triton.TRITONBACKEND_RequestParameterCount(req->request, &count);
  for (uint32_t i = 0; i < count && failed == NULL; i++) {
    batch_parameter p = {0};
    failed = triton.TRITONBACKEND_RequestParameter(req->request, i, &p.name, &p.type, &p.value);
    if (failed == NULL && is_ours(p.name)) failed = note_parameter(b, p);
  }
  req->parameter_count = b->parameter_count - req->first_parameter;
  return failed;
}

static TRITONSERVER_Error *read_cancelled(batch_request *req) {
  if (triton.TRITONBACKEND_RequestIsCancelled == NULL) return NULL;
  return triton.TRITONBACKEND_RequestIsCancelled(req->request, &req->cancelled);
}

// read_timeout reads the time-out where requests can wait for others or for the state store.
static TRITONSERVER_Error *read_timeout(const batch *b, batch_request *req) {
  req->timeout_us = 0;
  if (!b->takes_timeouts || triton.TRITONBACKEND_InferenceRequestTimeoutMicroseconds == NULL)
    return NULL;
  return triton.TRITONBACKEND_InferenceRequestTimeoutMicroseconds(req->request, &req->timeout_us);
}

// read_wanted timings the outputs that the client wants. Triton lists all outputs
// of the configuration for a client that named none.
static TRITONSERVER_Error *read_wanted(const batch *b, const batch_request *req, bool *wanted) {
  memset(wanted, 0, b->outputs.count * sizeof *wanted);
  uint32_t count = 0;
  TRITONSERVER_Error *failed = triton.TRITONBACKEND_RequestOutputCount(req->request, &count);
  for (uint32_t i = 0; i < count && failed == NULL; i++) {
    const char *name = "";
    failed = triton.TRITONBACKEND_RequestOutputName(req->request, i, &name);
    for (uint32_t k = 0; k < b->outputs.count; k++)
      if (strcmp(name, b->outputs.names[k]) == 0) wanted[k] = true;
  }
  return failed;
}

static batch_reading read_request(batch *b, uint32_t r) {
  batch_request *req = &b->requests[r];
  batch_input *inputs = &b->request_inputs[(size_t)r * b->inputs.count];
  memset(inputs, 0, b->inputs.count * sizeof *inputs);

  trace_find(b, req);
  // Flags and id come first: an END counts also where the rest is unreadable.
  req->refusal = triton.TRITONBACKEND_RequestFlags(req->request, &req->flags);
  if (req->refusal == NULL) req->refusal = read_id(b, req);
  if (req->refusal == NULL) req->refusal = read_token(b, req);
  if (req->refusal == NULL) req->refusal = read_parameters(b, req);
  if (req->refusal == NULL) req->refusal = read_cancelled(req);
  if (req->refusal == NULL) req->refusal = read_timeout(b, req);
  if (req->refusal == NULL)
    req->refusal = read_wanted(b, req, &b->request_wanted[(size_t)r * b->outputs.count]);
  if (req->refusal != NULL) return BATCH_REFUSED;
  return read_inputs(b, req, inputs);
}

void read_requests(batch *b) {
  b->joined_bytes = 0;
  b->parameter_count = 0;
  for (uint32_t r = 0; r < b->count; r++) b->requests[r].reading = read_request(b, r);
  locate_joined(b);
}

enum { JOINED_KEPT = 16 << 20 };

void read_trim(batch *b) {
  if (b->joined_capacity <= JOINED_KEPT) return;
  free(b->joined);
  b->joined = NULL;
  b->joined_capacity = 0;
}
