// What tritonserver and other libraries do to the signal handlers of the
// process. Nothing of it can be undone: for child processes of a test.
#pragma once

#include <stdbool.h>

// host_take_signals replaces the handlers as tritonserver does once its start-up
// models are loaded, with handlers that exit with HOST_HANDLED.
void host_take_signals(void);
enum { HOST_HANDLED = 42 };

// host_put_forwarder puts a handler of SIGSEGV in front that hands on all it
// gets, as another library with a Go runtime would.
void host_put_forwarder(void);
bool host_forwarder_is_first(void);
unsigned host_forwarded(void);

// host_on_stack tells whether the handler of a signal asks for the alternate
// stack.
bool host_on_stack(int number);

// host_fault_elsewhere faults in code of the C library.
void host_fault_elsewhere(void);
