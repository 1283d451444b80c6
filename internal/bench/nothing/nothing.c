// A Triton backend that computes nothing: it answers every request at once with zeros of the right shape. Under a
// benchmark it shows what the server itself costs, the floor that no backend can get below.
//
// It does all that Triton asks of any backend per request (response, outputs, buffers, send, statistics, release) and
// nothing else. What to answer is read when a model loads, from a file outputs.txt in the model's folder that the
// benchmark writes: one line per output,
//
//     NAME DATATYPE DIM DIM ...          for example: Output FP32 1 4 1 5
//
// where the first DIM is the batch axis of a request, 1. (The configuration says the same, but as JSON, which C has no
// reader for.)
//
// If there is a session.txt, too, every batch first runs a step of ONNX Runtime on tensors that are in place already
// (inplace.h). Then it shows what the server and ONNX Runtime cost together, in one process and under one load. Each
// instance has a session of its own.
//
// If there is an implicit.txt instead, which has the same lines, it computes: states are Triton's implicit state, and the
// outputs in outputs.txt those of the model (implicit.h).
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../triton/triton.h"
#include "implicit.h"
#include "inplace.h"

// Two more functions of the ABI, which our library does not use.
TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char *name);
uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype); // 0 for types without a fixed size

#define EXPORT __attribute__((visibility("default")))

enum { MAX_OUTPUTS = 256, MAX_DIMS = 8, MAX_NAME = 256, MAX_LINE = 1024, MAX_PATH = 4096 };

// One output of every answer.
typedef struct {
  char name[MAX_NAME];
  TRITONSERVER_DataType datatype;
  int64_t shape[MAX_DIMS];
  uint32_t dims;
  uint64_t bytes;
} output_spec;

// What Triton keeps for us with a model.
typedef struct {
  output_spec outputs[MAX_OUTPUTS];
  int count;
} answer_spec;

// What Triton keeps for us with an instance that runs ONNX Runtime; others have NULL.
typedef struct {
  inplace *step;
  bool implicit; // it computes, on states that Triton keeps
  int live; // sequences that have begun and not ended
} stepper;

__attribute__((format(printf, 2, 3))) static TRITONSERVER_Error *fail(TRITONSERVER_Error_Code code,
                                                                      const char *format, ...) {
  char text[MAX_PATH + MAX_LINE];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return TRITONSERVER_ErrorNew(code, text);
}

// drop deletes an error that cannot be reported.
static void drop(TRITONSERVER_Error *error) {
  if (error != NULL) {
    TRITONSERVER_ErrorDelete(error);
  }
}

// parse_output reads one line; false if it does not describe an output of a fixed size.
static bool parse_output(char *line, output_spec *output) {
  char *rest = NULL;
  const char *name = strtok_r(line, " \n", &rest);
  const char *datatype = strtok_r(NULL, " \n", &rest);
  if (name == NULL || datatype == NULL || strlen(name) >= MAX_NAME) {
    return false;
  }
  strcpy(output->name, name);
  output->datatype = TRITONSERVER_StringToDataType(datatype);
  output->bytes = TRITONSERVER_DataTypeByteSize(output->datatype);
  for (char *dim; (dim = strtok_r(NULL, " \n", &rest)) != NULL; output->dims++) {
    long long size = strtoll(dim, NULL, 10);
    if (output->dims == MAX_DIMS || size <= 0) {
      return false;
    }
    output->shape[output->dims] = size;
    output->bytes *= (uint64_t)size;
  }
  return output->bytes > 0 && output->dims > 0;
}

static TRITONSERVER_Error *parse_outputs(FILE *file, answer_spec *answer) {
  char line[MAX_LINE];
  while (fgets(line, sizeof line, file) != NULL) {
    if (answer->count == MAX_OUTPUTS || !parse_output(line, &answer->outputs[answer->count])) {
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "outputs.txt, line %d: want NAME DATATYPE DIM..., a type of fixed size, 1 to %d sizes above 0, "
                  "and no more than %d lines",
                  answer->count + 1, MAX_DIMS, MAX_OUTPUTS);
    }
    answer->count++;
  }
  return NULL;
}

static TRITONSERVER_Error *read_outputs(const char *folder, answer_spec *answer) {
  char path[MAX_PATH];
  snprintf(path, sizeof path, "%s/outputs.txt", folder);
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    return fail(TRITONSERVER_ERROR_INVALID_ARG, "cannot open %s", path);
  }
  TRITONSERVER_Error *error = parse_outputs(file, answer);
  fclose(file);
  return error;
}

EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model) {
  TRITONBACKEND_ArtifactType type;
  const char *folder;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelRepository(model, &type, &folder);
  if (error != NULL) {
    return error;
  }
  answer_spec *answer = calloc(1, sizeof *answer);
  if (answer == NULL) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "out of memory");
  }
  error = read_outputs(folder, answer);
  if (error == NULL) {
    error = TRITONBACKEND_ModelSetState(model, answer);
  }
  if (error != NULL) {
    free(answer);
  }
  return error;
}

EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model) {
  void *answer;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelState(model, &answer);
  if (error == NULL) {
    free(answer); // NULL where ModelInitialize failed
  }
  return error;
}

