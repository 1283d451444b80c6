// The objects of the fake Triton, and what all its functions share.
#pragma once

#include <stdatomic.h>

#include "../triton/triton.h"

// ---- calls, faults, violations (server.c) ----

typedef struct fake_counter {
  const char *name;
  atomic_uint calls;
  struct fake_counter *next;
  atomic_flag listed;
} fake_counter;

// fake_called counts a call; not NULL: this is the one that is to fail.
TRITONSERVER_Error *fake_called(fake_counter *counter);

// CALL opens every function that can fail: it counts the call and ends the
// function with an error if it is this one's turn.
#define CALL()                                                             \
  do {                                                                     \
    static fake_counter counter_ = {.name = __func__, .listed = ATOMIC_FLAG_INIT}; \
    TRITONSERVER_Error *injected_ = fake_called(&counter_);                \
    if (injected_ != NULL) return injected_;                               \
  } while (0)

void fake_reset(void);
void fake_fail_at(unsigned call);
unsigned fake_calls(void);
unsigned fake_calls_of(const char *name);

typedef enum { LIVE_ERRORS, LIVE_MESSAGES, LIVE_RESPONSES, LIVE_METRICS, LIVE_PARAMETERS, LIVE_ATTRIBUTES, LIVE_KINDS } live_kind;
void fake_live(live_kind kind, int change);
int fake_live_count(live_kind kind);

void fake_violation(const char *what);
unsigned fake_violations(void);
const char *fake_last_violation(void);

void fake_set_verbose(bool on); // verbose lines are wanted too
void fake_keep_data(bool on);   // a released request's data is not overwritten
bool fake_keeps_data(void);
const char *fake_last_log(void);
int fake_last_log_level(void);

TRITONSERVER_Message *fake_message(const char *json);
const char *fake_message_text(const TRITONSERVER_Message *message);

// fake_set_api_version changes what TRITONBACKEND_ApiVersion returns.
void fake_set_api_version(uint32_t major, uint32_t minor);

// fake_traces_off makes the server one that was built without traces.
void fake_traces_off(bool off);

// ---- metrics (metric.c) ----

void fake_metrics_off(bool off);
bool fake_metric(const char *labels, double *value, uint64_t *updates);

// ---- objects ----

struct TRITONBACKEND_Backend {
  uint32_t major, minor;
  TRITONSERVER_Message *config;
  void *state;
};

struct TRITONBACKEND_BackendAttribute {
  bool parallel_loading;
  TRITONSERVER_InstanceGroupKind preferred;
  unsigned preferred_count;
};

struct TRITONBACKEND_Model {
  TRITONBACKEND_Backend *backend;
  char memory[256]; // what was reported, "0:0=123 2:1=456": type, id, bytes
  char *name, *directory, *config;
  uint64_t version;
  bool auto_complete;
  void *state;
};

typedef struct {
  unsigned reports;
  bool success;
  uint64_t batch_size;
  uint64_t exec_start, compute_start, compute_end, exec_end;
} fake_statistics;

typedef struct fake_thread fake_thread;

struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model *model;
  TRITONSERVER_Message *host_policy;
  char *name;
  TRITONSERVER_InstanceGroupKind kind;
  int32_t device;
  void *state;
  fake_statistics statistics;
  fake_thread *thread;
};

typedef struct {
  char *data;
  uint64_t bytes;
} fake_buffer;

struct TRITONBACKEND_Input {
  TRITONBACKEND_Request *request;
  char *name;
  TRITONSERVER_DataType type;
  int64_t *shape;
  uint32_t rank;
  fake_buffer *buffers;
  uint32_t buffer_count;
  TRITONSERVER_MemoryType memory;
};

struct TRITONBACKEND_Output {
  TRITONBACKEND_Response *response;
  char *name;
  TRITONSERVER_DataType type;
  int64_t *shape;
  uint32_t rank;
  char *data;
  uint64_t bytes;
  TRITONBACKEND_Output *next;
};

