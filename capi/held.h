// Requests that outlive their batch, and what is done with every request at its end.
#pragma once

#include "batch.h"

// When an Execute began, computed and ended, in this order: clock_now_ns.
typedef struct {
  uint64_t exec_start, compute_start, compute_end, exec_end;
} batch_timings;

// held_answer takes the answer to a request that is held. An error that it was released with
// counts, unless the answer is one.
void held_answer(batch_held *held, TRITONBACKEND_Response *response, TRITONSERVER_Error *failure);

// held_finish ends the part of the batch in a request that is held. If all others have released
// it, its answer leaves now.
void held_finish(TRITONBACKEND_ModelInstance *instance, batch_request *req,
                 const batch_timings *timings);

// send_response sends an answer: an error if failure is not NULL, which stays the caller's.
// The response is Triton's from here on, also after an error.
TRITONSERVER_Error *send_response(TRITONBACKEND_Response *response,
                                  const batch_described *described, TRITONSERVER_Error *failure);

void request_report(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request,
                    bool succeeded, const batch_timings *timings);
// request_refuse answers a request that no batch has, reports and releases it. It takes failure.
// Without an instance nothing is reported.
void request_refuse(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request,
                    TRITONBACKEND_Response *response, TRITONSERVER_Error *failure);
void request_release(TRITONBACKEND_Request *request);