// open_step makes a stepper of a file in a model's folder, if it is there.
static TRITONSERVER_Error *open_step(const char *folder, const char *file, stepper **opened) {
  char path[MAX_PATH], text[MAX_LINE];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  if (access(path, F_OK) != 0) {
    return NULL;
  }
  stepper *state = calloc(1, sizeof *state); // lives as long as the server, as its step does
  if (state == NULL) {
    return fail(TRITONSERVER_ERROR_INTERNAL, "out of memory");
  }
  state->step = inplace_open(path, text, sizeof text);
  if (state->step == NULL) {
    free(state);
    return fail(TRITONSERVER_ERROR_INVALID_ARG, "%s", text);
  }
  *opened = state;
  return NULL;
}

EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance) {
  TRITONBACKEND_Model *model;
  TRITONBACKEND_ArtifactType type;
  const char *folder;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelInstanceModel(instance, &model);
  if (error == NULL) {
    error = TRITONBACKEND_ModelRepository(model, &type, &folder);
  }
  if (error != NULL) {
    return error;
  }
  stepper *state = NULL;
  error = open_step(folder, "session.txt", &state);
  if (error == NULL && state == NULL) {
    error = open_step(folder, "implicit.txt", &state);
    if (state != NULL) {
      state->implicit = true;
    }
  }
  return error != NULL ? error : TRITONBACKEND_ModelInstanceSetState(instance, state);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// add_output sends a value, or zeros if there is none.
static TRITONSERVER_Error *add_output(TRITONBACKEND_Response *response, const output_spec *spec, const char *value) {
  TRITONBACKEND_Output *output;
  TRITONSERVER_Error *error =
      TRITONBACKEND_ResponseOutput(response, &output, spec->name, spec->datatype, spec->shape, spec->dims);
  if (error != NULL) {
    return error;
  }
  void *buffer;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t memory_id = 0;
  error = TRITONBACKEND_OutputBuffer(output, &buffer, spec->bytes, &memory, &memory_id);
  if (error != NULL) {
    return error;
  }
  if (memory == TRITONSERVER_MEMORY_GPU) {
    return fail(TRITONSERVER_ERROR_UNSUPPORTED, "output %s was given GPU memory", spec->name);
  }
  if (value == NULL) {
    memset(buffer, 0, spec->bytes);
  } else {
    memcpy(buffer, value, spec->bytes);
  }
  return NULL;
}

// answer_request sends what the model computed, or zeros, or the error that kept it from that; it returns whether it went
// well. computed is NULL, or has run a batch of so many lanes, in one of which the request was.
static bool answer_request(TRITONBACKEND_Request *request, const answer_spec *answer, const inplace *computed, int lane,
                           int lanes) {
  TRITONBACKEND_Response *response;
  TRITONSERVER_Error *error = TRITONBACKEND_ResponseNew(&response, request);
  if (error != NULL) {
    drop(error);
    return false;
  }
  for (int i = 0; i < answer->count && error == NULL; i++) {
    const output_spec *spec = &answer->outputs[i];
    error = add_output(response, spec, computed == NULL ? NULL : implicit_output(computed, spec->name, lane, lanes));
  }
  if (computed != NULL && error == NULL) {
    error = implicit_keep(computed, request, lane, lanes);
  }
  bool ok = error == NULL;
  drop(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  drop(error);
  return ok;
}

// run_step steps a batch, whose requests all fail if that does.
static TRITONSERVER_Error *run_step(TRITONBACKEND_Request **requests, uint32_t count, stepper *state) {
  if (state->implicit) {
    return implicit_run(state->step, requests, (int)count);
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t flags = 0;
    drop(TRITONBACKEND_RequestFlags(requests[i], &flags));
    state->live += (flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START) != 0;
    state->live -= (flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_END) != 0;
  }
  const char *failure = inplace_run(state->step, (int)count, state->live);
  return failure == NULL ? NULL : fail(TRITONSERVER_ERROR_INTERNAL, "%s", failure);
}

EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *instance,
                                                              TRITONBACKEND_Request **requests, uint32_t count) {
  TRITONBACKEND_Model *model;
  void *spec, *opened;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelInstanceModel(instance, &model);
  if (error == NULL) {
    error = TRITONBACKEND_ModelState(model, &spec);
  }
  if (error == NULL) {
    error = TRITONBACKEND_ModelInstanceState(instance, &opened);
  }
  if (error != NULL) {
    return error;
  }
  stepper *state = opened;
  uint64_t start = now_ns();
  if (state != NULL && (error = run_step(requests, count, state)) != NULL) {
    return error;
  }
  bool ok[count];
  const inplace *computed = state != NULL && state->implicit ? state->step : NULL;
  for (uint32_t i = 0; i < count; i++) {
    ok[i] = answer_request(requests[i], spec, computed, (int)i, (int)count);
  }
  uint64_t end = now_ns();
  for (uint32_t i = 0; i < count; i++) {
    drop(TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], ok[i], start, start, end, end));
    drop(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  drop(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, count, start, start, end, end));
  return NULL;
}
