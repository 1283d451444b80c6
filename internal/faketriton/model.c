// Backends, models and instances.
#include <stdlib.h>
#include <string.h>

#include "server.h"

// The version that TRITONBACKEND_ApiVersion returns; the function has no backend
// to ask.
static uint32_t api_major = 1, api_minor = 19;

void fake_set_api_version(uint32_t major, uint32_t minor) {
  api_major = major;
  api_minor = minor;
}

TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor) {
  CALL();
  *major = api_major;
  *minor = api_minor;
  return NULL;
}

// GET defines a function that returns a field of an object, SET one that
// changes it.
#define GET(Function, Object, Type, field)                       \
  TRITONSERVER_Error *Function(Object *object, Type *value) {    \
    CALL();                                                      \
    *value = object->field;                                      \
    return NULL;                                                 \
  }
#define SET(Function, Object, Type, field)                       \
  TRITONSERVER_Error *Function(Object *object, Type value) {     \
    CALL();                                                      \
    object->field = value;                                       \
    return NULL;                                                 \
  }

GET(TRITONBACKEND_BackendConfig, TRITONBACKEND_Backend, TRITONSERVER_Message *, config)
GET(TRITONBACKEND_BackendState, TRITONBACKEND_Backend, void *, state)
SET(TRITONBACKEND_BackendSetState, TRITONBACKEND_Backend, void *, state)

SET(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading, TRITONBACKEND_BackendAttribute,
    bool, parallel_loading)

TRITONSERVER_Error *TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute *attribute, TRITONSERVER_InstanceGroupKind kind, uint64_t count,
    const uint64_t *device_ids, uint64_t id_count) {
  CALL();
  (void)count, (void)device_ids, (void)id_count;
  attribute->preferred = kind;
  attribute->preferred_count++;
  return NULL;
}

GET(TRITONBACKEND_ModelName, TRITONBACKEND_Model, const char *, name)
GET(TRITONBACKEND_ModelVersion, TRITONBACKEND_Model, uint64_t, version)
GET(TRITONBACKEND_ModelBackend, TRITONBACKEND_Model, TRITONBACKEND_Backend *, backend)
GET(TRITONBACKEND_ModelState, TRITONBACKEND_Model, void *, state)
SET(TRITONBACKEND_ModelSetState, TRITONBACKEND_Model, void *, state)

TRITONSERVER_Error *TRITONBACKEND_ModelRepository(TRITONBACKEND_Model *model,
                                                  TRITONBACKEND_ArtifactType *type,
                                                  const char **location) {
  CALL();
  *type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = model->directory;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelConfig(TRITONBACKEND_Model *model, uint32_t config_version,
                                              TRITONSERVER_Message **config) {
  CALL();
  if (config_version != 1) fake_violation("a model's configuration of a version other than 1");
  *config = fake_message(model->config);
  return NULL;
}

GET(TRITONBACKEND_ModelAutoCompleteConfig, TRITONBACKEND_Model, bool, auto_complete)

// Triton would merge some fields only; here the whole is taken.
TRITONSERVER_Error *TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model *model,
                                                 uint32_t config_version,
                                                 TRITONSERVER_Message *config) {
  CALL();
  if (config_version != 1) fake_violation("a model's configuration of a version other than 1");
  free(model->config);
  model->config = strdup(fake_message_text(config));
  return NULL;
}

GET(TRITONBACKEND_ModelInstanceName, TRITONBACKEND_ModelInstance, const char *, name)
GET(TRITONBACKEND_ModelInstanceKind, TRITONBACKEND_ModelInstance, TRITONSERVER_InstanceGroupKind,
    kind)
GET(TRITONBACKEND_ModelInstanceDeviceId, TRITONBACKEND_ModelInstance, int32_t, device)
GET(TRITONBACKEND_ModelInstanceHostPolicy, TRITONBACKEND_ModelInstance, TRITONSERVER_Message *,
    host_policy)
GET(TRITONBACKEND_ModelInstanceModel, TRITONBACKEND_ModelInstance, TRITONBACKEND_Model *, model)
GET(TRITONBACKEND_ModelInstanceState, TRITONBACKEND_ModelInstance, void *, state)
SET(TRITONBACKEND_ModelInstanceSetState, TRITONBACKEND_ModelInstance, void *, state)

// ---- statistics ----

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, bool success,
    uint64_t exec_start_ns, uint64_t compute_start_ns, uint64_t compute_end_ns,
    uint64_t exec_end_ns) {
  (void)instance;
  if (request->released) fake_violation("statistics of a request that was released");
  CALL();
  unsigned reports = request->statistics.reports + 1;
  if (reports > 1) fake_violation("statistics of a request reported twice");
  request->statistics =
      (fake_statistics){reports, success,        1,          exec_start_ns, compute_start_ns,
                        compute_end_ns, exec_end_ns};
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance *instance, uint64_t batch_size, uint64_t exec_start_ns,
    uint64_t compute_start_ns, uint64_t compute_end_ns, uint64_t exec_end_ns) {
  CALL();
  unsigned reports = instance->statistics.reports + 1;
  instance->statistics =
      (fake_statistics){reports, true,          batch_size, exec_start_ns, compute_start_ns,
                        compute_end_ns, exec_end_ns};
  return NULL;
}
