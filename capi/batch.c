#include "batch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "held.h"
#include "read.h"
#include "signals.h"
#include "trace.h"

uint64_t clock_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

batch *batch_new(TRITONBACKEND_ModelInstance *instance, batch_names inputs, batch_names outputs,
                 bool string_ids) {
  batch *b = calloc(1, sizeof *b);
  if (b == NULL) return NULL;
  b->instance = instance;
  b->inputs = inputs;
  b->outputs = outputs;
  b->string_ids = string_ids;
  return b;
}

static void free_requests(batch *b) {
  free(b->requests);
  free(b->request_inputs);
  free(b->request_wanted);
  free(b->request_outputs);
  free(b->request_buffers);
  b->requests = NULL;
  b->request_inputs = NULL;
  b->request_wanted = NULL;
  b->request_outputs = NULL;
  b->request_buffers = NULL;
  b->capacity = 0;
}

void batch_free(batch *b) {
  free_requests(b);
  free(b->parameters);
  free(b->joined);
  free(b->token_input);
  free(b);
}

// array is calloc that also succeeds for no elements.
static void *array(size_t count, size_t size) { return calloc(count != 0 ? count : 1, size); }

// reserve makes room for that many requests. Nothing is kept: it runs before the
// batch has any.
static TRITONSERVER_Error *reserve(batch *b, uint32_t count) {
  if (count <= b->capacity) return NULL;
  free_requests(b);
  b->requests = array(count, sizeof *b->requests);
  b->request_inputs = array((size_t)count * b->inputs.count, sizeof *b->request_inputs);
  b->request_wanted = array((size_t)count * b->outputs.count, sizeof *b->request_wanted);
  b->request_outputs = array((size_t)count * b->outputs.count, sizeof *b->request_outputs);
  b->request_buffers = array((size_t)count * b->outputs.count, sizeof *b->request_buffers);
  if (b->requests == NULL || b->request_inputs == NULL || b->request_wanted == NULL ||
      b->request_outputs == NULL || b->request_buffers == NULL) {
    free_requests(b);
    return error_format(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for a batch of %u requests",
                        count);
  }
  b->capacity = count;
  return NULL;
}

// open_responses makes all responses or none.
static TRITONSERVER_Error *open_responses(batch *b) {
  for (uint32_t i = 0; i < b->count; i++) {
    batch_request *req = &b->requests[i];
    TRITONSERVER_Error *failed =
        triton.TRITONBACKEND_ResponseNew(&req->response, req->request);
    if (failed == NULL) continue;
    while (i-- > 0)
      error_log("deleting a response",
                triton.TRITONBACKEND_ResponseDelete(b->requests[i].response));
    b->count = 0;
    return failed;
  }
  return NULL;
}

TRITONSERVER_Error *batch_open(batch *b, TRITONBACKEND_Request **requests,
                               TRITONBACKEND_Response **responses, uint32_t count) {
  b->exec_start_ns = clock_now_ns();
  signals_keep(); // before any Go code that must be able to recover
  TRITONSERVER_Error *failed = reserve(b, count);
  if (failed != NULL) return failed;
  b->count = count;
  for (uint32_t i = 0; i < count; i++) b->requests[i] = (batch_request){.request = requests[i]};
  if (responses == NULL)
    failed = open_responses(b);
  else
    for (uint32_t i = 0; i < count; i++) b->requests[i].response = responses[i];
  if (failed == NULL) read_requests(b);
  return failed;
}

// ---- the end ----

static uint64_t between(uint64_t low, uint64_t time, uint64_t high) {
  return time < low ? low : time > high ? high : time;
}

// timings_of puts the times in order, whatever clock they were read from: Triton
// subtracts them from each other without a look. Where nothing ran, all the
// time counts as computing.
static batch_timings timings_of(const batch *b, uint64_t compute_start, uint64_t compute_end) {
  batch_timings m = {.exec_start = b->exec_start_ns, .exec_end = clock_now_ns()};
  if (compute_end == 0) compute_end = m.exec_end;
  m.compute_start = between(m.exec_start, compute_start, m.exec_end);
  m.compute_end = between(m.compute_start, compute_end, m.exec_end);
  return m;
}

static void report(const batch *b, const batch_timings *m, bool ran) {
  uint64_t size = 0;
  for (uint32_t i = 0; i < b->count; i++) {
    const batch_request *req = &b->requests[i];
    if (req->answer == BATCH_OUTPUTS) size += req->lanes;
    if (req->answer == BATCH_PARKED || req->held != NULL) continue;
    trace_report(req->trace, &req->times);
    request_report(b->instance, req->request, req->succeeded, m);
  }
  if (!ran || size == 0) return;
  error_log("reporting a batch", triton.TRITONBACKEND_ModelInstanceReportBatchStatistics(
                                     b->instance, size, m->exec_start, m->compute_start,
                                     m->compute_end, m->exec_end));
}

static void release(batch *b, const batch_timings *m) {
  for (uint32_t i = 0; i < b->count; i++) {
    batch_request *req = &b->requests[i];
    if (req->refusal != NULL) triton.TRITONSERVER_ErrorDelete(req->refusal);
    if (req->answer == BATCH_PARKED) continue;
    if (req->held != NULL)
      held_finish(b->instance, req, m);
    else
      request_release(req->request);
  }
  b->count = 0;
}

void batch_finish(batch *b, uint64_t compute_start_ns, uint64_t compute_end_ns) {
  for (uint32_t i = 0; i < b->count; i++) {
    batch_request *req = &b->requests[i];
    if (req->answer != BATCH_UNANSWERED) continue;
    req->answer = BATCH_FAILURE;
    req->failure = error_format(TRITONSERVER_ERROR_INTERNAL,
                                "the stateful backend left this request without an answer");
  }
  batch_send(b);
  batch_timings m = timings_of(b, compute_start_ns, compute_end_ns);
  report(b, &m, compute_end_ns != 0);
  release(b, &m);
  read_trim(b);
}
