// Responses and their outputs.
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_outputs(TRITONBACKEND_Output *output) {
  while (output != NULL) {
    TRITONBACKEND_Output *next = output->next;
    free(output->name);
    free(output->shape);
    free(output->data);
    free(output);
    output = next;
  }
}

static void free_response(TRITONBACKEND_Response *response) {
  fake_live(LIVE_RESPONSES, -1);
  free_outputs(response->outputs);
  free(response);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseNew(TRITONBACKEND_Response **response,
                                              TRITONBACKEND_Request *request) {
  if (request->released) fake_violation("a response to a released request");
  CALL();
  if (request->responses++ > 0) fake_violation("two responses to one request");
  *response = malloc(sizeof **response);
  **response = (TRITONBACKEND_Response){.request = request};
  fake_live(LIVE_RESPONSES, 1);
  return NULL;
}

// The request keeps the count: front ends have a place for each response that was made, so
// that another one would be one too many.
TRITONSERVER_Error *TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response) {
  free_response(response);
  CALL();
  return NULL;
}

static TRITONSERVER_Error *set_parameter(TRITONBACKEND_Response *response, const char *name,
                                         TRITONSERVER_ParameterType type, int64_t value) {
  fake_set_parameters *p = &response->parameters;
  for (unsigned i = 0; i < p->count; i++)
    if (strcmp(p->list[i].name, name) == 0) fake_violation("a parameter of a response is set twice");
  if (p->count == FAKE_SET_PARAMETERS) {
    fake_violation("too many parameters in a response");
    return NULL;
  }
  snprintf(p->list[p->count].name, sizeof p->list[0].name, "%s", name);
  p->list[p->count].type = type;
  p->list[p->count++].value = value;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response *response,
                                                          const char *name, int64_t value) {
  CALL();
  return set_parameter(response, name, TRITONSERVER_PARAMETER_INT, value);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetBoolParameter(TRITONBACKEND_Response *response,
                                                           const char *name, bool value) {
  CALL();
  return set_parameter(response, name, TRITONSERVER_PARAMETER_BOOL, value);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *response,
                                                 TRITONBACKEND_Output **output, const char *name,
                                                 TRITONSERVER_DataType type, const int64_t *shape,
                                                 uint32_t rank) {
  CALL();
  TRITONBACKEND_Output *made = calloc(1, sizeof *made);
  made->response = response;
  made->name = strdup(name);
  made->type = type;
  made->rank = rank;
  made->shape = malloc(rank * sizeof *shape + 1);
  memcpy(made->shape, shape, rank * sizeof *shape);
  made->next = response->outputs;
  *output = response->outputs = made;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *output, void **buffer,
                                               uint64_t bytes,
                                               TRITONSERVER_MemoryType *memory_type,
                                               int64_t *memory_type_id) {
  CALL();
  output->data = bytes != 0 ? malloc(bytes) : NULL;
  output->bytes = bytes;
  *buffer = output->data;
  *memory_type = output->response->request->output_memory;
  *memory_type_id = 0;
  return NULL;
}

// The response is taken also where sending is made to fail.
TRITONSERVER_Error *TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *response, uint32_t flags,
                                               TRITONSERVER_Error *error) {
  TRITONBACKEND_Request *request = response->request;
  if (request->released) fake_violation("a released request is answered");
  if (request->sent++ > 0) fake_violation("a request is answered twice");
  request->send_flags = flags;
  request->failed = error != NULL;
  if (error != NULL) {
    request->code = TRITONSERVER_ErrorCode(error);
    request->message = strdup(TRITONSERVER_ErrorMessage(error));
  } else {
    request->answer = response->outputs;
    request->answer_parameters = response->parameters;
    response->outputs = NULL;
  }
  free_response(response);
  CALL();
  return NULL;
}

void fake_forget_answer(TRITONBACKEND_Request *request) {
  free_outputs(request->answer);
  free(request->message);
  request->answer = NULL;
  request->message = NULL;
  request->failed = false;
  request->responses = request->sent = request->released = 0;
  request->answer_parameters = (fake_set_parameters){0};
  request->statistics = (fake_statistics){0};
  if (request->trace != NULL) request->trace->count = 0;
}
