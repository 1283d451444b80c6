// Sending the answers of a batch.
#include "batch.h"

#include <string.h>

// answer_bytes is the size of an answer of that many lanes.
static uint64_t answer_bytes(const batch_output *from, uint64_t lanes) {
  return from->whole ? from->run_bytes : from->runs * lanes * from->run_bytes;
}

// copy_lanes picks the lanes of one answer out of a batched tensor and puts them
// one behind the other.
static void copy_lanes(char *to, const batch_output *from, uint64_t lane, uint64_t lanes) {
  const char *data = (const char *)from->data;
  uint64_t piece = from->run_bytes;
  if (answer_bytes(from, lanes) == 0) return; // the buffer may be NULL then
  if (from->whole) {
    memcpy(to, data, piece);
    return;
  }
  if (from->runs == 1) {
    memcpy(to, data + lane * piece, lanes * piece);
    return;
  }
  for (uint64_t end = lane + lanes; lane < end; lane++)
    for (uint64_t x = 0; x < from->runs; x++, to += piece)
      memcpy(to, data + (x * from->lanes + lane) * piece, piece);
}

// place_output makes an output and asks where it is to go. CPU memory is what is
// asked for; a client with shared memory on a GPU gets that.
static TRITONSERVER_Error *place_output(const batch_row *row, const char *name,
                                        const batch_output *from, uint64_t lanes,
                                        batch_place *place) {
  TRITONBACKEND_Output *output = NULL;
  TRITONSERVER_Error *failed = triton.TRITONBACKEND_ResponseOutput(
      row->response, &output, name, from->type, from->shape, from->rank);
  if (failed != NULL) return failed;
  void *buffer = NULL;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  uint64_t bytes = answer_bytes(from, lanes);
  failed = triton.TRITONBACKEND_OutputBuffer(output, &buffer, bytes, &memory, &memory_id);
  *place = (batch_place){buffer, bytes, memory == TRITONSERVER_MEMORY_GPU};
  return failed;
}

TRITONSERVER_Error *batch_reserve(batch *b, uint32_t r, uint64_t lanes) {
  batch_row *row = &b->rows[r];
  size_t outputs = b->outputs.count, first = r * outputs;
  row->reserved = true;
  memset(&b->row_places[first], 0, outputs * sizeof *b->row_places);
  for (size_t k = 0; k < outputs; k++) {
    if (!b->row_wanted[first + k]) continue;
    TRITONSERVER_Error *failed = place_output(row, b->outputs.names[k], &b->row_outputs[first + k],
                                              lanes, &b->row_places[first + k]);
    if (failed != NULL) return failed;
  }
  return NULL;
}

// fill_reserved fills what is on the host.
static TRITONSERVER_Error *fill_reserved(const batch_row *row, const char *name,
                                         const batch_output *from, const batch_place *place) {
  if (answer_bytes(from, row->lanes) != place->bytes)
    return error_format(TRITONSERVER_ERROR_INTERNAL, "output \"%s\" is not as large as was said before",
                        name);
  if (!place->on_device) copy_lanes(place->buffer, from, row->lane, row->lanes);
  return NULL;
}

// fill_asking is for an output of which Triton was not told yet.
static TRITONSERVER_Error *fill_asking(const batch_row *row, const char *name,
                                       const batch_output *from) {
  batch_place place;
  TRITONSERVER_Error *failed = place_output(row, name, from, row->lanes, &place);
  if (failed != NULL) return failed;
  if (place.on_device)
    return error_format(TRITONSERVER_ERROR_UNSUPPORTED,
                        "output \"%s\": the client's buffer is in GPU memory: want CPU memory, "
                        "system shared memory, or an instance of KIND_GPU",
                        name);
  copy_lanes(place.buffer, from, row->lane, row->lanes);
  return NULL;
}

// fill_outputs makes the outputs that the client wants.
static TRITONSERVER_Error *fill_outputs(const batch *b, const batch_row *row) {
  size_t outputs = b->outputs.count, first = (size_t)(row - b->rows) * outputs;
  const batch_output *from = &b->row_outputs[row->outputs * outputs];
  for (size_t k = 0; k < outputs; k++) {
    if (!b->row_wanted[first + k]) continue;
    const char *name = b->outputs.names[k];
    TRITONSERVER_Error *failed =
        row->reserved ? fill_reserved(row, name, &from[k], &b->row_places[first + k])
                      : fill_asking(row, name, &from[k]);
    if (failed != NULL) return failed;
  }
  return NULL;
}

static void send_row(const batch *b, batch_row *row) {
  TRITONSERVER_Error *failure = row->failure;
  if (row->answer == BATCH_OUTPUTS) failure = fill_outputs(b, row);
  if (row->held != NULL) {
    row->held->response = row->response;
    row->held->failure = failure;
    row->response = NULL;
    row->failure = NULL;
    row->succeeded = failure == NULL;
    return;
  }
  TRITONSERVER_Error *unsent = triton.TRITONBACKEND_ResponseSend(
      row->response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, failure);
  row->response = NULL; // Triton's now, whether it could be sent or not
  row->failure = NULL;
  row->succeeded = failure == NULL && unsent == NULL;
  if (failure != NULL) triton.TRITONSERVER_ErrorDelete(failure);
  error_log("sending a response", unsent);
}

void batch_send(batch *b) {
  for (uint32_t i = 0; i < b->count; i++) {
    batch_row *row = &b->rows[i];
    if (row->response != NULL && row->answer != BATCH_UNANSWERED) send_row(b, row);
  }
}
