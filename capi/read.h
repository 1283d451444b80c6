// Reading the requests of a batch.
#pragma once

#include "batch.h"

// read_requests fills the requests. It cannot fail: what cannot be read is the
// fault of that request.
void read_requests(batch *b);

// read_trim gives back the memory of joined buffers where one batch needed
// unusually much.
void read_trim(batch *b);
