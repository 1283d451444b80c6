#include "trace.h"

void trace_find(batch *b, batch_request *req) {
  if (b->untraced) return;
  b->untraced = triton.TRITONBACKEND_RequestTrace == NULL ||
                triton.TRITONSERVER_InferenceTraceReportActivity == NULL;
  if (b->untraced) return;
  TRITONSERVER_Error *failed = triton.TRITONBACKEND_RequestTrace(req->request, &req->trace);
  if (failed == NULL) return;
  req->trace = NULL;
  b->untraced = triton.TRITONSERVER_ErrorCode(failed) == TRITONSERVER_ERROR_UNSUPPORTED;
  triton.TRITONSERVER_ErrorDelete(failed);
}

static void add(TRITONSERVER_InferenceTrace *trace, int64_t time, const char *name) {
  error_log("adding to a trace", triton.TRITONSERVER_InferenceTraceReportActivity(
                                     trace, (uint64_t)time, name));
}

void trace_report(TRITONSERVER_InferenceTrace *trace, const batch_times *t) {
  if (trace == NULL || t->end == 0) return; // it did not run
  add(trace, t->gather, "stateful_gather_START");
  add(trace, t->run != 0 ? t->run : t->end, "stateful_gather_END");
  if (t->run == 0) return;
  add(trace, t->run, "stateful_run_START");
  add(trace, t->store != 0 ? t->store : t->end, "stateful_run_END");
  if (t->store == 0) return;
  add(trace, t->store, "stateful_store_START");
  add(trace, t->end, "stateful_store_END");
}
