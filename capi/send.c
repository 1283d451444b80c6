// Sending the answers of a batch.
#include "held.h"

#include <string.h>

// answer_bytes is the size of an answer of that many lanes.
static uint64_t answer_bytes(const batch_output *from, uint64_t lanes) {
  return from->whole ? from->piece_bytes : from->pieces * lanes * from->piece_bytes;
}

// copy_lanes picks the lanes of one answer out of a batched tensor and puts them
// one after the other.
static void copy_lanes(char *to, const batch_output *from, uint64_t lane, uint64_t lanes) {
  const char *data = (const char *)from->data;
  uint64_t piece = from->piece_bytes;
  if (answer_bytes(from, lanes) == 0) return; // the buffer may be NULL then
  if (from->whole) {
    memcpy(to, data, piece);
    return;
  }
  if (from->pieces == 1) {
    memcpy(to, data + lane * piece, lanes * piece);
    return;
  }
  for (uint64_t end = lane + lanes; lane < end; lane++)
    for (uint64_t x = 0; x < from->pieces; x++, to += piece)
      memcpy(to, data + (x * from->lanes + lane) * piece, piece);
}

// open_output makes an output and asks for its buffer. CPU memory is what is
// asked for; a client with shared memory on a GPU gets that.
static TRITONSERVER_Error *open_output(const batch_request *req, const char *name,
                                        const batch_output *from, uint64_t lanes,
                                        batch_buffer *to) {
  TRITONBACKEND_Output *output = NULL;
  TRITONSERVER_Error *failed = triton.TRITONBACKEND_ResponseOutput(
      req->response, &output, name, from->type, from->shape, from->rank);
  if (failed != NULL) return failed;
  void *buffer = NULL;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  uint64_t bytes = answer_bytes(from, lanes);
  failed = triton.TRITONBACKEND_OutputBuffer(output, &buffer, bytes, &memory, &memory_id);
  *to = (batch_buffer){buffer, bytes, memory == TRITONSERVER_MEMORY_GPU};
  return failed;
}

TRITONSERVER_Error *batch_reserve(batch *b, uint32_t r, uint64_t lanes) {
  batch_request *req = &b->requests[r];
  size_t outputs = b->outputs.count, first = r * outputs;
  req->reserved = true;
  memset(&b->request_buffers[first], 0, outputs * sizeof *b->request_buffers);
  for (size_t k = 0; k < outputs; k++) {
    if (!b->request_wanted[first + k]) continue;
    TRITONSERVER_Error *failed = open_output(req, b->outputs.names[k], &b->request_outputs[first + k],
                                              lanes, &b->request_buffers[first + k]);
    if (failed != NULL) return failed;
  }
  return NULL;
}

// fill_reserved fills what is on the host.
static TRITONSERVER_Error *fill_reserved(const batch_request *req, const char *name,
                                         const batch_output *from, const batch_buffer *to) {
  if (answer_bytes(from, req->lanes) != to->bytes)
    return error_format(TRITONSERVER_ERROR_INTERNAL, "output \"%s\" does not have the size that was reserved",
                        name);
  if (!to->on_device) copy_lanes(to->buffer, from, req->lane, req->lanes);
  return NULL;
}

// fill_asking is for an output that batch_reserve has not asked for.
static TRITONSERVER_Error *fill_asking(const batch_request *req, const char *name,
                                       const batch_output *from) {
  batch_buffer to;
  TRITONSERVER_Error *failed = open_output(req, name, from, req->lanes, &to);
  if (failed != NULL) return failed;
  if (to.on_device)
    return error_format(TRITONSERVER_ERROR_UNSUPPORTED,
                        "output \"%s\": the client's buffer is in GPU memory: want CPU memory, "
                        "system shared memory, or an instance of KIND_GPU",
                        name);
  copy_lanes(to.buffer, from, req->lane, req->lanes);
  return NULL;
}

// fill_outputs makes the outputs that the client wants.
static TRITONSERVER_Error *fill_outputs(const batch *b, const batch_request *req) {
  size_t outputs = b->outputs.count, first = (size_t)(req - b->requests) * outputs;
  const batch_output *from = &b->request_outputs[req->outputs * outputs];
  for (size_t k = 0; k < outputs; k++) {
    if (!b->request_wanted[first + k]) continue;
    const char *name = b->outputs.names[k];
    TRITONSERVER_Error *failed =
        req->reserved ? fill_reserved(req, name, &from[k], &b->request_buffers[first + k])
                      : fill_asking(req, name, &from[k]);
    if (failed != NULL) return failed;
  }
  return NULL;
}

TRITONSERVER_Error *send_response(TRITONBACKEND_Response *response,
                                  const batch_described *described, TRITONSERVER_Error *failure) {
  if (failure == NULL && described->given) {
    const char *doing = "setting a parameter of a response";
    error_log(doing, triton.TRITONBACKEND_ResponseSetIntParameter(response, "stateful_step",
                                                                  described->step));
    error_log(doing, triton.TRITONBACKEND_ResponseSetIntParameter(response, "stateful_saved_step",
                                                                  described->saved_step));
    error_log(doing, triton.TRITONBACKEND_ResponseSetBoolParameter(response, "stateful_resumed",
                                                                   described->resumed));
  }
  return triton.TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, failure);
}

static void send_request(const batch *b, batch_request *req) {
  TRITONBACKEND_Response *response = req->response;
  TRITONSERVER_Error *failure = req->failure;
  if (req->answer == BATCH_OUTPUTS) failure = fill_outputs(b, req);
  req->response = NULL; // Triton's soon, whether it can be sent or not
  req->failure = NULL;
  if (req->held != NULL) {
    held_answer(req->held, response, failure);
    return;
  }
  TRITONSERVER_Error *unsent = send_response(response, &req->described, failure);
  req->succeeded = failure == NULL && unsent == NULL;
  if (failure != NULL) triton.TRITONSERVER_ErrorDelete(failure);
  error_log("sending a response", unsent);
}

void batch_send(batch *b) {
  for (uint32_t i = 0; i < b->count; i++) {
    batch_request *req = &b->requests[i];
    bool answered = req->answer == BATCH_OUTPUTS || req->answer == BATCH_FAILURE;
    if (req->response != NULL && answered) send_request(b, req);
  }
}
