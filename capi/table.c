#include "resolve.h" // first: it asks for _GNU_SOURCE

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "table.h"

triton_table triton;

static const char *missing;

static void look_up(void) {
#define REQUIRED(name)                                       \
  triton.name = (__typeof__(&name))resolve_symbol(#name);    \
  if (triton.name == NULL && missing == NULL) missing = #name;
#define OPTIONAL(name) triton.name = (__typeof__(&name))resolve_symbol(#name);
  TRITON_FUNCTIONS(REQUIRED, OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
}

const char *table_fill(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, look_up);
  return missing;
}

bool has_request_parameters(void) {
  return triton.TRITONBACKEND_RequestParameterCount != NULL &&
         triton.TRITONBACKEND_RequestParameter != NULL;
}

// ---- errors ----

TRITONSERVER_Error *error_new(TRITONSERVER_Error_Code code, const char *text) {
  return triton.TRITONSERVER_ErrorNew(code, text);
}

void error_delete(TRITONSERVER_Error *error) { triton.TRITONSERVER_ErrorDelete(error); }

TRITONSERVER_Error_Code error_code(TRITONSERVER_Error *error) {
  return triton.TRITONSERVER_ErrorCode(error);
}

const char *error_message(TRITONSERVER_Error *error) {
  return triton.TRITONSERVER_ErrorMessage(error);
}

TRITONSERVER_Error *error_format(TRITONSERVER_Error_Code code, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return error_new(code, text);
}

void error_log(const char *doing, TRITONSERVER_Error *error) {
  if (error == NULL) return;
  char text[1024];
  snprintf(text, sizeof text, "%s: %s", doing, error_message(error));
  error_delete(error);
  TRITONSERVER_Error *unlogged = log_message(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, text);
  if (unlogged != NULL) error_delete(unlogged); // there is no way left
}

// ---- log ----

bool log_is_enabled(TRITONSERVER_LogLevel level) {
  return triton.TRITONSERVER_LogIsEnabled(level);
}

TRITONSERVER_Error *log_message(TRITONSERVER_LogLevel level, const char *file, int line,
                                const char *text) {
  return triton.TRITONSERVER_LogMessage(level, file, line, text);
}

void log_onnxruntime(int level, const char *text) {
  static const TRITONSERVER_LogLevel levels[] = {TRITONSERVER_LOG_VERBOSE, TRITONSERVER_LOG_INFO,
                                                 TRITONSERVER_LOG_WARN, TRITONSERVER_LOG_ERROR,
                                                 TRITONSERVER_LOG_ERROR};
  bool known = level >= 0 && (size_t)level < sizeof levels / sizeof levels[0];
  TRITONSERVER_Error *unlogged =
      log_message(known ? levels[level] : TRITONSERVER_LOG_ERROR, "onnxruntime", 0, text);
  if (unlogged != NULL) error_delete(unlogged);
}
