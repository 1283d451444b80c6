#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "signals.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static void on_signal(int number) {
  (void)number;
  _exit(FAKE_HANDLED);
}

void fake_take_signals(void) {
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
  signal(SIGSEGV, on_signal);
  signal(SIGABRT, on_signal);
}

static struct sigaction next;
static volatile unsigned forwarded;

static void forward(int number, siginfo_t *info, void *context) {
  forwarded++;
  next.sa_sigaction(number, info, context);
}

void fake_put_forwarder(void) {
  struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigfillset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &next);
}

bool fake_forwarder_is_first(void) {
  struct sigaction now;
  return sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == forward;
}

unsigned fake_forwarded(void) { return forwarded; }

bool fake_on_stack(int number) {
  struct sigaction now;
  return sigaction(number, NULL, &now) == 0 && (now.sa_flags & SA_ONSTACK) != 0;
}

void fake_fault_elsewhere(void) {
  size_t (*volatile length)(const char *) = strlen; // or the compiler writes its own
  const char *volatile nowhere = (const char *)16;
  (void)length(nowhere);
}
