// What all functions of the fake share, and the functions of tritonserver.h.
#include "server.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- calls ----

static fake_counter *_Atomic counters;
static atomic_uint calls, fail_at;

static TRITONSERVER_Error *new_error(TRITONSERVER_Error_Code code, const char *text);

TRITONSERVER_Error *fake_called(fake_counter *counter) {
  if (!atomic_flag_test_and_set(&counter->listed)) {
    counter->next = atomic_load(&counters);
    while (!atomic_compare_exchange_weak(&counters, &counter->next, counter)) {
    }
  }
  counter->calls++;
  unsigned call = atomic_fetch_add(&calls, 1) + 1;
  if (call != fail_at) return NULL;
  char text[128];
  snprintf(text, sizeof text, "injected failure of %s", counter->name);
  return new_error(TRITONSERVER_ERROR_UNAVAILABLE, text);
}

void fake_fail_at(unsigned call) {
  calls = 0;
  fail_at = call;
}

unsigned fake_calls(void) { return calls; }

unsigned fake_calls_of(const char *name) {
  for (fake_counter *c = counters; c != NULL; c = c->next)
    if (strcmp(c->name, name) == 0) return c->calls;
  return 0;
}

// ---- what is alive, what went wrong ----

static atomic_int live[LIVE_KINDS];

void fake_live(live_kind kind, int change) { live[kind] += change; }

int fake_live_count(live_kind kind) { return live[kind]; }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned violations;
static char last_violation[256];
static char last_log[1024];
static int last_log_level = -1;
static atomic_bool verbose, keep_data;

void fake_violation(const char *what) {
  pthread_mutex_lock(&lock);
  violations++;
  snprintf(last_violation, sizeof last_violation, "%s", what);
  pthread_mutex_unlock(&lock);
}

unsigned fake_violations(void) { return violations; }

const char *fake_last_violation(void) { return last_violation; }

void fake_set_verbose(bool on) { verbose = on; }

void fake_keep_data(bool on) { keep_data = on; }

bool fake_keeps_data(void) { return keep_data; }

const char *fake_last_log(void) { return last_log; }

int fake_last_log_level(void) { return last_log_level; }

void fake_reset(void) {
  for (fake_counter *c = counters; c != NULL; c = c->next) c->calls = 0;
  fake_fail_at(0);
  fake_set_verbose(false);
  fake_metrics_off(false);
  fake_traces_off(false);
  fake_keep_data(false);
  violations = 0;
  last_violation[0] = last_log[0] = 0;
  last_log_level = -1;
}

// ---- tritonserver.h ----

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  char *text;
};

static TRITONSERVER_Error *new_error(TRITONSERVER_Error_Code code, const char *text) {
  TRITONSERVER_Error *error = malloc(sizeof *error);
  *error = (TRITONSERVER_Error){code, strdup(text)};
  fake_live(LIVE_ERRORS, 1);
  return error;
}

TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *text) {
  return new_error(code, text);
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error) {
  fake_live(LIVE_ERRORS, -1);
  free(error->text);
  free(error);
}

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error *error) { return error->code; }

const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *error) { return error->text; }

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) {
  return level != TRITONSERVER_LOG_VERBOSE || verbose;
}

TRITONSERVER_Error *TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char *file,
                                            int line, const char *text) {
  CALL();
  pthread_mutex_lock(&lock);
  const char *slash = strrchr(file, '/');
  snprintf(last_log, sizeof last_log, "%s:%d] %s", slash != NULL ? slash + 1 : file, line, text);
  last_log_level = level;
  pthread_mutex_unlock(&lock);
  return NULL;
}

struct TRITONSERVER_Message {
  char *json;
};

TRITONSERVER_Message *fake_message(const char *json) {
  TRITONSERVER_Message *message = malloc(sizeof *message);
  *message = (TRITONSERVER_Message){strdup(json)};
  fake_live(LIVE_MESSAGES, 1);
  return message;
}

const char *fake_message_text(const TRITONSERVER_Message *message) { return message->json; }

TRITONSERVER_Error *TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message **message,
                                                              const char *json, size_t bytes) {
  CALL();
  char *text = strndup(json, bytes);
  *message = fake_message(text);
  free(text);
  return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message *message,
                                                        const char **json, size_t *bytes) {
  CALL();
  *json = message->json;
  *bytes = strlen(message->json);
  return NULL;
}

static void delete_message(TRITONSERVER_Message *message) {
  fake_live(LIVE_MESSAGES, -1);
  free(message->json);
  free(message);
}

// An injected failure deletes all the same, as Triton's deletion cannot fail
// half way.
TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *message) {
  delete_message(message);
  CALL();
  return NULL;
}
