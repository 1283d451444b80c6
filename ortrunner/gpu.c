// Sessions on a GPU: execution providers, and runs whose tensors stay where they
// are.
#include <stdlib.h>

#include "shim_internal.h"

// The one option that is not a string.
static const char stream_key[] = "user_compute_stream";

OrtStatus *ortx_append_cuda(OrtSessionOptions *options, const char *const *keys,
                            const char *const *values, size_t count, uintptr_t stream) {
  OrtCUDAProviderOptionsV2 *cuda = NULL;
  ORTX_TRY(ortx.CreateCUDAProviderOptions(&cuda));
  OrtStatus *status = ortx.UpdateCUDAProviderOptions(cuda, keys, values, count);
  if (status == NULL)
    status = ortx.UpdateCUDAProviderOptionsWithValue(cuda, stream_key, (void *)stream);
  if (status == NULL)
    status = ortx.SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda);
  ortx.ReleaseCUDAProviderOptions(cuda);
  return status;
}

OrtStatus *ortx_append_tensorrt(OrtSessionOptions *options, const char *const *keys,
                                const char *const *values, size_t count, uintptr_t stream) {
  OrtTensorRTProviderOptionsV2 *tensorrt = NULL;
  ORTX_TRY(ortx.CreateTensorRTProviderOptions(&tensorrt));
  OrtStatus *status = ortx.UpdateTensorRTProviderOptions(tensorrt, keys, values, count);
  if (status == NULL)
    status = ortx.UpdateTensorRTProviderOptionsWithValue(tensorrt, stream_key, (void *)stream);
  if (status == NULL)
    status = ortx.SessionOptionsAppendExecutionProvider_TensorRT_V2(options, tensorrt);
  ortx.ReleaseTensorRTProviderOptions(tensorrt);
  return status;
}

OrtStatus *ortx_new_memory(const char *name, int device, OrtMemoryInfo **memory) {
  const ortx_signed_enum device_allocator = 0, default_memory = 0;
  return ortx.CreateMemoryInfo(name, device_allocator, device, default_memory, memory);
}

void ortx_release_memory(OrtMemoryInfo *memory) {
  if (memory != NULL) ortx.ReleaseMemoryInfo(memory);
}

// ---- bindings --------------------------------------------------------------

static OrtStatus *bind_tensors(const ortx_call *call, const OrtMemoryInfo *memory,
                               ortx_binding *b) {
  ORTX_TRY(ortx.CreateIoBinding(call->session, &b->bound));
  for (size_t i = 0; i < call->input_count; i++)
    ORTX_TRY(ortx.BindInput(b->bound, call->input_names[i], call->inputs[i]));
  for (size_t i = 0; i < call->output_count; i++) {
    const char *name = call->output_names[i];
    if (name == NULL) continue;
    if (call->outputs[i] != NULL) {
      ORTX_TRY(ortx.BindOutput(b->bound, name, call->outputs[i]));
      continue;
    }
    b->allocates = true;
    ORTX_TRY(ortx.BindOutputToDevice(b->bound, name, memory));
  }
  return NULL;
}

OrtStatus *ortx_bind(const ortx_call *call, const OrtMemoryInfo *memory, const char *const *keys,
                     const char *const *values, size_t count, ortx_binding **binding) {
  ortx_binding *b = calloc(1, sizeof *b);
  if (b == NULL) return ortx.CreateStatus(ORTX_FAIL, "no memory for the arguments of a run");
  b->memory = memory;
  OrtStatus *status = bind_tensors(call, memory, b);
  if (status == NULL) status = ortx_new_run_options(keys, values, count, &b->options);
  if (status != NULL) {
    ortx_free_binding(b);
    return status;
  }
  *binding = b;
  return NULL;
}

void ortx_free_binding(ortx_binding *b) {
  if (b == NULL) return;
  if (b->bound != NULL) ortx.ReleaseIoBinding(b->bound);
  if (b->options != NULL) ortx.ReleaseRunOptions(b->options);
  free(b);
}

// The outputs that ONNX Runtime has allocated become results; those that were
// bound are known.
static OrtStatus *take_results(ortx_call *call, const ortx_binding *b) {
  OrtValue **values = NULL;
  size_t count = 0;
  ORTX_TRY(ortx.GetBoundOutputValues(b->bound, ortx_allocator, &values, &count));
  for (size_t i = 0, k = 0; i < call->output_count && k < count; i++) {
    if (call->output_names[i] == NULL) continue; // so it is not among them
    if (call->results[i].wanted)
      call->results[i].value = values[k++];
    else
      ortx.ReleaseValue(values[k++]);
  }
  if (values != NULL) ORTX_TRY(ortx.AllocatorFree(ortx_allocator, values));
  for (size_t i = 0; i < call->output_count; i++)
    if (call->results[i].value != NULL) ORTX_TRY(ortx_read_result(&call->results[i]));
  return NULL;
}

// Makes a binding forget what a run has allocated. Else the next run would have to write
// outputs of the same shapes to the same place, and it would be held for as long as the
// binding lives.
static OrtStatus *forget_outputs(const ortx_call *call, const ortx_binding *b) {
  for (size_t i = 0; i < call->output_count; i++)
    if (call->results[i].wanted)
      ORTX_TRY(ortx.BindOutputToDevice(b->bound, call->output_names[i], b->memory));
  return NULL;
}

static OrtStatus *run_and_take(ortx_call *call, const ortx_binding *b) {
  ORTX_TRY(ortx.RunWithBinding(call->session, b->options, b->bound));
  return b->allocates ? take_results(call, b) : NULL;
}

OrtStatus *ortx_run_bound(ortx_call *call, const ortx_binding *b) {
  ortx_drop_results(call);
  for (size_t i = 0; i < call->output_count; i++)
    call->results[i].wanted = call->outputs[i] == NULL && call->output_names[i] != NULL;
  OrtStatus *status = run_and_take(call, b);
  OrtStatus *unforgotten = forget_outputs(call, b);
  if (status == NULL) return unforgotten;
  if (unforgotten != NULL) ortx.ReleaseStatus(unforgotten);
  return status;
}
