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
} batch_ports;

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
  BATCH_READ,      // it could
  BATCH_REFUSED,   // Triton returned an error
  BATCH_ON_DEVICE, // an input is in memory that the host cannot read, or in
                   // several pieces of which one is
  BATCH_NO_MEMORY  // there is no memory to join the buffers of an input
} batch_reading;

typedef enum {
  BATCH_UNANSWERED,
  BATCH_OUTPUTS, // lanes of the outputs of row `outputs`
  BATCH_FAILURE
} batch_answer;

// A request that outlives its batch, with its answer, which is not sent yet.
typedef struct {
  TRITONBACKEND_Request *request;
  TRITONBACKEND_Response *response;
  TRITONSERVER_Error *failure; // or NULL
} batch_held;

typedef struct {
  TRITONBACKEND_Request *request;
  TRITONBACKEND_Response *response; // NULL once it was sent

  // What was read, in this order; reading ends at the first fault.
  uint32_t flags; // TRITONSERVER_RequestFlag
  uint64_t number;
  const char *text; // NULL where the id is a number
  uint64_t token;   // where Triton keeps the state `token_input` of the request's sequence, or 0
  bool cancelled;
  batch_reading reading;
  uint32_t faulty_input;       // which one, for ON_DEVICE and NO_MEMORY
  TRITONSERVER_Error *refusal; // for REFUSED; the batch's until batch_finish

  // How it is answered.
  batch_answer answer;
  TRITONSERVER_Error *failure; // for FAILURE; the batch's until it was sent
  uint32_t outputs;            // whose outputs: several rows may share one row's
  uint64_t lane, lanes;
  batch_held *held; // not NULL: batch_send and batch_finish leave it to release_held
  bool reserved; // its places are known, and what is on a device is not for us to fill
  bool succeeded;
} batch_row;

enum { BATCH_MAX_RANK = 32 };

// A batched tensor that answers stand in: run x of lane j starts at
// (x*lanes + j) * run_bytes.
typedef struct {
  uintptr_t data; // an address and no pointer: in tests the memory is Go's
  uint64_t runs, run_bytes, lanes;
  TRITONSERVER_DataType type;
  int64_t shape[BATCH_MAX_RANK]; // of one answer
  uint32_t rank;
  bool whole; // data is all of one answer, not lanes of a batched tensor
} batch_output;

// Where Triton wants an output of an answer.
typedef struct {
  char *buffer; // NULL for an output of no bytes, or that nobody wants
  uint64_t bytes;
  bool on_device;
} batch_place;

typedef struct {
  TRITONBACKEND_ModelInstance *instance;
  batch_ports inputs, outputs;
  bool text_ids; // ask for the text first
  char *token_input; // one of Triton's own states, or NULL
  bool takes_device; // inputs may be in the memory of a GPU

  uint32_t count; // requests of this batch
  batch_row *rows;
  batch_input *row_inputs;   // row r's are at r * inputs.count
  bool *row_wanted;          // which outputs row r wants, at r * outputs.count
  batch_output *row_outputs; // what row r was first to be answered with, likewise
  batch_place *row_places;   // where its outputs go, if it is reserved, likewise
  uint32_t capacity;         // rows that the arrays have room for

  char *joined; // inputs that came in several buffers, one behind the other
  uint64_t joined_bytes, joined_capacity;

  uint64_t exec_start_ns;
} batch;

// batch_new makes a batch for an instance. The names must outlive it; token_input
// is the batch's, if it is set. NULL: no memory.
batch *batch_new(TRITONBACKEND_ModelInstance *instance, batch_ports inputs, batch_ports outputs,
                 bool text_ids);
void batch_free(batch *b);

// batch_open makes a response for every request and reads them all. After an
// error nothing was taken and the batch is as before; a request that could not
// be read is a row with its `reading`, and no error.
TRITONSERVER_Error *batch_open(batch *b, TRITONBACKEND_Request **requests, uint32_t count);

// batch_reserve asks Triton where the answer to a row is to go, whose outputs are
// noted as that row's. Whoever asks fills those that are on a device.
TRITONSERVER_Error *batch_reserve(batch *b, uint32_t row, uint64_t lanes);

// batch_send sends the responses of the rows that have an answer and were not
// sent yet. An answer that cannot be sent becomes an error of that row.
void batch_send(batch *b);

// batch_finish answers what nobody answered, reports the statistics and
// releases the requests that are not held. Times are those of clock_now_ns; both are zero when no
// model ran.
void batch_finish(batch *b, uint64_t compute_start_ns, uint64_t compute_end_ns);

// batch_hold keeps a row from being sent and released with its batch. The result is for
// release_held, which does both: on any thread, also when the batch is freed. It is NULL
// where there is no memory, and then the row is as any other.
batch_held *batch_hold(batch *b, uint32_t row);
void release_held(batch_held *held);

// clock_now_ns is CLOCK_MONOTONIC, the clock of Triton's statistics.
uint64_t clock_now_ns(void);
