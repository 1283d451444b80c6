// The metrics of this backend: families, which live as long as the backend, and
// in each family one metric for each instance.
#pragma once

#include "table.h"

typedef struct {
  const char *name, *help;
  const char *reason; // the label reason, or NULL for no such label
  TRITONSERVER_MetricKind kind;
  const double *bounds; // of a histogram's buckets
  uint64_t bound_count;
} metric_definition;

typedef struct metric_families metric_families;
typedef struct metric_set metric_set;

// metric_families_new makes the families; definitions of one name, which are
// adjacent, share one. The definitions must outlive it. The error is
// UNSUPPORTED where Triton has no metrics. A histogram is left out, without an
// error, where Triton has none.
TRITONSERVER_Error *metric_families_new(const metric_definition *definitions, uint32_t count,
                                        metric_families **families);
void metric_families_free(metric_families *families);

// The labels of an instance. NULL: it has no such label.
typedef struct {
  const char *model, *version, *instance;
  const char *gpu_uuid, *gpu_name, *gpu_part;
} metric_labels;

enum { METRIC_LABELS = 7 }; // with the reason

// metric_set_new makes the metrics of an instance. Not to be called while another
// set is made or freed: Triton counts the owners of a metric without a lock.
TRITONSERVER_Error *metric_set_new(metric_families *families, const metric_labels *labels,
                                   metric_set **set);
void metric_set_free(metric_set *set);

// What an update of a metric means depends on its kind: backend.MetricUpdate.
typedef struct {
  uint32_t metric; // the position of its definition
  double value;
} metric_update;

// metric_set_record tells Triton what changed. One thread at a time for each set.
void metric_set_record(metric_set *set, const metric_update *updates, uint32_t count);

// metric_build_new makes the metric stateful_build_info, which is always 1: its labels
// are the versions of this library and of ONNX Runtime. Call it after
// metric_families_new has succeeded.
typedef struct metric_build metric_build;
TRITONSERVER_Error *metric_build_new(const char *version, const char *onnxruntime,
                                     metric_build **build);
void metric_build_free(metric_build *build);
