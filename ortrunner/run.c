// Values and runs.
#include <stdlib.h>
#include <string.h>

#include "shim_internal.h"

void ortx_release_value(OrtValue *value) {
  if (value != NULL) ortx.ReleaseValue(value);
}

static void drop(OrtValue **value) {
  ortx_release_value(*value);
  *value = NULL;
}

OrtStatus *ortx_wrap(const OrtMemoryInfo *where, uintptr_t address, size_t bytes,
                     const int64_t *dims, size_t rank, unsigned element_type, OrtValue **value) {
  static char nothing[64]; // the address of tensors without elements: NULL is refused
  drop(value);
  void *data = bytes > 0 ? (void *)address : nothing;
  if (where == NULL) where = ortx_host_memory;
  return ortx.CreateTensorWithDataAsOrtValue(where, data, bytes, dims, rank,
                                             element_type, value);
}

OrtStatus *ortx_new_strings(const int64_t *dims, size_t rank, OrtValue **value) {
  drop(value);
  return ortx.CreateTensorAsOrtValue(ortx_allocator, dims, rank, ORTX_STRING, value);
}

OrtStatus *ortx_fill_strings(OrtValue *value, uintptr_t address, size_t count) {
  const char *at = (const char *)address;
  for (size_t i = 0; i < count; i++) {
    uint32_t length;
    char *element = NULL;
    memcpy(&length, at, sizeof length);
    at += sizeof length;
    ORTX_TRY(ortx.GetResizedStringTensorElementBuffer(value, i, length, &element));
    memcpy(element, at, length);
    at += length;
  }
  return NULL;
}

// ---- what ONNX Runtime allocated -------------------------------------------

