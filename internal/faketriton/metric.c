// Metrics: the functions of tritonserver.h over families that are never forgotten,
// as Prometheus has them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"

struct TRITONSERVER_Parameter {
  char *name, *value;
};

struct TRITONSERVER_MetricArgs {
  uint64_t count;
};

struct TRITONSERVER_MetricFamily {
  char *name;
  TRITONSERVER_MetricKind kind;
  unsigned metrics;
};

// fake_series is what the metrics of one name with the same labels are.
typedef struct fake_series {
  char *labels; // name{label="value",...}
  double value; // of a histogram the sum of the observations
  uint64_t updates;
  unsigned owners;
  struct fake_series *next;
} fake_series;

struct TRITONSERVER_Metric {
  TRITONSERVER_MetricFamily *family;
  fake_series *series;
};

static fake_series *all;
static bool metrics_off;

void fake_metrics_off(bool off) { metrics_off = off; }

static fake_series *series_of(const char *labels) {
  fake_series *s = all;
  while (s != NULL && strcmp(s->labels, labels) != 0) s = s->next;
  return s;
}

bool fake_metric(const char *labels, double *value, uint64_t *updates) {
  fake_series *s = series_of(labels);
  if (s == NULL || s->owners == 0) return false;
  *value = s->value;
  *updates = s->updates;
  return true;
}

TRITONSERVER_Parameter *TRITONSERVER_ParameterNew(const char *name, TRITONSERVER_ParameterType type,
                                                  const void *value) {
  if (type != TRITONSERVER_PARAMETER_STRING) fake_violation("a label that is not a string");
  TRITONSERVER_Parameter *p = malloc(sizeof *p);
  *p = (TRITONSERVER_Parameter){strdup(name), strdup(value)};
  fake_live(LIVE_PARAMETERS, 1);
  return p;
}

void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter *p) {
  fake_live(LIVE_PARAMETERS, -1);
  free(p->name);
  free(p->value);
  free(p);
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyNew(TRITONSERVER_MetricFamily **family,
                                                 TRITONSERVER_MetricKind kind, const char *name,
                                                 const char *description) {
  CALL();
  if (metrics_off)
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "metrics not supported");
  if (description[0] == 0) fake_violation("a family of metrics without a description");
  *family = malloc(sizeof **family);
  **family = (TRITONSERVER_MetricFamily){strdup(name), kind, 0};
  fake_live(LIVE_METRICS, 1);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *family) {
  if (family->metrics != 0) fake_violation("a family of metrics deleted before its metrics");
  fake_live(LIVE_METRICS, -1);
  free(family->name);
  free(family);
  CALL();
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args) {
  CALL();
  *args = calloc(1, sizeof **args);
  fake_live(LIVE_METRICS, 1);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsSetHistogram(TRITONSERVER_MetricArgs *args,
                                                        const double *bounds, uint64_t count) {
  CALL();
  args->count = count;
  for (uint64_t i = 0; i < count; i++)
    if (!isfinite(bounds[i]) || (i > 0 && bounds[i] <= bounds[i - 1]))
      fake_violation("bounds of a histogram that do not ascend");
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs *args) {
  fake_live(LIVE_METRICS, -1);
  free(args);
  CALL();
  return NULL;
}

static TRITONSERVER_Error *new_metric(TRITONSERVER_Metric **metric,
                                      TRITONSERVER_MetricFamily *family,
                                      const TRITONSERVER_Parameter **labels, uint64_t count) {
  char text[1024];
  size_t length = (size_t)snprintf(text, sizeof text, "%s{", family->name);
  for (uint64_t i = 0; i < count; i++)
    length += (size_t)snprintf(text + length, sizeof text - length, "%s%s=\"%s\"", i > 0 ? "," : "",
                               labels[i]->name, labels[i]->value);
  snprintf(text + length, sizeof text - length, "}");
  fake_series *series = series_of(text);
  if (series == NULL) {
    series = calloc(1, sizeof *series);
    *series = (fake_series){.labels = strdup(text), .next = all};
    all = series;
  }
  series->owners++;
  family->metrics++;
  *metric = malloc(sizeof **metric);
  **metric = (TRITONSERVER_Metric){family, series};
  fake_live(LIVE_METRICS, 1);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricNew(TRITONSERVER_Metric **metric,
                                           TRITONSERVER_MetricFamily *family,
                                           const TRITONSERVER_Parameter **labels, uint64_t count) {
  CALL();
  if (family->kind == TRITONSERVER_METRIC_KIND_HISTOGRAM)
    fake_violation("a histogram without bounds");
  return new_metric(metric, family, labels, count);
}

TRITONSERVER_Error *TRITONSERVER_MetricNewWithArgs(TRITONSERVER_Metric **metric,
                                                   TRITONSERVER_MetricFamily *family,
                                                   const TRITONSERVER_Parameter **labels,
                                                   uint64_t count,
                                                   const TRITONSERVER_MetricArgs *args) {
  CALL();
  if (family->kind != TRITONSERVER_METRIC_KIND_HISTOGRAM || args->count == 0)
    fake_violation("bounds of no histogram");
  return new_metric(metric, family, labels, count);
}

// The last owner takes the series away, and what it counted with it.
TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *metric) {
  fake_series *series = metric->series;
  if (--series->owners == 0) {
    series->value = 0;
    series->updates = 0;
  }
  metric->family->metrics--;
  fake_live(LIVE_METRICS, -1);
  free(metric);
  CALL();
  return NULL;
}

static TRITONSERVER_Error *update(TRITONSERVER_Metric *metric, TRITONSERVER_MetricKind kind,
                                  double value) {
  if (metric->family->kind != kind) fake_violation("an update that the kind of metric has not");
  fake_series *series = metric->series;
  series->value = kind == TRITONSERVER_METRIC_KIND_GAUGE ? value : series->value + value;
  series->updates++;
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *metric, double value) {
  CALL();
  if (value < 0) fake_violation("a counter that falls");
  return update(metric, TRITONSERVER_METRIC_KIND_COUNTER, value);
}

TRITONSERVER_Error *TRITONSERVER_MetricSet(TRITONSERVER_Metric *metric, double value) {
  CALL();
  return update(metric, TRITONSERVER_METRIC_KIND_GAUGE, value);
}

TRITONSERVER_Error *TRITONSERVER_MetricObserve(TRITONSERVER_Metric *metric, double value) {
  CALL();
  return update(metric, TRITONSERVER_METRIC_KIND_HISTOGRAM, value);
}