enum { FAKE_SET_PARAMETERS = 8 };

// The parameters that were set in a response.
typedef struct {
  struct {
    char name[64];
    TRITONSERVER_ParameterType type;
    int64_t value; // 0 or 1 for a bool
  } list[FAKE_SET_PARAMETERS];
  unsigned count;
} fake_set_parameters;

struct TRITONBACKEND_Response {
  TRITONBACKEND_Request *request;
  TRITONBACKEND_Output *outputs; // the last one first
  fake_set_parameters parameters;
};

// A parameter of a request.
typedef struct {
  char *name;
  TRITONSERVER_ParameterType type;
  char *text; // of a string, else ""
  union {
    int64_t number;
    bool flag;
    double real;
  };
} fake_parameter;

enum { FAKE_ACTIVITIES = 16 };

struct TRITONSERVER_InferenceTrace {
  TRITONBACKEND_Request *request;
  struct {
    char name[64];
    uint64_t at;
  } activities[FAKE_ACTIVITIES];
  unsigned count;
};

struct TRITONBACKEND_Request {
  TRITONSERVER_InferenceTrace *trace; // or NULL
  uint32_t flags;
  uint64_t number;
  char *string_id; // NULL: the ID is the number
  bool cancelled;
  uint64_t timeout_us;
  TRITONBACKEND_Input *inputs;
  uint32_t input_count;
  fake_parameter *parameters;
  uint32_t parameter_count;
  char **wanted;
  uint32_t wanted_count;
  TRITONSERVER_MemoryType output_memory; // of the buffers that outputs get

  // What was done with it.
  unsigned responses, sent, released;
  uint32_t send_flags;
  TRITONBACKEND_Output *answer;
  fake_set_parameters answer_parameters;
  bool failed;
  TRITONSERVER_Error_Code code;
  char *message;
  fake_statistics statistics;
};

// fake_forget_answer makes a request as it was before it was executed.
void fake_forget_answer(TRITONBACKEND_Request *request);

// ---- the library's entry points (entry.c) ----

TRITONSERVER_Error *fake_initialize(TRITONBACKEND_Backend *backend);
// fake_initialize_through calls the function of a library, as Triton opens it.
TRITONSERVER_Error *fake_initialize_through(const char *library, TRITONBACKEND_Backend *backend);
TRITONSERVER_Error *fake_finalize(TRITONBACKEND_Backend *backend);
TRITONSERVER_Error *fake_get_attribute(TRITONBACKEND_Backend *backend,
                                       TRITONBACKEND_BackendAttribute *attribute);
TRITONSERVER_Error *fake_model_initialize(TRITONBACKEND_Model *model);
TRITONSERVER_Error *fake_model_finalize(TRITONBACKEND_Model *model);
TRITONSERVER_Error *fake_instance_initialize(TRITONBACKEND_ModelInstance *instance);
TRITONSERVER_Error *fake_instance_finalize(TRITONBACKEND_ModelInstance *instance);
TRITONSERVER_Error *fake_instance_ready(TRITONBACKEND_ModelInstance *instance);

// A thread for each instance, on which it executes.
fake_thread *fake_new_thread(void);
void fake_end_thread(fake_thread *thread);

// fake_execute executes the batch that many times on the instance's thread, and forgets
// the answers of all times but the last. ns, if not NULL, gets the time it took.
TRITONSERVER_Error *fake_execute(TRITONBACKEND_ModelInstance *instance,
                                 TRITONBACKEND_Request **requests, uint32_t count, unsigned times,
                                 uint64_t *ns);

// fake_execute_each executes several batches of that many requests each, which
// follow one another, as fake_execute does.
TRITONSERVER_Error *fake_execute_each(TRITONBACKEND_ModelInstance *instance,
                                      TRITONBACKEND_Request **requests, uint32_t count,
                                      unsigned batches, uint64_t *ns);
