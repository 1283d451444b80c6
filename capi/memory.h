// Tells Triton what a model holds of each memory.
#pragma once

#include "table.h"

typedef struct {
  int64_t device; // of a GPU; less than 0: the host's memory
  uint64_t bytes;
} memory_use;

// memory_is_taken reports whether this server takes such reports.
bool memory_is_taken(void);

// memory_report replaces what was reported of the model before.
TRITONSERVER_Error *memory_report(TRITONBACKEND_Model *of, const memory_use *uses, uint32_t count);
