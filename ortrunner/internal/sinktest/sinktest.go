// Package sinktest is a log sink in C for the tests of ortrunner, which may not
// hold C themselves.
package sinktest

/*
#include <pthread.h>
#include <stdint.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[64 << 10];
static size_t used;

static void collect(int level, const char *message) {
  size_t length = strlen(message);
  pthread_mutex_lock(&lock);
  if (used + length + 4 < sizeof lines) {
    lines[used++] = (char)('0' + level);
    lines[used++] = ' ';
    memcpy(lines + used, message, length);
    used += length;
    lines[used++] = '\n';
  }
  pthread_mutex_unlock(&lock);
}

static uintptr_t collector(void) { return (uintptr_t)collect; }

static size_t take(char *to) {
  pthread_mutex_lock(&lock);
  size_t length = used;
  memcpy(to, lines, length);
  used = 0;
  pthread_mutex_unlock(&lock);
  return length;
}
*/
import "C"

import "unsafe"

// Address is the sink as ortrunner.Options takes it.
func Address() uintptr { return uintptr(C.collector()) }

// Take gives the lines that came since the last Take, "<level> <message>" each.
func Take() string {
	buffer := make([]byte, 64<<10)
	length := C.take((*C.char)(unsafe.Pointer(unsafe.SliceData(buffer))))
	return string(buffer[:length])
}
