// What Triton knows of a backend, a model and an instance, each read in one
// crossing; and the handle of the Go object that belongs to it, which Triton
// stores for us as its void * "state".
#pragma once

#include "table.h"

typedef struct {
  uint32_t major, minor; // TRITONBACKEND_ApiVersion
  const char *config;    // TRITONBACKEND_BackendConfig as JSON; Triton's
  size_t config_bytes;
} backend_description;

typedef struct {
  const char *name;
  uint64_t version;
  TRITONBACKEND_ArtifactType artifact;
  const char *directory;
  TRITONSERVER_Message *message; // TRITONBACKEND_ModelConfig; the caller's
  const char *config;            // it as JSON; valid until message is deleted
  size_t config_bytes;
  bool auto_complete; // TRITONBACKEND_ModelAutoCompleteConfig
  TRITONBACKEND_Backend *backend;
} model_description;

typedef struct {
  const char *name;
  TRITONSERVER_InstanceGroupKind kind;
  int32_t device;
  const char *host_policy; // as JSON; Triton's, or NULL where it tells of none
  size_t host_policy_bytes;
  TRITONBACKEND_Model *model;
} instance_description;

TRITONSERVER_Error *describe_backend(TRITONBACKEND_Backend *of, backend_description *d);
// describe_model leaves no message to delete when it fails.
TRITONSERVER_Error *describe_model(TRITONBACKEND_Model *of, model_description *d);
TRITONSERVER_Error *describe_instance(TRITONBACKEND_ModelInstance *of, instance_description *d);

// set_model_config is TRITONBACKEND_ModelSetConfig with a message made of JSON.
TRITONSERVER_Error *set_model_config(TRITONBACKEND_Model *of, const char *json, size_t bytes);

TRITONSERVER_Error *delete_message(TRITONSERVER_Message *message);

// set_attributes allows parallel loading of instances, and makes KIND_CPU the default.
TRITONSERVER_Error *set_attributes(TRITONBACKEND_BackendAttribute *attributes);

// A handle and not a pointer, because C may not hold pointers to Go's objects. It is
// 0 where none was set. Returned by value, so that Go has no pointer to lend.
typedef struct {
  uintptr_t handle;
  TRITONSERVER_Error *error;
} state_result;

state_result backend_state(TRITONBACKEND_Backend *of);
state_result model_state(TRITONBACKEND_Model *of);
state_result instance_state(TRITONBACKEND_ModelInstance *of);
TRITONSERVER_Error *set_backend_state(TRITONBACKEND_Backend *of, uintptr_t handle);
TRITONSERVER_Error *set_model_state(TRITONBACKEND_Model *of, uintptr_t handle);
TRITONSERVER_Error *set_instance_state(TRITONBACKEND_ModelInstance *of, uintptr_t handle);
