// What a backend reports: activities of a trace, and the memory of a model.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"

static atomic_bool traces_off;

void fake_traces_off(bool off) { traces_off = off; }

TRITONSERVER_Error *TRITONBACKEND_RequestTrace(TRITONBACKEND_Request *request,
                                               TRITONSERVER_InferenceTrace **trace) {
  if (request->released) fake_violation("a released request is read");
  CALL();
  if (traces_off)
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "tracing is not supported");
  *trace = request->trace;
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceTraceReportActivity(TRITONSERVER_InferenceTrace *trace,
                                                              uint64_t timestamp_ns,
                                                              const char *name) {
  if (trace->request->released) fake_violation("a trace of a released request is written");
  CALL();
  if (trace->count == FAKE_ACTIVITIES) {
    fake_violation("too many activities in a trace");
    return NULL;
  }
  snprintf(trace->activities[trace->count].name, sizeof trace->activities[0].name, "%s", name);
  trace->activities[trace->count++].at = timestamp_ns;
  return NULL;
}

struct TRITONSERVER_BufferAttributes {
  TRITONSERVER_MemoryType type;
  int64_t id;
  size_t bytes;
};

TRITONSERVER_Error *TRITONSERVER_BufferAttributesNew(TRITONSERVER_BufferAttributes **attributes) {
  CALL();
  *attributes = calloc(1, sizeof **attributes);
  fake_live(LIVE_ATTRIBUTES, 1);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesDelete(TRITONSERVER_BufferAttributes *attributes) {
  fake_live(LIVE_ATTRIBUTES, -1);
  free(attributes);
  CALL();
  return NULL;
}

#define SET(Function, Type, field)                                                     \
  TRITONSERVER_Error *Function(TRITONSERVER_BufferAttributes *attributes, Type value) { \
    CALL();                                                                            \
    attributes->field = value;                                                         \
    return NULL;                                                                       \
  }
SET(TRITONSERVER_BufferAttributesSetMemoryType, TRITONSERVER_MemoryType, type)
SET(TRITONSERVER_BufferAttributesSetMemoryTypeId, int64_t, id)
SET(TRITONSERVER_BufferAttributesSetByteSize, size_t, bytes)

TRITONSERVER_Error *TRITONBACKEND_ModelReportMemoryUsage(TRITONBACKEND_Model *model,
                                                         TRITONSERVER_BufferAttributes **usage,
                                                         uint32_t count) {
  CALL();
  model->memory[0] = 0;
  for (uint32_t i = 0; i < count; i++) {
    size_t used = strlen(model->memory);
    snprintf(model->memory + used, sizeof model->memory - used, "%s%d:%" PRId64 "=%zu",
             i > 0 ? " " : "", usage[i]->type, usage[i]->id, usage[i]->bytes);
  }
  return NULL;
}