static OrtStatus *element_count(const OrtValue *value, size_t *count) {
  OrtTensorTypeAndShapeInfo *info = NULL;
  ORTX_TRY(ortx.GetTensorTypeAndShape(value, &info));
  OrtStatus *status = ortx.GetTensorShapeElementCount(info, count);
  ortx.ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

// The number of bytes that the elements take in Triton's form.
static OrtStatus *strings_size(const OrtValue *value, size_t count, size_t *bytes) {
  *bytes = 0;
  for (size_t i = 0; i < count; i++) {
    size_t length = 0;
    ORTX_TRY(ortx.GetStringTensorElementLength(value, i, &length));
    if (length > UINT32_MAX)
      return ortx.CreateStatus(ORTX_FAIL, "an element is longer than 32 bits can count");
    *bytes += sizeof(uint32_t) + length;
  }
  return NULL;
}

static OrtStatus *reserve_strings(ortx_result *result, size_t bytes) {
  if (bytes <= result->strings_capacity) return NULL;
  char *larger = realloc(result->strings, bytes);
  if (larger == NULL) return ortx.CreateStatus(ORTX_FAIL, "no memory for the strings");
  result->strings = larger;
  result->strings_capacity = bytes;
  return NULL;
}

// Writes the elements of a tensor of strings in Triton's form.
static OrtStatus *read_strings(ortx_result *result) {
  size_t count = 0;
  ORTX_TRY(element_count(result->value, &count));
  ORTX_TRY(strings_size(result->value, count, &result->bytes));
  ORTX_TRY(reserve_strings(result, result->bytes));
  char *at = result->strings;
  for (size_t i = 0; i < count; i++) {
    size_t length = 0;
    ORTX_TRY(ortx.GetStringTensorElementLength(result->value, i, &length));
    uint32_t prefix = (uint32_t)length;
    memcpy(at, &prefix, sizeof prefix);
    at += sizeof prefix;
    ORTX_TRY(ortx.GetStringTensorElement(result->value, length, i, at));
    at += length;
  }
  result->data = result->strings;
  return NULL;
}

static OrtStatus *read_shape(ortx_result *result, ortx_enum *element_type) {
  OrtTensorTypeAndShapeInfo *info = NULL;
  ORTX_TRY(ortx.GetTensorTypeAndShape(result->value, &info));
  OrtStatus *status = ortx.GetTensorElementType(info, element_type);
  if (status == NULL) status = ortx.GetDimensionsCount(info, &result->rank);
  if (status == NULL && result->rank > ORTX_MAX_RANK)
    status = ortx.CreateStatus(ORTX_NOT_IMPLEMENTED, "an output has more than 32 axes");
  if (status == NULL) status = ortx.GetDimensions(info, result->dims, result->rank);
  ortx.ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

OrtStatus *ortx_read_result(ortx_result *result) {
  ortx_enum element_type = 0;
  ORTX_TRY(read_shape(result, &element_type));
  if (element_type == ORTX_STRING) return read_strings(result);
  ORTX_TRY(ortx.GetTensorSizeInBytes(result->value, &result->bytes));
  return ortx.GetTensorMutableData(result->value, &result->data);
}

// ---- a call ----------------------------------------------------------------

ortx_call *ortx_new_call(OrtSession *session, size_t inputs, size_t outputs) {
  ortx_call *call = calloc(1, sizeof *call);
  if (call == NULL) return NULL;
  call->session = session;
  call->output_count = outputs;
  call->input_names = calloc(inputs + 1, sizeof *call->input_names); // never of size 0
  call->inputs = calloc(inputs + 1, sizeof *call->inputs);
  call->output_names = calloc(outputs + 1, sizeof *call->output_names);
  call->outputs = calloc(outputs + 1, sizeof *call->outputs);
  call->wanted_names = calloc(outputs + 1, sizeof *call->wanted_names);
  call->wanted = calloc(outputs + 1, sizeof *call->wanted);
  call->results = calloc(outputs + 1, sizeof *call->results);
  if (call->input_names && call->inputs && call->output_names && call->outputs &&
      call->wanted_names && call->wanted && call->results)
    return call;
  ortx_free_call(call);
  return NULL;
}

void ortx_drop_results(ortx_call *call) {
  for (size_t i = 0; i < call->output_count; i++) drop(&call->results[i].value);
}

OrtStatus *ortx_new_run_options(const char *const *keys, const char *const *values, size_t count,
                                OrtRunOptions **options) {
  ORTX_TRY(ortx.CreateRunOptions(options));
  for (size_t i = 0; i < count; i++)
    ORTX_TRY(ortx.AddRunConfigEntry(*options, keys[i], values[i]));
  return NULL;
}

OrtStatus *ortx_set_run_options(ortx_call *call, const char *const *keys,
                                const char *const *values, size_t count) {
  return ortx_new_run_options(keys, values, count, &call->options);
}

void ortx_free_call(ortx_call *call) {
  if (call->options != NULL) ortx.ReleaseRunOptions(call->options);
  if (call->results != NULL) {
    ortx_drop_results(call);
    for (size_t i = 0; i < call->output_count; i++) free(call->results[i].strings);
  }
  free(call->input_names);
  free(call->inputs);
  free(call->output_names);
  free(call->outputs);
  free(call->wanted_names);
  free(call->wanted);
  free(call->results);
  free(call);
}

OrtStatus *ortx_run(ortx_call *call) {
  ortx_drop_results(call);
  size_t count = 0;
  for (size_t i = 0; i < call->output_count; i++) {
    const char *name = call->output_names[i];
    call->results[i].wanted = name != NULL && call->outputs[i] == NULL;
    if (name == NULL) continue;
    call->wanted_names[count] = name;
    call->wanted[count++] = call->outputs[i];
  }
  ORTX_TRY(ortx.Run(call->session, call->options, call->input_names, (const OrtValue *const *)call->inputs,
                    call->input_count, call->wanted_names, count, call->wanted));
  for (size_t i = 0, k = 0; i < call->output_count; i++) {
    if (call->output_names[i] == NULL) continue;
    if (call->results[i].wanted) call->results[i].value = call->wanted[k];
    k++;
  }
  for (size_t i = 0; i < call->output_count; i++)
    if (call->results[i].wanted) ORTX_TRY(ortx_read_result(&call->results[i]));
  return NULL;
}
