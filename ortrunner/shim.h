// What package ortrunner uses of ONNX Runtime besides the wrapper: see shim.go.
// Every function that returns an OrtStatus passes ownership to the caller; NULL is
// success.
#ifndef STATEFUL_SHIM_H
#define STATEFUL_SHIM_H

#include "ortapi.h"

// ---- library and environment (library.c) -----------------------------------

// Opens the library, creates the process's OrtEnv with our logger, and fills the
// API table. After a success every other function here may be called; a second
// call does nothing. Returns NULL, or a message that the caller frees. Not safe
// for concurrent use. With pools, one pool of threads for one operator and one for several
// serve all sessions; 0 threads leave the number to ONNX Runtime.
typedef struct {
  bool global;
  int intra_op, inter_op;
} ortx_pools;
char *ortx_load(const char *path, unsigned log_level, ortx_pools pools);

// The library's version, "1.31.1". Only after ortx_load.
const char *ortx_version(void);

// Makes sink, a void (*)(int level, const char *message), the receiver of ONNX
// Runtime's log lines; 0 is stderr. It is called from any thread, concurrently.
void ortx_set_log_sink(uintptr_t sink);

// Makes all log lines of the calling thread verbose ones, until it is unset.
void ortx_set_probing(bool is);

// Whether the library was built with the execution provider of that name.
OrtStatus *ortx_has_provider(const char *name, int *has);

unsigned ortx_error_code(const OrtStatus *status);
const char *ortx_error_message(const OrtStatus *status);
void ortx_release_status(OrtStatus *status);

// ---- sessions (session.c) --------------------------------------------------

// ONNX Runtime's tensors have few axes; more than these are refused.
enum { ORTX_MAX_RANK = 32 };

typedef enum { ORTX_INPUTS, ORTX_OUTPUTS, ORTX_INITIALIZERS } ortx_group;

// One tensor of a model. The pointers live until ortx_release_description.
typedef struct {
  char *name;
  OrtTypeInfo *type_info;
  ortx_enum onnx_type;    // ONNXType; what follows is set for tensors only
  ortx_enum element_type; // ONNXTensorElementDataType
  bool has_shape;         // false: not even the rank is known
  size_t rank;
  int64_t dims[ORTX_MAX_RANK];         // -1 where not fixed
  const char *symbols[ORTX_MAX_RANK]; // "" where there is none
} ortx_description;

// Lets a session use the pools of the process, which must have some.
OrtStatus *ortx_share_threads(OrtSessionOptions *options);
OrtStatus *ortx_set_log_id(OrtSessionOptions *options, const char *id);
OrtStatus *ortx_new_session(const char *path, const OrtSessionOptions *options,
                            OrtSession **session);
void ortx_release_session(OrtSession *session);
// The bytes that a session has allocated of its execution provider's memory, by the statistics
// of the arena; 0 if it has none. memory is NULL for the host's.
OrtStatus *ortx_session_bytes(const OrtSession *session, const OrtMemoryInfo *memory,
                              uint64_t *bytes);
// Gives the memory that is free in the C heap back to the system. Returns whether there was any.
int ortx_trim(void);

OrtStatus *ortx_count(const OrtSession *session, ortx_group group, size_t *count);
// On failure there is nothing to release.
OrtStatus *ortx_describe(const OrtSession *session, ortx_group group, size_t index,
                         ortx_description *description);
void ortx_release_description(ortx_description *description);
// The graph's doc string, to be freed with ortx_free_string; NULL if it has none.
OrtStatus *ortx_graph_description(const OrtSession *session, char **text);
void ortx_free_string(char *text);

// ---- values and runs (run.c) -----------------------------------------------

// Replaces *value, which is NULL or released here, by a tensor over the bytes at
// that address of host memory, or of the memory that where says. On failure *value
// is NULL.
OrtStatus *ortx_wrap(const OrtMemoryInfo *where, uintptr_t address, size_t bytes,
                     const int64_t *dims, size_t rank, unsigned element_type, OrtValue **value);
// Replaces *value by a new tensor of strings.
OrtStatus *ortx_new_strings(const int64_t *dims, size_t rank, OrtValue **value);
// Fills a tensor of count strings from Triton's form of them: each preceded by
// its length as uint32. The caller has checked the lengths.
OrtStatus *ortx_fill_strings(OrtValue *value, uintptr_t address, size_t count);
void ortx_release_value(OrtValue *value);

// A tensor that ONNX Runtime allocated in a run.
typedef struct {
  bool wanted;     // the run was to allocate this output
  OrtValue *value; // owned; NULL when there is none
  void *data;      // of the value, or strings
  size_t bytes;
  size_t rank;
  int64_t dims[ORTX_MAX_RANK];
  char *strings; // owned: the elements of a tensor of strings in Triton's form
  size_t strings_capacity;
} ortx_result;

// The arguments of one run, in C memory that every run reuses. Names and values are
// borrowed.
typedef struct {
  OrtSession *session;
  OrtRunOptions *options; // owned; NULL is ONNX Runtime's defaults
  const char **input_names;
  OrtValue **inputs;
  size_t input_count; // how many are given, at the front of the arrays
  const char **output_names; // NULL: not wanted
  OrtValue **outputs; // NULL: allocate it and fill the result of this index
  ortx_result *results;
  size_t output_count;
  const char **wanted_names; // those of the outputs that are wanted, and
  OrtValue **wanted;         // their values, for ortx_run
} ortx_call;

// NULL when out of memory. inputs and outputs are the most that a run may have.
ortx_call *ortx_new_call(OrtSession *session, size_t inputs, size_t outputs);
void ortx_free_call(ortx_call *call);
// Gives all runs of the call these options, pairs of a key and a value.
OrtStatus *ortx_set_run_options(ortx_call *call, const char *const *keys,
                                const char *const *values, size_t count);
// OrtApi::Run. Results of the run before are gone when it returns.
OrtStatus *ortx_run(ortx_call *call);

// ---- GPUs (gpu.c) ----------------------------------------------------------

// Adds an execution provider with these options. The stream is the CUstream in
// which it is to work.
OrtStatus *ortx_append_cuda(OrtSessionOptions *options, const char *const *keys,
                            const char *const *values, size_t count, uintptr_t stream);
OrtStatus *ortx_append_tensorrt(OrtSessionOptions *options, const char *const *keys,
                                const char *const *values, size_t count, uintptr_t stream);

// What to call the memory of a device, "Cuda" for CUDA's.
OrtStatus *ortx_new_memory(const char *name, int device, OrtMemoryInfo **memory);
void ortx_release_memory(OrtMemoryInfo *memory);

// The arguments of one run, bound once.
typedef struct {
  OrtIoBinding *bound;
  OrtRunOptions *options;
  const OrtMemoryInfo *memory; // borrowed: where outputs are allocated
  bool allocates; // an output is left to ONNX Runtime
} ortx_binding;

// Binds what the call has now. Outputs without a value will be allocated in that
// memory. The options of the run are pairs of a key and a value. On failure there
// is nothing to free.
OrtStatus *ortx_bind(const ortx_call *call, const OrtMemoryInfo *memory, const char *const *keys,
                     const char *const *values, size_t count, ortx_binding **binding);
void ortx_free_binding(ortx_binding *binding);
// OrtApi::RunWithBinding. It fills the results of the call as ortx_run does; data
// is an address of the device then.
OrtStatus *ortx_run_bound(ortx_call *call, const ortx_binding *binding);

#endif
