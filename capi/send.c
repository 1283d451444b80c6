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

static TRITONSERVER_Error *fill_output(const batch_row *row, const char *name,
                                       const batch_output *from) {
  TRITONBACKEND_Output *output = NULL;
  TRITONSERVER_Error *failed = triton.TRITONBACKEND_ResponseOutput(
      row->response, &output, name, from->type, from->shape, from->rank);
  if (failed != NULL) return failed;
  void *buffer = NULL;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  failed = triton.TRITONBACKEND_OutputBuffer(
      output, &buffer, answer_bytes(from, row->lanes), &memory, &memory_id);
  if (failed != NULL) return failed;
  if (memory == TRITONSERVER_MEMORY_GPU)
    return error_format(TRITONSERVER_ERROR_UNSUPPORTED,
                        "output \"%s\": the client's buffer is in GPU memory: want CPU memory, "
                        "or system shared memory",
                        name);
  copy_lanes(buffer, from, row->lane, row->lanes);
  return NULL;
}

// fill_outputs makes the outputs that the client wants.
static TRITONSERVER_Error *fill_outputs(const batch *b, const batch_row *row) {
  size_t outputs = b->outputs.count;
  const bool *wanted = &b->row_wanted[(size_t)(row - b->rows) * outputs];
  const batch_output *from = &b->row_outputs[row->outputs * outputs];
  for (size_t k = 0; k < outputs; k++) {
    if (!wanted[k]) continue;
    TRITONSERVER_Error *failed = fill_output(row, b->outputs.names[k], &from[k]);
    if (failed != NULL) return failed;
  }
  return NULL;
}

static void send_row(const batch *b, batch_row *row) {
  TRITONSERVER_Error *failure = row->failure;
  if (row->answer == BATCH_OUTPUTS) failure = fill_outputs(b, row);
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
