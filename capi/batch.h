// A batch in C: one crossing reads everything that Go wants to know of all
// requests into arrays, one crossing sends the answers, one reports and
// releases. Go calling Triton's functions one by one costs 40 % more inside
// Execute (64 calls: 0.3 us from C, 5 us from Go).
//
// An instance makes one batch and uses it for every Execute, one at a time. The
// arrays keep their size, so that a batch that is no larger than one before
// allocates nothing.
#pragma once

#include "table.h"

// The names of an instance's inputs or outputs, each a C string that lives as
// long as the batch.
typedef struct {
  const char **names;
  uint32_t count;
} batch_names;

// One input of one request. Shape and data are Triton's until the request is
// released, or the batch's own where it had to join several buffers.
typedef struct {
  bool present; // the request has this input
  TRITONSERVER_DataType type;
  const int64_t *shape;
  uint32_t rank;
  const char *data; // one contiguous piece in host memory, if not on_device
  uint64_t bytes;
  bool on_device; // data is an address of a GPU
  bool is_joined; // several buffers, in the batch's `joined` from here on:
  uint64_t joined_at;
} batch_input;

// Why a request could not be read.
typedef enum {
  BATCH_READ,      // it was
  BATCH_REFUSED,   // Triton returned an error
  BATCH_ON_DEVICE, // an input is in memory that the host cannot read, or in
                   // several buffers of which one is
  BATCH_NO_MEMORY  // out of memory to join the buffers of an input
} batch_reading;

// A parameter of a request, with a name of the backend's. All of it is Triton's.
typedef struct {
  const char *name; // as the client wrote it
  TRITONSERVER_ParameterType type;
  const void *value; // see TRITONBACKEND_RequestParameter
} batch_parameter;

typedef enum {
  BATCH_UNANSWERED,
  BATCH_OUTPUTS, // lanes of the outputs of request `outputs`
  BATCH_FAILURE,
  BATCH_PARKED // not in this batch: the request was parked, with its response
} batch_answer;

// The parameters of an answer: backend.AnswerParameters.
typedef struct {
  bool given; // else the answer has none
  bool resumed;
  int64_t step, saved_step;
} batch_described;

// A request whose answer waits: see held.h.
typedef struct batch_held batch_held;

// What the run of a request did when: backend.RunTimes.
typedef struct {
  int64_t gather, run, store, end;
} batch_times;

typedef struct {
  TRITONBACKEND_Request *request;
  TRITONBACKEND_Response *response; // NULL once it was sent

  // What was read, in this order; reading ends at the first fault.
  uint32_t flags; // TRITONSERVER_RequestFlag
  uint64_t number;
  const char *string; // the sequence ID, or NULL where it is `number`
  uint64_t token;   // where Triton keeps the state `token_input` of the request's sequence, or 0
  uint32_t first_parameter, parameter_count; // in the batch's `parameters`
  bool cancelled;
  uint64_t timeout_us; // 0: none
  TRITONSERVER_InferenceTrace *trace; // or NULL
  batch_reading reading;
  uint32_t faulty_input;       // which one, for ON_DEVICE and NO_MEMORY
  TRITONSERVER_Error *refusal; // for REFUSED; the batch's until batch_finish

  // How it is answered.
  batch_answer answer;
  TRITONSERVER_Error *failure; // for FAILURE; the batch's until it was sent
  uint32_t outputs;            // whose outputs: several requests may share one's
  uint64_t lane, lanes;
  batch_described described;
  batch_held *held; // not NULL: the answer waits, and the request with it
  bool reserved; // its buffers are known, and batch_send does not fill those on a device
  bool succeeded;
  batch_times times; // of a request that is traced
} batch_request;

enum { BATCH_MAX_RANK = 32 };

// A batched tensor that answers are in: piece x of lane j starts at
// (x*lanes + j) * piece_bytes.
typedef struct {
  uintptr_t data; // an address and no pointer: in tests the memory is Go's
  uint64_t pieces, piece_bytes, lanes;
  TRITONSERVER_DataType type;
  int64_t shape[BATCH_MAX_RANK]; // of one answer
  uint32_t rank;
  bool whole; // data is all of one answer, not lanes of a batched tensor
} batch_output;

// The buffer that Triton wants an output of an answer in.
typedef struct {
  char *buffer; // NULL for an output of no bytes, or that is not wanted
  uint64_t bytes;
  bool on_device;
} batch_buffer;

typedef struct {
  TRITONBACKEND_ModelInstance *instance;
  batch_names inputs, outputs;
  bool string_ids; // ask for the sequence ID as a string first
  char *token_input; // one of Triton's own states, or NULL
  bool takes_device; // inputs may be in the memory of a GPU
  bool takes_parameters;
  bool takes_timeouts;
  bool untraced; // this server has no traces

  uint32_t count; // requests of this batch
  batch_request *requests;
  batch_input *request_inputs;   // those of request r are at r * inputs.count
  bool *request_wanted;          // which outputs request r wants, at r * outputs.count
  batch_output *request_outputs; // what request r was first to be answered with, likewise
  batch_buffer *request_buffers; // where its outputs go, if it is reserved, likewise
  uint32_t capacity;             // requests that the arrays have room for

  batch_parameter *parameters; // of all requests, one request after the other
  uint32_t parameter_count, parameter_capacity;

  char *joined; // inputs that came in several buffers, one after the other
  uint64_t joined_bytes, joined_capacity;

  uint64_t exec_start_ns;
} batch;

// batch_new makes a batch for an instance. The names must outlive it; token_input
// is the batch's, if it is set. NULL: no memory.
batch *batch_new(TRITONBACKEND_ModelInstance *instance, batch_names inputs, batch_names outputs,
                 bool string_ids);
void batch_free(batch *b);

// batch_open makes a response for every request and reads them all. After an
// error nothing was taken and the batch is as before; a request that could not
// be read has its `reading`, and is no error. Requests that were parked have
// responses, which are taken; for others responses is NULL.
TRITONSERVER_Error *batch_open(batch *b, TRITONBACKEND_Request **requests,
                               TRITONBACKEND_Response **responses, uint32_t count);

// batch_reserve asks Triton for the buffers of a request's answer, whose outputs are
// in request_outputs. The caller fills those that are on a device.
TRITONSERVER_Error *batch_reserve(batch *b, uint32_t r, uint64_t lanes);

// batch_send sends the responses of the requests that have an answer and were not
// sent yet. An answer that cannot be sent becomes an error of that request.
void batch_send(batch *b);

// batch_finish answers the requests that have no answer with an error, reports the
// statistics and releases the requests that are neither held nor parked. Times are those of
// clock_now_ns; both are zero when no model ran.
void batch_finish(batch *b, uint64_t compute_start_ns, uint64_t compute_end_ns);

// batch_hold delays the answer to a request, its report and its release until held_release
// was called as often as batch_hold, and batch_finish has returned. It is NULL when out of
// memory, and then the request is as any other.
batch_held *batch_hold(batch *b, uint32_t r);

// held_release is called on any thread. It changes the answer: its parameters, if described is
// given, and to failure, if that is not NULL, which it takes. Does nothing to NULL.
void held_release(batch_held *held, batch_described described, TRITONSERVER_Error *failure);

// clock_now_ns is CLOCK_MONOTONIC, the clock of Triton's statistics.
uint64_t clock_now_ns(void);
