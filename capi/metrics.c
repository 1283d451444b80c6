#include "metrics.h"

#include <stdlib.h>
#include <string.h>

struct metric_families {
  const metric_definition *definitions;
  uint32_t count;
  TRITONSERVER_MetricFamily *of[]; // of each definition; NULL: it is left out
};

struct metric_set {
  metric_families *families;
  bool complained;               // an update failed, and the log says so
  TRITONSERVER_Metric *metric[]; // of each definition; NULL: it is left out
};

static TRITONSERVER_Error *no_memory(void) {
  return error_format(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for metrics");
}

// has_kind reports whether this server has metrics of a kind.
static bool has_kind(TRITONSERVER_MetricKind kind) {
  return kind != TRITONSERVER_METRIC_KIND_HISTOGRAM ||
         (triton.TRITONSERVER_MetricNewWithArgs != NULL && triton.TRITONSERVER_MetricObserve != NULL);
}

// ---- families ----

// shares reports whether definition i has the family of the one before it.
static bool shares(const metric_definition *definitions, uint32_t i) {
  return i > 0 && strcmp(definitions[i].name, definitions[i - 1].name) == 0;
}

void metric_families_free(metric_families *f) {
  for (uint32_t i = 0; i < f->count; i++)
    if (f->of[i] != NULL && !shares(f->definitions, i))
      error_log("deleting a family of metrics", triton.TRITONSERVER_MetricFamilyDelete(f->of[i]));
  free(f);
}

TRITONSERVER_Error *metric_families_new(const metric_definition *definitions, uint32_t count,
                                        metric_families **families) {
  if (triton.TRITONSERVER_MetricFamilyNew == NULL || triton.TRITONSERVER_ParameterNew == NULL)
    return error_format(TRITONSERVER_ERROR_UNSUPPORTED, "this server has no metrics of backends");
  metric_families *f = calloc(1, sizeof *f + count * sizeof *f->of);
  if (f == NULL) return no_memory();
  f->definitions = definitions;
  f->count = count;
  for (uint32_t i = 0; i < count; i++) {
    const metric_definition *d = &definitions[i];
    if (!has_kind(d->kind)) continue;
    if (shares(definitions, i)) {
      f->of[i] = f->of[i - 1];
      continue;
    }
    TRITONSERVER_Error *failed =
        triton.TRITONSERVER_MetricFamilyNew(&f->of[i], d->kind, d->name, d->help);
    if (failed == NULL) continue;
    metric_families_free(f);
    return failed;
  }
  *families = f;
  return NULL;
}

// ---- the metrics of an instance ----

// labels_new makes the labels of a metric: those that have a value.
static uint64_t labels_new(const metric_labels *of, const char *reason,
                           TRITONSERVER_Parameter *labels[METRIC_LABELS]) {
  const struct {
    const char *name, *value;
  } all[METRIC_LABELS] = {
      {"model", of->model},       {"version", of->version},   {"instance", of->instance},
      {"gpu_uuid", of->gpu_uuid}, {"gpu_name", of->gpu_name}, {"gpu_part", of->gpu_part},
      {"reason", reason},
  };
  uint64_t count = 0;
  for (int i = 0; i < METRIC_LABELS; i++)
    if (all[i].value != NULL)
      labels[count++] = triton.TRITONSERVER_ParameterNew(
          all[i].name, TRITONSERVER_PARAMETER_STRING, all[i].value);
  return count;
}

static TRITONSERVER_Error *histogram_new(TRITONSERVER_MetricFamily *family,
                                         const metric_definition *d,
                                         const TRITONSERVER_Parameter **labels, uint64_t count,
                                         TRITONSERVER_Metric **metric) {
  TRITONSERVER_MetricArgs *args = NULL;
  TRITONSERVER_Error *failed = triton.TRITONSERVER_MetricArgsNew(&args);
  if (failed != NULL) return failed;
  failed = triton.TRITONSERVER_MetricArgsSetHistogram(args, d->bounds, d->bound_count);
  if (failed == NULL)
    failed = triton.TRITONSERVER_MetricNewWithArgs(metric, family, labels, count, args);
  error_log("deleting the arguments of a metric", triton.TRITONSERVER_MetricArgsDelete(args));
  return failed;
}

static TRITONSERVER_Error *metric_new(TRITONSERVER_MetricFamily *family, const metric_definition *d,
                                      const metric_labels *of, TRITONSERVER_Metric **metric) {
  TRITONSERVER_Parameter *labels[METRIC_LABELS];
  uint64_t count = labels_new(of, d->reason, labels);
  const TRITONSERVER_Parameter **lent = (const TRITONSERVER_Parameter **)labels;
  TRITONSERVER_Error *failed =
      d->kind == TRITONSERVER_METRIC_KIND_HISTOGRAM
          ? histogram_new(family, d, lent, count, metric)
          : triton.TRITONSERVER_MetricNew(metric, family, lent, count);
  while (count-- > 0) triton.TRITONSERVER_ParameterDelete(labels[count]);
  return failed;
}

void metric_set_free(metric_set *s) {
  for (uint32_t i = 0; i < s->families->count; i++)
    if (s->metric[i] != NULL)
      error_log("deleting a metric", triton.TRITONSERVER_MetricDelete(s->metric[i]));
  free(s);
}

TRITONSERVER_Error *metric_set_new(metric_families *families, const metric_labels *labels,
                                   metric_set **set) {
  metric_set *s = calloc(1, sizeof *s + families->count * sizeof *s->metric);
  if (s == NULL) return no_memory();
  s->families = families;
  for (uint32_t i = 0; i < families->count; i++) {
    const metric_definition *d = &families->definitions[i];
    if (families->of[i] == NULL) continue;
    TRITONSERVER_Error *failed = metric_new(families->of[i], d, labels, &s->metric[i]);
    if (failed == NULL) continue;
    metric_set_free(s);
    return failed;
  }
  *set = s;
  return NULL;
}

static TRITONSERVER_Error *record(TRITONSERVER_Metric *metric, TRITONSERVER_MetricKind kind,
                                  double value) {
  switch (kind) {
  case TRITONSERVER_METRIC_KIND_COUNTER:
    return triton.TRITONSERVER_MetricIncrement(metric, value);
  case TRITONSERVER_METRIC_KIND_GAUGE:
    return triton.TRITONSERVER_MetricSet(metric, value);
  default:
    return triton.TRITONSERVER_MetricObserve(metric, value);
  }
}

void metric_set_record(metric_set *s, const metric_update *updates, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t m = updates[i].metric;
    if (s->metric[m] == NULL) continue;
    TRITONSERVER_Error *failed =
        record(s->metric[m], s->families->definitions[m].kind, updates[i].value);
    if (failed == NULL) continue;
    if (s->complained)
      triton.TRITONSERVER_ErrorDelete(failed);
    else
      error_log("updating a metric; this is logged once", failed);
    s->complained = true;
  }
}

