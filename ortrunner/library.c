// The library and the process's one environment.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim_internal.h"

ortx_api ortx;
OrtEnv *ortx_environment;
OrtAllocator *ortx_allocator;
OrtMemoryInfo *ortx_host_memory;

typedef struct {
  const void *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} ortx_api_base; // OrtApiBase

typedef void (*log_sink_function)(int level, const char *message);

static const ortx_api_base *base; // set at the end of a successful ortx_load
static _Atomic uintptr_t log_sink;
// ONNX Runtime logs the failure of a run on the thread that called it.
static _Thread_local bool probing;

// The receiver of ONNX Runtime's log. log_id is the model's name.
static void on_log(void *param, ortx_enum severity, const char *category, const char *log_id,
                   const char *code_location, const char *message) {
  (void)param;
  (void)category;
  char line[4096]; // longer messages are cut
  snprintf(line, sizeof line, "onnxruntime: %s%s%s (%s)", log_id, log_id[0] ? ": " : "", message,
           code_location);
  for (char *c = line; (c = strchr(c, '\n')) != NULL;) *c = ' ';
  log_sink_function sink = (log_sink_function)atomic_load(&log_sink);
  if (sink != NULL)
    sink(probing ? 0 : (int)severity, line); // 0: verbose
  else
    fprintf(stderr, "%s\n", line);
}

void ortx_set_log_sink(uintptr_t sink) { atomic_store(&log_sink, sink); }

void ortx_set_probing(bool is) { probing = is; }

// A message in memory of its own, as ortx_load returns it.
__attribute__((format(printf, 1, 2))) static char *message(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *text = NULL;
  if (vasprintf(&text, format, arguments) < 0) text = strdup("out of memory");
  va_end(arguments);
  return text;
}

static char *status_message(OrtStatus *status) {
  char *text = message("%s", ortx.GetErrorMessage(status));
  ortx.ReleaseStatus(status);
  return text;
}

// Finds the API of an opened library and fills the table.
static char *find_api(void *library, const ortx_api_base **found) {
  const ortx_api_base *(*get_base)(void) =
      (const ortx_api_base *(*)(void))dlsym(library, "OrtGetApiBase");
  if (get_base == NULL) return message("it is not ONNX Runtime: it has no OrtGetApiBase");
  const ortx_api_base *candidate = get_base();
  void *const *table = candidate->GetApi(ORTX_API_VERSION);
  if (table == NULL)
    return message("ONNX Runtime %s is too old: version 1.%d or later is needed",
                   candidate->GetVersionString(), ORTX_API_VERSION);
  if (!ortx_silence((const void *)candidate->GetApi))
    return message("its telemetry cannot be disabled: want a build that reads "
                   "ORT_DISABLE_TELEMETRY by getenv, as the official ones do");
#define X(ordinal, result, name, parameters) \
  memcpy(&ortx.name, &table[ordinal], sizeof ortx.name);
  ORTX_FUNCTIONS(X)
#undef X
  *found = candidate;
  return NULL;
}

static OrtStatus *set_pools(OrtThreadingOptions *threads, ortx_pools pools) {
  ORTX_TRY(ortx.SetGlobalIntraOpNumThreads(threads, pools.intra_op));
  ORTX_TRY(ortx.SetGlobalInterOpNumThreads(threads, pools.inter_op));
  return ortx.SetGlobalSpinControl(threads, 0); // idle threads must not burn cores
}

static OrtStatus *create_with_pools(unsigned log_level, ortx_pools pools) {
  OrtThreadingOptions *threads = NULL;
  ORTX_TRY(ortx.CreateThreadingOptions(&threads));
  OrtStatus *status = set_pools(threads, pools);
  if (status == NULL)
    status = ortx.CreateEnvWithCustomLoggerAndGlobalThreadPools(
        on_log, NULL, log_level, "stateful", threads, &ortx_environment);
  ortx.ReleaseThreadingOptions(threads);
  return status;
}

static OrtStatus *create_environment(unsigned log_level, ortx_pools pools) {
  const ortx_signed_enum device_allocator = 0, default_memory = 0;
  if (ortx_environment == NULL && pools.global) ORTX_TRY(create_with_pools(log_level, pools));
  if (ortx_environment == NULL)
    ORTX_TRY(ortx.CreateEnvWithCustomLogger(on_log, NULL, log_level, "stateful",
                                            &ortx_environment));
  ORTX_TRY(ortx.GetAllocatorWithDefaultOptions(&ortx_allocator));
  return ortx.CreateCpuMemoryInfo(device_allocator, default_memory, &ortx_host_memory);
}

char *ortx_load(const char *path, unsigned log_level, ortx_pools pools) {
  if (base != NULL) return NULL;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return message("%s", dlerror());
  const ortx_api_base *found = NULL;
  char *failure = find_api(library, &found);
  if (failure != NULL) {
    dlclose(library);
    return failure;
  }
  OrtStatus *status = create_environment(log_level, pools); // from here on the library stays
  if (status != NULL) return status_message(status);
  base = found;
  return NULL;
}

const char *ortx_version(void) { return base->GetVersionString(); }

OrtStatus *ortx_has_provider(const char *name, int *has) {
  char **names = NULL;
  int count = 0;
  *has = 0;
  ORTX_TRY(ortx.GetAvailableProviders(&names, &count));
  for (int i = 0; i < count; i++)
    if (strcmp(names[i], name) == 0) *has = 1;
  return ortx.ReleaseAvailableProviders(names, count);
}

unsigned ortx_error_code(const OrtStatus *status) { return ortx.GetErrorCode(status); }
const char *ortx_error_message(const OrtStatus *status) { return ortx.GetErrorMessage(status); }
void ortx_release_status(OrtStatus *status) { ortx.ReleaseStatus(status); }
