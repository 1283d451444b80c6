#include "batch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "read.h"
#include "signals.h"

uint64_t clock_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

batch *batch_new(TRITONBACKEND_ModelInstance *instance, batch_ports inputs, batch_ports outputs,
                 bool text_ids) {
  batch *b = calloc(1, sizeof *b);
  if (b == NULL) return NULL;
  b->instance = instance;
  b->inputs = inputs;
  b->outputs = outputs;
  b->text_ids = text_ids;
  return b;
}

static void free_rows(batch *b) {
  free(b->rows);
  free(b->row_inputs);
  free(b->row_wanted);
  free(b->row_outputs);
  free(b->row_places);
  b->rows = NULL;
  b->row_inputs = NULL;
  b->row_wanted = NULL;
  b->row_outputs = NULL;
  b->row_places = NULL;
  b->capacity = 0;
}

void batch_free(batch *b) {
  free_rows(b);
  free(b->joined);
  free(b->token_input);
  free(b);
}

// array is calloc that also succeeds for no elements.
static void *array(size_t count, size_t size) { return calloc(count != 0 ? count : 1, size); }

// reserve makes room for that many rows. Nothing is kept: it runs before the
// batch has any.
static TRITONSERVER_Error *reserve(batch *b, uint32_t rows) {
  if (rows <= b->capacity) return NULL;
  free_rows(b);
  b->rows = array(rows, sizeof *b->rows);
  b->row_inputs = array((size_t)rows * b->inputs.count, sizeof *b->row_inputs);
  b->row_wanted = array((size_t)rows * b->outputs.count, sizeof *b->row_wanted);
  b->row_outputs = array((size_t)rows * b->outputs.count, sizeof *b->row_outputs);
  b->row_places = array((size_t)rows * b->outputs.count, sizeof *b->row_places);
  if (b->rows == NULL || b->row_inputs == NULL || b->row_wanted == NULL ||
      b->row_outputs == NULL || b->row_places == NULL) {
    free_rows(b);
    return error_format(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a batch of %u requests",
                        rows);
  }
  b->capacity = rows;
  return NULL;
}

// open_responses makes all responses or none.
static TRITONSERVER_Error *open_responses(batch *b) {
  for (uint32_t i = 0; i < b->count; i++) {
    batch_row *row = &b->rows[i];
    TRITONSERVER_Error *failed =
        triton.TRITONBACKEND_ResponseNew(&row->response, row->request);
    if (failed == NULL) continue;
    while (i-- > 0)
      error_log("deleting a response",
                triton.TRITONBACKEND_ResponseDelete(b->rows[i].response));
    b->count = 0;
    return failed;
  }
  return NULL;
}

TRITONSERVER_Error *batch_open(batch *b, TRITONBACKEND_Request **requests, uint32_t count) {
  b->exec_start_ns = clock_now_ns();
  signals_keep(); // before any Go code that must be able to recover
  TRITONSERVER_Error *failed = reserve(b, count);
  if (failed != NULL) return failed;
  b->count = count;
  for (uint32_t i = 0; i < count; i++) b->rows[i] = (batch_row){.request = requests[i]};
  failed = open_responses(b);
  if (failed == NULL) read_requests(b);
  return failed;
}

// ---- the end ----

typedef struct {
  uint64_t exec_start, compute_start, compute_end, exec_end;
} marks;

static uint64_t between(uint64_t low, uint64_t time, uint64_t high) {
  return time < low ? low : time > high ? high : time;
}

// marks_of puts the times in order, whatever clock they were read from: Triton
// subtracts them from each other without a look. Where nothing ran, all the
// time counts as computing.
static marks marks_of(const batch *b, uint64_t compute_start, uint64_t compute_end) {
  marks m = {.exec_start = b->exec_start_ns, .exec_end = clock_now_ns()};
  if (compute_end == 0) compute_end = m.exec_end;
  m.compute_start = between(m.exec_start, compute_start, m.exec_end);
  m.compute_end = between(m.compute_start, compute_end, m.exec_end);
  return m;
}

static void report(const batch *b, const marks *m, bool ran) {
  uint64_t size = 0;
  for (uint32_t i = 0; i < b->count; i++) {
    const batch_row *row = &b->rows[i];
    if (row->answer == BATCH_OUTPUTS) size += row->lanes;
    error_log("reporting a request", triton.TRITONBACKEND_ModelInstanceReportStatistics(
                                         b->instance, row->request, row->succeeded,
                                         m->exec_start, m->compute_start, m->compute_end,
                                         m->exec_end));
  }
  if (!ran || size == 0) return;
  error_log("reporting a batch", triton.TRITONBACKEND_ModelInstanceReportBatchStatistics(
                                     b->instance, size, m->exec_start, m->compute_start,
                                     m->compute_end, m->exec_end));
}

static void release_request(TRITONBACKEND_Request *request) {
  error_log("releasing a request",
            triton.TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

batch_held *batch_hold(batch *b, uint32_t row) {
  batch_held *held = calloc(1, sizeof *held);
  b->rows[row].held = held;
  if (held != NULL) held->request = b->rows[row].request;
  return held;
}

void release_held(batch_held *held) {
  if (held == NULL) return;
  error_log("sending a response",
            triton.TRITONBACKEND_ResponseSend(held->response, TRITONSERVER_RESPONSE_COMPLETE_FINAL,
                                              held->failure));
  if (held->failure != NULL) triton.TRITONSERVER_ErrorDelete(held->failure);
  release_request(held->request);
  free(held);
}

static void release(batch *b) {
  for (uint32_t i = 0; i < b->count; i++) {
    batch_row *row = &b->rows[i];
    if (row->refusal != NULL) triton.TRITONSERVER_ErrorDelete(row->refusal);
    if (row->held == NULL) release_request(row->request);
  }
  b->count = 0;
}

void batch_finish(batch *b, uint64_t compute_start_ns, uint64_t compute_end_ns) {
  for (uint32_t i = 0; i < b->count; i++) {
    batch_row *row = &b->rows[i];
    if (row->answer != BATCH_UNANSWERED) continue;
    row->answer = BATCH_FAILURE;
    row->failure = error_format(TRITONSERVER_ERROR_INTERNAL,
                                "the stateful backend left this request without an answer");
  }
  batch_send(b);
  marks m = marks_of(b, compute_start_ns, compute_end_ns);
  report(b, &m, compute_end_ns != 0);
  release(b);
  read_trim(b);
}
