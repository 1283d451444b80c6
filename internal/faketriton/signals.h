// What tritonserver and other libraries do to the signal handlers of the
// process. Nothing of it can be undone: for child processes of a test.
#pragma once

#include <stdbool.h>

// fake_take_signals replaces the handlers as tritonserver does once its start-up
// models are loaded, with handlers that exit with FAKE_HANDLED.
void fake_take_signals(void);
enum { FAKE_HANDLED = 42 };

// fake_put_forwarder installs a handler of SIGSEGV in front of all others that
// forwards every signal, as another library with a Go runtime would.
void fake_put_forwarder(void);
bool fake_forwarder_is_first(void);
unsigned fake_forwarded(void);

// fake_on_stack reports whether the handler of a signal asks for the alternate
// stack.
bool fake_on_stack(int number);

// fake_fault_elsewhere faults in code of the C library.
void fake_fault_elsewhere(void);
