// libtriton_stateful.so: the library that Triton opens. It opens the Go library next
// to it, libtriton_stateful_go.so, and forwards every call.
//
// Two libraries, because Triton opens a backend RTLD_NOW, and the Go library
// may contain go-nvml, which leaves hundreds of nvml* symbols open and counts
// on lazy binding: it can only be opened with RTLD_LAZY.
// A folder without the Go library, or one for another system, becomes an error
// that says so instead of "unable to load shared library".

#include "../resolve.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../internal/triton/triton.h"

#define GO_LIBRARY "libtriton_stateful_go.so"

// Every entry point but Initialize, with its parameters and its arguments.
#define ENTRY_POINTS(ENTRY)                                                        \
  ENTRY(Finalize, (TRITONBACKEND_Backend * b), (b))                                \
  ENTRY(GetBackendAttribute,                                                       \
        (TRITONBACKEND_Backend * b, TRITONBACKEND_BackendAttribute * a), (b, a))   \
  ENTRY(ModelInitialize, (TRITONBACKEND_Model * m), (m))                           \
  ENTRY(ModelFinalize, (TRITONBACKEND_Model * m), (m))                             \
  ENTRY(ModelInstanceInitialize, (TRITONBACKEND_ModelInstance * i), (i))           \
  ENTRY(ModelInstanceFinalize, (TRITONBACKEND_ModelInstance * i), (i))             \
  ENTRY(ModelInstanceReady, (TRITONBACKEND_ModelInstance * i), (i))                \
  ENTRY(ModelInstanceExecute,                                                      \
        (TRITONBACKEND_ModelInstance * i, TRITONBACKEND_Request * *r, uint32_t n), \
        (i, r, n))

// The entry points of the Go library; all NULL until it is open.
#define FIELD(name, params, args) __typeof__(&TRITONBACKEND_##name) name;
static struct {
  FIELD(Initialize, , )
  ENTRY_POINTS(FIELD)
} library;
#undef FIELD

// library_path writes the path of the Go library, next to this one.
static bool library_path(char *path, size_t size) {
  Dl_info self;
  if (dladdr((void *)library_path, &self) == 0) return false;
  const char *slash = strrchr(self.dli_fname, '/');
  int folder = slash != NULL ? (int)(slash + 1 - self.dli_fname) : 0;
  int length = snprintf(path, size, "%.*s" GO_LIBRARY, folder, self.dli_fname);
  return length > 0 && (size_t)length < size;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// extent is how many bytes an ELF file must have by its own headers: up to the last
// segment's end and that of the table of sections, which linkers write last. 0 is not
// known, for a file that is not a library of this kind.
static uint64_t extent(int file) {
  ElfW(Ehdr) head;
  if (pread(file, &head, sizeof head, 0) != (ssize_t)sizeof head) return sizeof head;
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(ElfW(Phdr))) return 0;
  uint64_t most = head.e_shoff + (uint64_t)head.e_shnum * head.e_shentsize;
  for (unsigned i = 0; i < head.e_phnum; i++) {
    ElfW(Phdr) part;
    uint64_t at = head.e_phoff + i * sizeof part;
    if (pread(file, &part, sizeof part, (off_t)at) != (ssize_t)sizeof part) return larger(most, at + sizeof part);
    most = larger(most, part.p_offset + part.p_filesz);
  }
  return most;
}

// is_whole reports whether a library file is complete. dlopen does not check: a file
// that was truncated, as on a full disk, would end the server by SIGBUS.
static bool is_whole(const char *path, char *failure, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return true; // dlopen reports it
  struct stat is;
  uint64_t want = extent(file);
  bool whole = fstat(file, &is) != 0 || (uint64_t)is.st_size >= want;
  close(file);
  if (!whole)
    snprintf(failure, size, "stateful backend: %s is truncated: it has %lld of at least %llu bytes: "
             "copy the backend's folder again, and check that the disk is not full",
             path, (long long)is.st_size, (unsigned long long)want);
  return whole;
}

// open_library fills the table; where it cannot, failure says why, the table
// stays empty and the next Initialize tries again.
static void open_library(char *failure, size_t size) {
  char path[4096];
  if (!library_path(path, sizeof path)) {
    snprintf(failure, size, "stateful backend: the path of libtriton_stateful.so is too long");
    return;
  }
  if (!is_whole(path, failure, size)) return;
  void *opened = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (opened == NULL) {
    snprintf(failure, size, "stateful backend: cannot open its Go library next to "
             "libtriton_stateful.so: %s", dlerror());
    return;
  }
  const char *missing = NULL;
  __typeof__(library) found;
#define FIND(name, params, args)                                                \
  found.name = (__typeof__(found.name))dlsym(opened, "TRITONBACKEND_" #name);   \
  if (found.name == NULL) missing = "TRITONBACKEND_" #name;
  FIND(Initialize, , )
  ENTRY_POINTS(FIND)
#undef FIND
  if (missing == NULL) {
    library = found;
    return;
  }
  dlclose(opened);
  snprintf(failure, size, "stateful backend: %s has no function %s: want the file that was "
           "built together with libtriton_stateful.so", path, missing);
}

// new_error is TRITONSERVER_ErrorNew. A process without that function is not Triton,
// and there is no one to return an error to.
static TRITONSERVER_Error *new_error(const char *text) {
  __typeof__(&TRITONSERVER_ErrorNew) error_new =
      (__typeof__(error_new))resolve_symbol("TRITONSERVER_ErrorNew");
  if (error_new == NULL) {
    fprintf(stderr, "%s\nstateful backend: no TRITONSERVER_ErrorNew in this process\n", text);
    abort();
  }
  return error_new(TRITONSERVER_ERROR_UNAVAILABLE, text);
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  char failure[8192] = "";
  pthread_mutex_lock(&lock);
  if (library.Initialize == NULL) open_library(failure, sizeof failure);
  pthread_mutex_unlock(&lock);
  return library.Initialize == NULL ? new_error(failure) : library.Initialize(backend);
}

// After a failed Initialize, Triton calls nothing but Finalize: there is
// nothing to finalize then.
#define FORWARD(name, params, args)                           \
  TRITONSERVER_Error *TRITONBACKEND_##name params {           \
    return library.name == NULL ? NULL : library.name args;   \
  }
ENTRY_POINTS(FORWARD)
