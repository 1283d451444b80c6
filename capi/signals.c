#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dl_iterate_phdr, REG_RIP
#endif
#include "signals.h"

#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

// ---- which code is ours ----

typedef struct {
  uintptr_t low, high;
} code_range;

// The executable part of this library, Go's code and the C code in it.
static code_range own_code;

static int find_own_code(struct dl_phdr_info *object, size_t size, void *range) {
  (void)size;
  uintptr_t here = (uintptr_t)find_own_code;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &object->dlpi_phdr[i];
    uintptr_t low = object->dlpi_addr + part->p_vaddr;
    if (part->p_type != PT_LOAD || here < low || here >= low + part->p_memsz) continue;
    *(code_range *)range = (code_range){low, low + part->p_memsz};
    return 1;
  }
  return 0;
}

static bool is_own_code(uintptr_t address) {
  return address >= own_code.low && address < own_code.high;
}

static uintptr_t fault_address(const ucontext_t *context) {
#if defined(__x86_64__)
  return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (uintptr_t)context->uc_mcontext.pc;
#else
#error "unknown architecture: want the program counter of ucontext_t"
#endif
}

// ---- faults ----

static struct sigaction go_handler;

// What handled SIGSEGV before our handler. It is read in a signal handler, so it
// is replaced as a whole, and the old one is kept in case it is being read: that
// happens once or twice in the life of a process.
typedef struct replaced {
  struct sigaction action;
  struct replaced *older;
} replaced;
static _Atomic(replaced *) before_ours;

static void call_handler(const struct sigaction *action, int number, siginfo_t *info,
                         void *context) {
  if (action->sa_flags & SA_SIGINFO) {
    action->sa_sigaction(number, info, context);
  } else if (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN) {
    signal(number, SIG_DFL); // the instruction faults again and ends the process
  } else {
    action->sa_handler(number);
  }
}

static void on_fault(int number, siginfo_t *info, void *context) {
  bool by_kernel = info->si_code > 0; // and not by kill(2)
  bool ours = by_kernel && is_own_code(fault_address(context));
  call_handler(ours ? &go_handler : &before_ours->action, number, info, context);
}

// reaches_go reports whether a fault of Go code gets to Go's handler when this
// action takes it. A handler that is not ours but asks for the alternate stack
// and the details is a well-behaved one that was installed in front of ours and
// forwards signals that are not its own, as another Go library's does; going in
// front of it again would make two such libraries call each other forever.
static bool reaches_go(const struct sigaction *action) {
  if (action->sa_sigaction == go_handler.sa_sigaction || action->sa_sigaction == on_fault)
    return true;
  int well_behaved = SA_ONSTACK | SA_SIGINFO;
  return before_ours != NULL && (action->sa_flags & well_behaved) == well_behaved;
}

static void take_over_faults(void) {
  struct sigaction now;
  sigaction(SIGSEGV, NULL, &now);
  if (reaches_go(&now)) return; // another thread was faster
  replaced *before = malloc(sizeof *before);
  if (before == NULL) return; // the next batch tries again
  *before = (replaced){now, before_ours};
  before_ours = before;
  struct sigaction ours = {.sa_sigaction = on_fault,
                           .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
  sigfillset(&ours.sa_mask); // as Go's own handler has it
  sigaction(SIGSEGV, &ours, NULL);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_faults(void) {
  struct sigaction now;
  if (go_handler.sa_sigaction == NULL || sigaction(SIGSEGV, NULL, &now) != 0) return;
  if (reaches_go(&now)) return;
  pthread_mutex_lock(&lock);
  take_over_faults();
  pthread_mutex_unlock(&lock);
}

// ---- the alternate stack for all others ----

// Those that servers handle.
static const int others[] = {SIGTERM, SIGINT, SIGABRT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
enum { OTHERS = sizeof others / sizeof others[0] };

static bool is_handler(const struct sigaction *action) {
  return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

static void keep_on_stack(int number) {
  struct sigaction now;
  if (sigaction(number, NULL, &now) != 0) return;
  if (!is_handler(&now) || (now.sa_flags & SA_ONSTACK)) return;
  now.sa_flags |= SA_ONSTACK;
  sigaction(number, &now, NULL);
}

// ---- the moments ----

void signals_adopt(void) {
  pthread_mutex_lock(&lock);
  if (own_code.high == 0) dl_iterate_phdr(find_own_code, &own_code);
  struct sigaction now;
  sigaction(SIGSEGV, NULL, &now);
  bool is_go = is_own_code((uintptr_t)now.sa_handler) && now.sa_sigaction != on_fault;
  if (is_go) go_handler = now;
  pthread_mutex_unlock(&lock);
}

void signals_keep(void) {
  static atomic_uint turn;
  keep_faults();
  keep_on_stack(others[turn++ % OTHERS]); // each in its turn: one system call, not seven
}

static void keep_all(void) {
  keep_faults();
  for (int number = 1; number < SIGNALS; number++)
    if (number != SIGSEGV) keep_on_stack(number);
}

// ---- around code that replaces handlers ----

void signals_save(signals_saved *saved) {
  for (int number = 1; number < SIGNALS; number++)
    if (sigaction(number, NULL, &saved->of[number]) != 0) saved->of[number].sa_handler = SIG_DFL;
}

void signals_restore(const signals_saved *saved) {
  for (int number = 1; number < SIGNALS; number++) {
    const struct sigaction *before = &saved->of[number];
    struct sigaction now;
    if (!is_handler(before) || sigaction(number, NULL, &now) != 0) continue;
    if (now.sa_handler != before->sa_handler) sigaction(number, before, NULL);
  }
  keep_all();
}