// ---- the build ----

struct metric_build {
  TRITONSERVER_MetricFamily *family;
  TRITONSERVER_Metric *metric; // NULL: not made yet
};

void metric_build_free(metric_build *b) {
  if (b->metric != NULL)
    error_log("deleting a metric", triton.TRITONSERVER_MetricDelete(b->metric));
  error_log("deleting a family of metrics", triton.TRITONSERVER_MetricFamilyDelete(b->family));
  free(b);
}

static TRITONSERVER_Error *build_metric_new(metric_build *b, const char *version,
                                            const char *onnxruntime) {
  TRITONSERVER_Parameter *labels[] = {
      triton.TRITONSERVER_ParameterNew("version", TRITONSERVER_PARAMETER_STRING, version),
      triton.TRITONSERVER_ParameterNew("onnxruntime", TRITONSERVER_PARAMETER_STRING, onnxruntime),
  };
  enum { COUNT = sizeof labels / sizeof labels[0] };
  const TRITONSERVER_Parameter **lent = (const TRITONSERVER_Parameter **)labels;
  TRITONSERVER_Error *failed =
      triton.TRITONSERVER_MetricNew(&b->metric, b->family, lent, COUNT);
  for (int i = 0; i < COUNT; i++) triton.TRITONSERVER_ParameterDelete(labels[i]);
  return failed != NULL ? failed : triton.TRITONSERVER_MetricSet(b->metric, 1);
}

TRITONSERVER_Error *metric_build_new(const char *version, const char *onnxruntime,
                                     metric_build **build) {
  metric_build *b = calloc(1, sizeof *b);
  if (b == NULL) return no_memory();
  TRITONSERVER_Error *failed = triton.TRITONSERVER_MetricFamilyNew(
      &b->family, TRITONSERVER_METRIC_KIND_GAUGE, "stateful_build_info",
      "Always 1; the labels are the versions of the backend and of ONNX Runtime");
  if (failed != NULL) {
    free(b);
    return failed;
  }
  failed = build_metric_new(b, version, onnxruntime);
  if (failed != NULL) {
    metric_build_free(b);
    return failed;
  }
  *build = b;
  return NULL;
}
