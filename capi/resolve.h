// How Triton's functions are found in the process that opened us. Shared by the
// loader and the Go library, which is why it is all in a header.
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE // dl_iterate_phdr, RTLD_DEFAULT
#endif
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>

// resolve_find_server keeps a handle of the loaded library whose file is called
// libtritonserver*; the rest of the name is a hash in the wheel of PyPI.
static int resolve_find_server(struct dl_phdr_info *object, size_t size, void *handle) {
  (void)size;
  const char *slash = strrchr(object->dlpi_name, '/');
  const char *file = slash != NULL ? slash + 1 : object->dlpi_name;
  if (strncmp(file, "libtritonserver", strlen("libtritonserver")) != 0) return 0;
  *(void **)handle = dlopen(object->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  return 1;
}

// resolve_symbol looks a function up where tritonserver has it, in the global
// scope, or else in a library that a program opened RTLD_LOCAL. NULL: not there.
static void *resolve_symbol(const char *name) {
  void *symbol = dlsym(RTLD_DEFAULT, name);
  if (symbol != NULL) return symbol;
  void *server = NULL;
  dl_iterate_phdr(resolve_find_server, &server);
  if (server == NULL) return NULL;
  symbol = dlsym(server, name);
  dlclose(server); // NOLOAD counted one more reference; the program holds its own
  return symbol;
}
