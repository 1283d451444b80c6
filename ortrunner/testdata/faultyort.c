// An ONNX Runtime whose calls fail when a test says so. It opens the real library
// of FAULTY_ORT_LIBRARY and puts a function in front of every API function
// that package ortrunner uses and that can fail. The file FAULTY_ORT_CONTROL holds
// two numbers that the test maps too: which call fails, and how many were made.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../ortapi.h"

// OrtApiBase.
typedef struct {
  const void *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} api_base;

static volatile int64_t *control; // [0] the call that fails, [1] the calls so far
static OrtStatus *(*create_status)(ortx_enum, const char *);

typedef intptr_t word;
typedef OrtStatus *(*any)(word, word, word, word, word, word, word, word);

static OrtStatus *pass(any real, const char *name, word a, word b, word c, word d, word e, word f,
                       word g, word h) {
  if (++control[1] == control[0]) return create_status(1, name);
  return real(a, b, c, d, e, f, g, h);
}

// All arguments are pointers or integers, at most eight; what a function does not
// have is passed along and ignored.
#define X(ordinal, result, name, parameters)                                                       \
  static any real_##name;                                                                          \
  static OrtStatus *fake_##name(word a, word b, word c, word d, word e, word f, word g, word h) {  \
    return pass(real_##name, "injected failure of " #name, a, b, c, d, e, f, g, h);                \
  }
ORTX_FUNCTIONS(X)
#undef X

// These do not fail here: the first makes the failures, the second would leak by
// failing.
enum { CREATE_STATUS = 0, ALLOCATOR_FREE = 76 };

static void patch(void **table) {
#define X(ordinal, result, name, parameters)                                                       \
  real_##name = (any)table[ordinal];                                                               \
  if (__builtin_types_compatible_p(result, OrtStatus *) && ordinal != CREATE_STATUS &&             \
      ordinal != ALLOCATOR_FREE)                                                                   \
    table[ordinal] = (void *)fake_##name;
  ORTX_FUNCTIONS(X)
#undef X
}

__attribute__((visibility("default"))) const api_base *OrtGetApiBase(void) {
  static const api_base *base;
  if (base != NULL) return base;
  int file = open(getenv("FAULTY_ORT_CONTROL"), O_RDWR);
  control = mmap(NULL, 2 * sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  void *library = dlopen(getenv("FAULTY_ORT_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  if (control == MAP_FAILED || library == NULL) abort();
  base = ((const api_base *(*)(void))dlsym(library, "OrtGetApiBase"))();
  void **table = (void **)base->GetApi(ORTX_API_VERSION);
  create_status = (OrtStatus * (*)(ortx_enum, const char *)) table[CREATE_STATUS];
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)table / page * page;
  if (mprotect((void *)at, 2 * page, PROT_READ | PROT_WRITE) != 0) abort();
  patch(table);
  return base;
}
