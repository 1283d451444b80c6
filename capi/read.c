#include "read.h"

#include <stdlib.h>
#include <string.h>

// ---- inputs ----

// join appends a buffer to the joined bytes. That may move them, so inputs are
// told their place only when all are read.
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

static void place_joined(batch *b) {
  size_t count = (size_t)b->count * b->inputs.count;
  for (size_t i = 0; i < count; i++) {
    batch_input *input = &b->row_inputs[i];
    if (input->is_joined) input->data = b->joined + input->joined_at;
  }
}

// read_buffers uses the memory of a single buffer as it is, and joins several.
static batch_reading read_buffers(batch *b, batch_row *row, TRITONBACKEND_Input *from,
                                  uint32_t buffers, batch_input *input) {
  input->is_joined = buffers > 1;
  input->joined_at = b->joined_bytes;
  for (uint32_t i = 0; i < buffers; i++) {
    const void *data = NULL;
    uint64_t bytes = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t memory_id = 0;
    row->refusal = triton.TRITONBACKEND_InputBuffer(from, i, &data, &bytes, &memory, &memory_id);
    if (row->refusal != NULL) return BATCH_REFUSED;
    input->on_device = memory == TRITONSERVER_MEMORY_GPU;
    if (input->on_device && (!b->takes_device || input->is_joined)) return BATCH_ON_DEVICE;
    if (input->is_joined && !join(b, data, bytes)) return BATCH_NO_MEMORY;
    input->data = data;
    input->bytes += bytes;
  }
  return BATCH_READ;
}

static batch_reading read_input(batch *b, batch_row *row, const char *name, batch_input *input) {
  TRITONBACKEND_Input *from = NULL;
  TRITONSERVER_Error *absent = triton.TRITONBACKEND_RequestInput(row->request, name, &from);
  if (absent != NULL) { // whether it may be, is not for this side to know
    triton.TRITONSERVER_ErrorDelete(absent);
    return BATCH_READ;
  }
  input->present = true;
  uint32_t buffers = 0;
  row->refusal = triton.TRITONBACKEND_InputProperties(from, NULL, &input->type, &input->shape,
                                                      &input->rank, NULL, &buffers);
  if (row->refusal != NULL) return BATCH_REFUSED;
  return read_buffers(b, row, from, buffers, input);
}

static batch_reading read_inputs(batch *b, batch_row *row, batch_input *inputs) {
  for (uint32_t i = 0; i < b->inputs.count; i++) {
    row->faulty_input = i;
    batch_reading reading = read_input(b, row, b->inputs.names[i], &inputs[i]);
    if (reading != BATCH_READ) return reading;
  }
  return BATCH_READ;
}

// ---- everything else ----

static TRITONSERVER_Error *read_number(batch_row *row) {
  return triton.TRITONBACKEND_RequestCorrelationId(row->request, &row->number);
}

static TRITONSERVER_Error *read_text(batch_row *row) {
  return triton.TRITONBACKEND_RequestCorrelationIdString(row->request, &row->text);
}

// read_id asks for the kind of id that the model is configured for, and for the
// other kind when the client sent that.
static TRITONSERVER_Error *read_id(const batch *b, batch_row *row) {
  TRITONSERVER_Error *other_kind = b->text_ids ? read_text(row) : read_number(row);
  if (other_kind == NULL) return NULL;
  triton.TRITONSERVER_ErrorDelete(other_kind);
  return b->text_ids ? read_number(row) : read_text(row);
}

// read_token notes where Triton keeps a state of the request's sequence: no other
// sequence that it serves has it there. Triton gives its states to a request as
// inputs. We never write them, so they stay where they are until the next START.
static TRITONSERVER_Error *read_token(const batch *b, batch_row *row) {
  if (b->token_input == NULL) return NULL;
  TRITONBACKEND_Input *state = NULL;
  const void *data = NULL;
  uint64_t bytes = 0;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  TRITONSERVER_Error *absent =
      triton.TRITONBACKEND_RequestInput(row->request, b->token_input, &state);
  if (absent != NULL) { // the ID alone counts then
    triton.TRITONSERVER_ErrorDelete(absent);
    return NULL;
  }
  TRITONSERVER_Error *failed =
      triton.TRITONBACKEND_InputBuffer(state, 0, &data, &bytes, &memory, &memory_id);
  row->token = (uintptr_t)data;
  return failed;
}

static TRITONSERVER_Error *read_cancelled(batch_row *row) {
  if (triton.TRITONBACKEND_RequestIsCancelled == NULL) return NULL;
  return triton.TRITONBACKEND_RequestIsCancelled(row->request, &row->cancelled);
}

// read_wanted marks the outputs that the client wants. Triton lists all outputs
// of the configuration for a client that named none.
static TRITONSERVER_Error *read_wanted(const batch *b, const batch_row *row, bool *wanted) {
  memset(wanted, 0, b->outputs.count * sizeof *wanted);
  uint32_t count = 0;
  TRITONSERVER_Error *failed = triton.TRITONBACKEND_RequestOutputCount(row->request, &count);
  for (uint32_t i = 0; i < count && failed == NULL; i++) {
    const char *name = "";
    failed = triton.TRITONBACKEND_RequestOutputName(row->request, i, &name);
    for (uint32_t k = 0; k < b->outputs.count; k++)
      if (strcmp(name, b->outputs.names[k]) == 0) wanted[k] = true;
  }
  return failed;
}

static batch_reading read_request(batch *b, uint32_t r) {
  batch_row *row = &b->rows[r];
  batch_input *inputs = &b->row_inputs[(size_t)r * b->inputs.count];
  memset(inputs, 0, b->inputs.count * sizeof *inputs);

  // Flags and id come first: an END counts also where the rest is unreadable.
  row->refusal = triton.TRITONBACKEND_RequestFlags(row->request, &row->flags);
  if (row->refusal == NULL) row->refusal = read_id(b, row);
  if (row->refusal == NULL) row->refusal = read_token(b, row);
  if (row->refusal == NULL) row->refusal = read_cancelled(row);
  if (row->refusal == NULL)
    row->refusal = read_wanted(b, row, &b->row_wanted[(size_t)r * b->outputs.count]);
  if (row->refusal != NULL) return BATCH_REFUSED;
  return read_inputs(b, row, inputs);
}

void read_requests(batch *b) {
  b->joined_bytes = 0;
  for (uint32_t r = 0; r < b->count; r++) b->rows[r].reading = read_request(b, r);
  place_joined(b);
}

enum { JOINED_KEPT = 16 << 20 };

void read_trim(batch *b) {
  if (b->joined_capacity <= JOINED_KEPT) return;
  free(b->joined);
  b->joined = NULL;
  b->joined_capacity = 0;
}
