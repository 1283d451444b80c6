// Disables the telemetry of ONNX Runtime.
//
// From 1.29 on the builds for Linux have telemetry, enabled: while the first
// environment is made, a thread is started that writes a device id and a database of
// events to the user's cache folder and sends them to a collector. The API can
// switch it off only for an environment that exists, which is too late. What is read
// in time is the variable ORT_DISABLE_TELEMETRY. The process's environment belongs
// to the server and all its backends, and cannot be changed while threads read it;
// so only this library is changed: its getenv becomes ours.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim_internal.h"

static char *our_getenv(const char *name) {
  static char on[] = "1";
  return strcmp(name, "ORT_DISABLE_TELEMETRY") == 0 ? on : getenv(name);
}

// What of an ELF object in memory leads to its imports.
typedef struct {
  uintptr_t base;                   // where it is
  uintptr_t relro, relro_end;       // what the dynamic linker has made read-only
  const ElfW(Sym) *symbols;
  const char *names;
  const ElfW(Rela) *relocations[2]; // of functions and of data
  size_t counts[2];
} object;

// The dynamic section has addresses in the file or, with glibc, in memory.
static const void *in_memory(const object *o, ElfW(Addr) address) {
  return (const void *)(address < o->base ? o->base + address : address);
}

static void read_dynamic(object *o, const ElfW(Dyn) *entry) {
  for (; entry->d_tag != DT_NULL; entry++) {
    const void *there = in_memory(o, entry->d_un.d_ptr);
    size_t count = entry->d_un.d_val / sizeof(ElfW(Rela));
    switch (entry->d_tag) {
      case DT_SYMTAB: o->symbols = there; break;
      case DT_STRTAB: o->names = there; break;
      case DT_JMPREL: o->relocations[0] = there; break;
      case DT_PLTRELSZ: o->counts[0] = count; break;
      case DT_RELA: o->relocations[1] = there; break;
      case DT_RELASZ: o->counts[1] = count; break;
    }
  }
}

// For dl_iterate_phdr: fills in the object that is where o says.
static int find_object(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  object *o = data;
  if (info->dlpi_addr != o->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_DYNAMIC) read_dynamic(o, (const void *)(o->base + part->p_vaddr));
    if (part->p_type == PT_GNU_RELRO) {
      o->relro = o->base + part->p_vaddr;
      size_t page = (size_t)sysconf(_SC_PAGESIZE);
      o->relro_end = (o->relro + part->p_memsz) / page * page; // a page that is begun stays as it is
    }
  }
  return 1;
}

// Overwrites the address of a function, and restores the protection of its page.
static bool put(const object *o, uintptr_t entry, char *(*function)(const char *)) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *start = (void *)(entry / page * page);
  bool locked = entry >= o->relro && entry < o->relro_end;
  if (locked && mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return false;
  memcpy((void *)entry, &function, sizeof function);
  return !locked || mprotect(start, page, PROT_READ) == 0;
}

bool ortx_silence(const void *code) {
  Dl_info where;
  struct link_map *map = NULL;
  if (dladdr1(code, &where, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL) return false;
  object o = {.base = map->l_addr};
  dl_iterate_phdr(find_object, &o);
  if (o.symbols == NULL || o.names == NULL) return false;
  bool found = false;
  for (int list = 0; list < 2; list++) {
    for (size_t i = 0; i < o.counts[list]; i++) {
      const ElfW(Rela) *relocation = &o.relocations[list][i];
      const char *name = o.names + o.symbols[ELF64_R_SYM(relocation->r_info)].st_name;
      if (strcmp(name, "getenv") != 0) continue;
      if (!put(&o, o.base + relocation->r_offset, our_getenv)) return false;
      found = true;
    }
  }
  return found;
}
