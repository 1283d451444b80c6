// Traces: what a batch did when is added to the traces of its requests.
#pragma once

#include "batch.h"

// trace_find notes the trace of a request, if the server traces it.
void trace_find(batch *b, batch_request *req);

// trace_report adds the parts of a request's run to its trace, if it has one.
void trace_report(TRITONSERVER_InferenceTrace *trace, const batch_times *times);
