// Keeps Go's signal handlers and Triton's both working in one process.
//
// Go turns a fault of its own code (a nil dereference) into a panic in its
// SIGSEGV handler. For models that load at start-up, tritonserver installs its
// own handlers after Go has, by plain signal(): they replace Go's, so that a
// recoverable panic would end the server, and they do not ask for the alternate
// stack, so that they would run on the small stack of a goroutine.
#pragma once

#include <signal.h>

// signals_adopt saves Go's SIGSEGV handler. Call it while no other handler has
// replaced it: in Initialize.
void signals_adopt(void);

// signals_keep installs our handler in front of the one that handles SIGSEGV now,
// if that one would not reach Go: faults in this library's code go to Go's handler,
// all others to the one before. Call it before Go code runs that must be able
// to recover: the start-up order of tritonserver gives no single moment
// for it. Costs two system calls. Any thread.
void signals_keep(void);

// The drivers and libraries that a first model on a GPU brings into the process may
// install handlers of their own, over the server's. So loading an instance saves the
// handlers before and restores them after: signals that had no handler keep the new
// one. Then every signal is treated as signals_keep does.
enum { SIGNALS = 32 };
typedef struct {
  struct sigaction of[SIGNALS];
} signals_saved;
void signals_save(signals_saved *saved);
void signals_restore(const signals_saved *saved);
