// Sessions, and what they say of their model.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "shim_internal.h"

typedef struct {
  OrtStatus *(*count)(const OrtSession *, size_t *);
  OrtStatus *(*name)(const OrtSession *, size_t, OrtAllocator *, char **);
  OrtStatus *(*type_info)(const OrtSession *, size_t, OrtTypeInfo **);
} group_functions;

static group_functions functions_of(ortx_group group) {
  switch (group) {
    case ORTX_OUTPUTS:
      return (group_functions){ortx.SessionGetOutputCount, ortx.SessionGetOutputName,
                               ortx.SessionGetOutputTypeInfo};
    case ORTX_INITIALIZERS:
      return (group_functions){ortx.SessionGetOverridableInitializerCount,
                               ortx.SessionGetOverridableInitializerName,
                               ortx.SessionGetOverridableInitializerTypeInfo};
    default:
      return (group_functions){ortx.SessionGetInputCount, ortx.SessionGetInputName,
                               ortx.SessionGetInputTypeInfo};
  }
}

OrtStatus *ortx_share_threads(OrtSessionOptions *options) {
  return ortx.DisablePerSessionThreads(options);
}

OrtStatus *ortx_set_log_id(OrtSessionOptions *options, const char *id) {
  return ortx.SetSessionLogId(options, id);
}

OrtStatus *ortx_new_session(const char *path, const OrtSessionOptions *options,
                            OrtSession **session) {
  return ortx.CreateSession(ortx_environment, path, options, session);
}

int ortx_trim(void) { return malloc_trim(0); }

OrtStatus *ortx_session_bytes(const OrtSession *session, const OrtMemoryInfo *memory,
                              uint64_t *bytes) {
  OrtAllocator *allocator = NULL;
  OrtKeyValuePairs *statistics = NULL;
  *bytes = 0;
  ORTX_TRY(ortx.CreateAllocator(session, memory != NULL ? memory : ortx_host_memory, &allocator));
  OrtStatus *status = ortx.AllocatorGetStats(allocator, &statistics);
  if (status == NULL) {
    const char *total = ortx.GetKeyValue(statistics, "TotalAllocated");
    if (total != NULL) *bytes = strtoull(total, NULL, 10);
    ortx.ReleaseKeyValuePairs(statistics);
  }
  ortx.ReleaseAllocator(allocator);
  return status;
}

void ortx_release_session(OrtSession *session) { ortx.ReleaseSession(session); }

OrtStatus *ortx_count(const OrtSession *session, ortx_group group, size_t *count) {
  return functions_of(group).count(session, count);
}

static OrtStatus *describe_tensor(ortx_description *d) {
  const OrtTensorTypeAndShapeInfo *info = NULL; // a part of the type info
  ORTX_TRY(ortx.CastTypeInfoToTensorInfo(d->type_info, &info));
  if (info == NULL) return NULL; // no tensor
  ORTX_TRY(ortx.GetTensorElementType(info, &d->element_type));
  d->has_shape = ortx.TensorTypeAndShape_HasShape(info);
  ORTX_TRY(ortx.GetDimensionsCount(info, &d->rank));
  if (d->rank > ORTX_MAX_RANK)
    return ortx.CreateStatus(ORTX_NOT_IMPLEMENTED, "the tensor has more than 32 axes");
  ORTX_TRY(ortx.GetDimensions(info, d->dims, d->rank));
  return ortx.GetSymbolicDimensions(info, d->symbols, d->rank);
}

OrtStatus *ortx_describe(const OrtSession *session, ortx_group group, size_t index,
                         ortx_description *d) {
  group_functions of = functions_of(group);
  memset(d, 0, sizeof *d);
  OrtStatus *status = of.name(session, index, ortx_allocator, &d->name);
  if (status == NULL) status = of.type_info(session, index, &d->type_info);
  if (status == NULL) status = ortx.GetOnnxTypeFromTypeInfo(d->type_info, &d->onnx_type);
  if (status == NULL) status = describe_tensor(d);
  if (status != NULL) ortx_release_description(d);
  return status;
}

void ortx_release_description(ortx_description *d) {
  if (d->type_info != NULL) ortx.ReleaseTypeInfo(d->type_info);
  ortx_free_string(d->name);
  memset(d, 0, sizeof *d);
}

OrtStatus *ortx_graph_description(const OrtSession *session, char **text) {
  OrtModelMetadata *metadata = NULL;
  *text = NULL;
  ORTX_TRY(ortx.SessionGetModelMetadata(session, &metadata));
  OrtStatus *status = ortx.ModelMetadataGetGraphDescription(metadata, ortx_allocator, text);
  ortx.ReleaseModelMetadata(metadata);
  return status;
}

void ortx_free_string(char *text) {
  if (text == NULL) return;
  OrtStatus *status = ortx.AllocatorFree(ortx_allocator, text);
  if (status != NULL) ortx.ReleaseStatus(status); // nothing can be done about it
}
