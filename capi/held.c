#include "held.h"

#include <pthread.h>
#include <stdlib.h>

#include "trace.h"

// All that the last step of a request needs, because its batch may be gone then.
struct batch_held {
  pthread_mutex_t lock; // guards what follows
  uint32_t holds;       // how many have not released it yet; its batch is one of them
  TRITONBACKEND_Request *request;
  TRITONBACKEND_Response *response;
  TRITONSERVER_Error *failure; // or NULL
  batch_described described;
  TRITONBACKEND_ModelInstance *instance;
  batch_timings timings;
  TRITONSERVER_InferenceTrace *trace; // or NULL
  batch_times times;
};

batch_held *batch_hold(batch *b, uint32_t r) {
  batch_request *req = &b->requests[r];
  if (req->held == NULL) {
    batch_held *held = calloc(1, sizeof *held);
    if (held == NULL) return NULL;
    pthread_mutex_init(&held->lock, NULL);
    held->holds = 1;
    held->request = req->request;
    req->held = held;
  }
  pthread_mutex_lock(&req->held->lock);
  req->held->holds++;
  pthread_mutex_unlock(&req->held->lock);
  return req->held;
}

// take_failure makes failure the answer, if that is no error yet. The lock is held.
static void take_failure(batch_held *held, TRITONSERVER_Error *failure) {
  if (failure == NULL) return;
  if (held->failure == NULL)
    held->failure = failure;
  else
    triton.TRITONSERVER_ErrorDelete(failure);
}

// leave sends the answer. No one else has the request any more.
static void leave(batch_held *held) {
  TRITONSERVER_Error *unsent = send_response(held->response, &held->described, held->failure);
  bool succeeded = held->failure == NULL && unsent == NULL;
  if (held->failure != NULL) triton.TRITONSERVER_ErrorDelete(held->failure);
  error_log("sending a response", unsent);
  trace_report(held->trace, &held->times);
  request_report(held->instance, held->request, succeeded, &held->timings);
  request_release(held->request);
  pthread_mutex_destroy(&held->lock);
  free(held);
}

void held_release(batch_held *held, batch_described described, TRITONSERVER_Error *failure) {
  if (held == NULL) {
    if (failure != NULL) triton.TRITONSERVER_ErrorDelete(failure);
    return;
  }
  pthread_mutex_lock(&held->lock);
  if (described.given) held->described = described;
  take_failure(held, failure);
  uint32_t left = --held->holds;
  pthread_mutex_unlock(&held->lock);
  if (left == 0) leave(held);
}

void held_answer(batch_held *held, TRITONBACKEND_Response *response, TRITONSERVER_Error *failure) {
  pthread_mutex_lock(&held->lock);
  held->response = response;
  if (failure != NULL && held->failure != NULL) {
    triton.TRITONSERVER_ErrorDelete(held->failure);
    held->failure = NULL;
  }
  take_failure(held, failure);
  pthread_mutex_unlock(&held->lock);
}

void held_finish(TRITONBACKEND_ModelInstance *instance, batch_request *req,
                 const batch_timings *timings) {
  batch_held *held = req->held;
  req->held = NULL;
  pthread_mutex_lock(&held->lock);
  held->instance = instance;
  held->timings = *timings;
  held->trace = req->trace;
  held->times = req->times;
  // What a caller has released it with is later than what the batch knows.
  if (!held->described.given) held->described = req->described;
  pthread_mutex_unlock(&held->lock);
  held_release(held, (batch_described){0}, NULL);
}

void request_report(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request,
                    bool succeeded, const batch_timings *t) {
  error_log("reporting a request", triton.TRITONBACKEND_ModelInstanceReportStatistics(
                                       instance, request, succeeded, t->exec_start,
                                       t->compute_start, t->compute_end, t->exec_end));
}

void request_refuse(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request,
                    TRITONBACKEND_Response *response, TRITONSERVER_Error *failure) {
  error_log("sending a response", send_response(response, &(batch_described){0}, failure));
  triton.TRITONSERVER_ErrorDelete(failure);
  uint64_t now = clock_now_ns();
  batch_timings timings = {now, now, now, now};
  if (instance != NULL) request_report(instance, request, false, &timings);
  request_release(request);
}

void request_release(TRITONBACKEND_Request *request) {
  error_log("releasing a request",
            triton.TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}
