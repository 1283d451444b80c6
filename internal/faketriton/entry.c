// The library's entry points, found as Triton finds them: by name.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "server.h"

static void *entry(const char *name) {
  void *found = dlsym(RTLD_DEFAULT, name);
  if (found == NULL) {
    fprintf(stderr, "faketriton: this program has no entry point %s\n", name);
    abort();
  }
  return found;
}

// CALL_ENTRY calls an entry point through its own prototype.
#define CALL_ENTRY(name, ...) ((__typeof__(&name))entry(#name))(__VA_ARGS__)

TRITONSERVER_Error *fake_initialize(TRITONBACKEND_Backend *backend) {
  return CALL_ENTRY(TRITONBACKEND_Initialize, backend);
}

TRITONSERVER_Error *fake_initialize_through(const char *library, TRITONBACKEND_Backend *backend) {
  void *opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == NULL) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, dlerror());
  __typeof__(&TRITONBACKEND_Initialize) call =
      (__typeof__(call))dlsym(opened, "TRITONBACKEND_Initialize");
  TRITONSERVER_Error *error = call(backend);
  dlclose(opened);
  return error;
}

TRITONSERVER_Error *fake_finalize(TRITONBACKEND_Backend *backend) {
  return CALL_ENTRY(TRITONBACKEND_Finalize, backend);
}

TRITONSERVER_Error *fake_get_attribute(TRITONBACKEND_Backend *backend,
                                       TRITONBACKEND_BackendAttribute *attribute) {
  return CALL_ENTRY(TRITONBACKEND_GetBackendAttribute, backend, attribute);
}

TRITONSERVER_Error *fake_model_initialize(TRITONBACKEND_Model *model) {
  return CALL_ENTRY(TRITONBACKEND_ModelInitialize, model);
}

TRITONSERVER_Error *fake_model_finalize(TRITONBACKEND_Model *model) {
  return CALL_ENTRY(TRITONBACKEND_ModelFinalize, model);
}

TRITONSERVER_Error *fake_instance_initialize(TRITONBACKEND_ModelInstance *instance) {
  return CALL_ENTRY(TRITONBACKEND_ModelInstanceInitialize, instance);
}

TRITONSERVER_Error *fake_instance_finalize(TRITONBACKEND_ModelInstance *instance) {
  return CALL_ENTRY(TRITONBACKEND_ModelInstanceFinalize, instance);
}

TRITONSERVER_Error *fake_instance_ready(TRITONBACKEND_ModelInstance *instance) {
  return CALL_ENTRY(TRITONBACKEND_ModelInstanceReady, instance);
}

typedef struct {
  TRITONBACKEND_ModelInstance *instance;
  TRITONBACKEND_Request **requests;
  uint32_t count;
  uint32_t stride; // from one time to the next
  unsigned times;
  uint64_t ns;
  TRITONSERVER_Error *error;
} execution;

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void execute(execution *x) {
  __typeof__(&TRITONBACKEND_ModelInstanceExecute) call =
      entry("TRITONBACKEND_ModelInstanceExecute");
  for (unsigned i = 0; i < x->times && x->error == NULL; i++) {
    TRITONBACKEND_Request **requests = x->requests + (size_t)i * x->stride;
    for (uint32_t r = 0; r < x->count; r++) fake_forget_answer(requests[r]);
    uint64_t start = now_ns();
    x->error = call(x->instance, requests, x->count);
    x->ns += now_ns() - start;
  }
}

// ---- the thread of an instance ----

// Triton has one for each instance from its making to its end, so that what a
// thread keeps (arenas, scratch memory, its caches) is there in later batches.
struct fake_thread {
  pthread_t thread;
  pthread_mutex_t turn; // held by the one caller whose work it is
  pthread_mutex_t lock; // guards what follows
  pthread_cond_t changed;
  execution *work; // NULL: none
  bool over;
};

static void *run_thread(void *argument) {
  fake_thread *t = argument;
  pthread_mutex_lock(&t->lock);
  while (!t->over) {
    if (t->work != NULL) {
      execute(t->work);
      t->work = NULL;
      pthread_cond_broadcast(&t->changed);
    }
    if (!t->over) pthread_cond_wait(&t->changed, &t->lock);
  }
  pthread_mutex_unlock(&t->lock);
  return NULL;
}

fake_thread *fake_new_thread(void) {
  fake_thread *t = calloc(1, sizeof *t);
  if (t == NULL) abort();
  pthread_mutex_init(&t->turn, NULL);
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->changed, NULL);
  if (pthread_create(&t->thread, NULL, run_thread, t) != 0) abort();
  return t;
}

void fake_end_thread(fake_thread *t) {
  pthread_mutex_lock(&t->lock);
  t->over = true;
  pthread_cond_broadcast(&t->changed);
  pthread_mutex_unlock(&t->lock);
  pthread_join(t->thread, NULL);
  free(t);
}

static TRITONSERVER_Error *on_thread(execution x, uint64_t *ns) {
  fake_thread *t = x.instance->thread;
  pthread_mutex_lock(&t->turn);
  pthread_mutex_lock(&t->lock);
  t->work = &x;
  pthread_cond_broadcast(&t->changed);
  while (t->work != NULL) pthread_cond_wait(&t->changed, &t->lock);
  pthread_mutex_unlock(&t->lock);
  pthread_mutex_unlock(&t->turn);
  if (ns != NULL) *ns = x.ns;
  return x.error;
}

TRITONSERVER_Error *fake_execute(TRITONBACKEND_ModelInstance *instance,
                                 TRITONBACKEND_Request **requests, uint32_t count, unsigned times,
                                 uint64_t *ns) {
  return on_thread((execution){instance, requests, count, 0, times, 0, NULL}, ns);
}

TRITONSERVER_Error *fake_execute_each(TRITONBACKEND_ModelInstance *instance,
                                      TRITONBACKEND_Request **requests, uint32_t count,
                                      unsigned batches, uint64_t *ns) {
  return on_thread((execution){instance, requests, count, count, batches, 0, NULL}, ns);
}
