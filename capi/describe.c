#include "describe.h"

// A call that fails ends the function that it is in, with Triton's error.
#define TRY(call)                                  \
  do {                                             \
    TRITONSERVER_Error *failed_ = triton.call;     \
    if (failed_ != NULL) return failed_;           \
  } while (0)

TRITONSERVER_Error *describe_backend(TRITONBACKEND_Backend *of, backend_description *d) {
  TRITONSERVER_Message *config = NULL;
  TRY(TRITONBACKEND_ApiVersion(&d->major, &d->minor));
  TRY(TRITONBACKEND_BackendConfig(of, &config));
  TRY(TRITONSERVER_MessageSerializeToJson(config, &d->config, &d->config_bytes));
  return NULL;
}

TRITONSERVER_Error *describe_model(TRITONBACKEND_Model *of, model_description *d) {
  TRY(TRITONBACKEND_ModelName(of, &d->name));
  TRY(TRITONBACKEND_ModelVersion(of, &d->version));
  TRY(TRITONBACKEND_ModelRepository(of, &d->artifact, &d->directory));
  TRY(TRITONBACKEND_ModelBackend(of, &d->backend));
  TRY(TRITONBACKEND_ModelAutoCompleteConfig(of, &d->auto_complete));
  TRY(TRITONBACKEND_ModelConfig(of, 1, &d->message));
  TRITONSERVER_Error *failed =
      triton.TRITONSERVER_MessageSerializeToJson(d->message, &d->config, &d->config_bytes);
  if (failed != NULL) error_log("deleting a message", triton.TRITONSERVER_MessageDelete(d->message));
  return failed;
}

TRITONSERVER_Error *describe_instance(TRITONBACKEND_ModelInstance *of, instance_description *d) {
  TRY(TRITONBACKEND_ModelInstanceName(of, &d->name));
  TRY(TRITONBACKEND_ModelInstanceKind(of, &d->kind));
  TRY(TRITONBACKEND_ModelInstanceDeviceId(of, &d->device));
  TRY(TRITONBACKEND_ModelInstanceModel(of, &d->model));
  if (triton.TRITONBACKEND_ModelInstanceHostPolicy == NULL) return NULL;
  TRITONSERVER_Message *policy = NULL;
  TRY(TRITONBACKEND_ModelInstanceHostPolicy(of, &policy));
  TRY(TRITONSERVER_MessageSerializeToJson(policy, &d->host_policy, &d->host_policy_bytes));
  return NULL;
}

TRITONSERVER_Error *set_attributes(TRITONBACKEND_BackendAttribute *attributes) {
  if (triton.TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading != NULL)
    TRY(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attributes, true));
  // Else Triton makes GPU instances wherever it finds a GPU.
  if (triton.TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup != NULL)
    TRY(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attributes, TRITONSERVER_INSTANCEGROUPKIND_CPU, 0, NULL, 0));
  return NULL;
}

TRITONSERVER_Error *set_model_config(TRITONBACKEND_Model *of, const char *json, size_t bytes) {
  TRITONSERVER_Message *message = NULL;
  TRY(TRITONSERVER_MessageNewFromSerializedJson(&message, json, bytes));
  TRITONSERVER_Error *failed = triton.TRITONBACKEND_ModelSetConfig(of, 1, message);
  error_log("deleting a message", triton.TRITONSERVER_MessageDelete(message));
  return failed;
}

TRITONSERVER_Error *delete_message(TRITONSERVER_Message *message) {
  return triton.TRITONSERVER_MessageDelete(message);
}

#define STATE(noun, Type)                                                          \
  state_result noun##_state(TRITONBACKEND_##Type *of) {                            \
    void *state = NULL;                                                            \
    TRITONSERVER_Error *failed = triton.TRITONBACKEND_##Type##State(of, &state);   \
    return (state_result){(uintptr_t)state, failed};                               \
  }                                                                                \
  TRITONSERVER_Error *set_##noun##_state(TRITONBACKEND_##Type *of, uintptr_t handle) { \
    return triton.TRITONBACKEND_##Type##SetState(of, (void *)handle);              \
  }
STATE(backend, Backend)
STATE(model, Model)
STATE(instance, ModelInstance)
