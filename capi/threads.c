#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>

// The Go runtime starts its threads with pthread_create. In the library the linker makes that
// __wrap_pthread_create (--wrap, see internal/build/library.go), because of one of them: sysmon.
//
// sysmon wakes every 20 us to retake the P of threads that stay in C, as ours do while a model
// runs. No other thread needs that P (see procs.go), so the wake-ups are wasted: they cost 4 to
// 6 % of a server's CPU time where a run takes about 1 ms. With a timer slack of 20 ms its sleeps
// end together with other timers.
//
// Other threads need less. One that takes a goroutine from another thread's P sleeps for 3 us
// first (runqgrab in runtime/proc.go), and for as long as its slack: with 20 ms a batch would wait
// that long for a lock that is free. With the server's 50 us such threads are awake for nothing
// where goroutines often wake each other, as they do to save states.
enum { SYSMON_SLACK_NS = 20 * 1000 * 1000, SLACK_NS = 1000 * 1000 };

// SYSMON is the number of sysmon among the threads. The first one runs the runtime's main, which
// starts sysmon before anything else. A test checks it: test_process.py.
enum { SYSMON = 2 };

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg);

// __real_pthread_create is pthread_create. It is weak because tests of this package are linked
// without --wrap: they have neither of the two, and call none.
__attribute__((weak)) int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                                                void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg) {
  static atomic_int started;
  int number = atomic_fetch_add(&started, 1) + 1;
  int slack = prctl(PR_GET_TIMERSLACK); // which the new thread inherits
  prctl(PR_SET_TIMERSLACK, (unsigned long)(number == SYSMON ? SYSMON_SLACK_NS : SLACK_NS));
  int failed = __real_pthread_create(thread, attr, start, arg);
  if (slack > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
  return failed;
}
