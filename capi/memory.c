#include "memory.h"

// More memories than these are not reported; a machine has fewer GPUs.
enum { MEMORIES = 64 };

bool memory_is_taken(void) {
  return triton.TRITONBACKEND_ModelReportMemoryUsage != NULL &&
         triton.TRITONSERVER_BufferAttributesNew != NULL &&
         triton.TRITONSERVER_BufferAttributesDelete != NULL &&
         triton.TRITONSERVER_BufferAttributesSetMemoryType != NULL &&
         triton.TRITONSERVER_BufferAttributesSetMemoryTypeId != NULL &&
         triton.TRITONSERVER_BufferAttributesSetByteSize != NULL;
}

static TRITONSERVER_Error *attributes_of(const memory_use *use, TRITONSERVER_BufferAttributes **a) {
  TRITONSERVER_Error *failed = triton.TRITONSERVER_BufferAttributesNew(a);
  if (failed != NULL) return failed;
  failed = triton.TRITONSERVER_BufferAttributesSetMemoryType(
      *a, use->device < 0 ? TRITONSERVER_MEMORY_CPU : TRITONSERVER_MEMORY_GPU);
  if (failed == NULL)
    failed = triton.TRITONSERVER_BufferAttributesSetMemoryTypeId(*a, use->device < 0 ? 0 : use->device);
  if (failed == NULL) failed = triton.TRITONSERVER_BufferAttributesSetByteSize(*a, use->bytes);
  return failed;
}

TRITONSERVER_Error *memory_report(TRITONBACKEND_Model *of, const memory_use *uses, uint32_t count) {
  TRITONSERVER_BufferAttributes *all[MEMORIES] = {NULL};
  TRITONSERVER_Error *failed = NULL;
  if (count > MEMORIES) count = MEMORIES;
  for (uint32_t i = 0; i < count && failed == NULL; i++) failed = attributes_of(&uses[i], &all[i]);
  if (failed == NULL) failed = triton.TRITONBACKEND_ModelReportMemoryUsage(of, all, count);
  for (uint32_t i = 0; i < count; i++)
    if (all[i] != NULL)
      error_log("deleting the attributes of a buffer",
                triton.TRITONSERVER_BufferAttributesDelete(all[i]));
  return failed;
}
