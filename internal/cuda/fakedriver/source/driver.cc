// A CUDA driver without a GPU, for tests. It is strict where a real one is
// lenient, so that mistakes show on any machine:
//
//   - Device memory is out of the host's reach: a host read faults.
//   - A stream is a thread, and each piece of work waits a random time before it
//     starts: a forgotten synchronisation gives wrong bytes, not just a race.
//   - New memory is not zero, freed memory is poisoned, and around each piece
//     is a border that is checked when it is freed.
//   - After an illegal access every call fails, as on a real device.
//
// Kernels are the backend's own, compiled for the host. The environment sets the
// rest, read by cuInit:
//
//   FAKE_CUDA_DEVICES   number of devices, 1
//   FAKE_CUDA_MEMORY    bytes of each device, 1 GiB
//   FAKE_CUDA_DELAY_US  longest wait before work starts, 200
//   FAKE_CUDA_NO_PTX    if set, no PTX is accepted
//   FAKE_CUDA_READABLE  if set, the host can touch device memory, and what it
//                       computes may lie in its own: copies take such addresses
//   FAKE_CUDA_WAITS     a file whose first 8 bytes count how often the host has
//                       waited for a stream
//   FAKE_CUDA_SIGNALS   if set, signals get handlers that end the process, with
//                       status 99, and do not ask for the alternate stack
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../driver.h"
#include "../../kernels/on_host.h"
#include "../../kernels/move.cu"

namespace {

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  INVALID_PTX = 218,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  ILLEGAL_ADDRESS = 700,
};

const std::map<CUresult, std::pair<const char *, const char *>> texts = {
    {SUCCESS, {"CUDA_SUCCESS", "no error"}},
    {INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {NO_DEVICE, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {INVALID_DEVICE, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {INVALID_PTX, {"CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"}},
    {INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {ILLEGAL_ADDRESS, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
};

struct illegal {};

size_t setting(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  return text != NULL && *text != 0 ? strtoull(text, NULL, 10) : otherwise;
}

// ---- memory of the device ----

const size_t ARENA = (size_t)8 << 30; // of addresses: pages come when they are touched
const size_t BORDER = 256, GRAIN = 256;

std::mutex lock; // of everything below
char *hidden, *window; // the same bytes as the driver sees them, and as others do
size_t used, limit, next_offset;
std::map<size_t, size_t> pieces;            // offset and size of what is allocated
std::multimap<size_t, size_t> free_pieces;  // size and offset of what was
std::atomic<bool> broken;

CUdeviceptr public_address(size_t offset) { return (CUdeviceptr)(uintptr_t)(window + offset); }

bool readable; // by the host, which simulates the device then

bool known(CUdeviceptr address, size_t bytes) {
  std::lock_guard<std::mutex> guard(lock);
  if (readable && (address < public_address(0) || address >= public_address(ARENA))) return true;
  size_t offset = (size_t)(address - public_address(0));
  auto piece = pieces.upper_bound(offset);
  if (piece == pieces.begin()) return false;
  --piece;
  return offset + bytes <= piece->first + piece->second;
}

char *inside(CUdeviceptr address, size_t bytes) {
  if (!known(address, bytes)) throw illegal();
  if (readable) return reinterpret_cast<char *>(address);
  return hidden + (address - public_address(0));
}

size_t rounded(size_t bytes) { return (bytes + GRAIN - 1) / GRAIN * GRAIN; }

// ---- pinned host memory ----

std::map<uintptr_t, size_t> pinned;

bool is_pinned(const void *at) {
  std::lock_guard<std::mutex> guard(lock);
  auto piece = pinned.upper_bound((uintptr_t)at);
  if (piece == pinned.begin()) return false;
  --piece;
  return (uintptr_t)at < piece->first + piece->second;
}

// ---- streams ----

unsigned delay_us;

std::atomic<unsigned long> *waits; // in a file, or NULL

void count_waits(const char *path) {
  int file = path != NULL ? open(path, O_RDWR) : -1;
  if (file < 0) return;
  void *page = mmap(NULL, sizeof *waits, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) waits = static_cast<std::atomic<unsigned long> *>(page);
}

class Stream {
 public:
  Stream() : worker([this] { work(); }) {}
  ~Stream() {
    {
      std::lock_guard<std::mutex> guard(mutex);
      ending = true;
    }
    changed.notify_all();
    worker.join();
  }
  void add(std::function<void()> job) {
    {
      std::lock_guard<std::mutex> guard(mutex);
      jobs.push_back(std::move(job));
      added++;
    }
    changed.notify_all();
  }
  long position() {
    std::lock_guard<std::mutex> guard(mutex);
    return added;
  }
  void wait(long until) {
    if (waits != NULL) ++*waits;
    std::unique_lock<std::mutex> guard(mutex);
    changed.wait(guard, [&] { return done >= until; });
  }
  bool idle() {
    std::lock_guard<std::mutex> guard(mutex);
    return done == added;
  }

 private:
  void work() {
    std::minstd_rand random(std::random_device{}());
    std::unique_lock<std::mutex> guard(mutex);
    for (;;) {
      changed.wait(guard, [&] { return ending || !jobs.empty(); });
      if (jobs.empty()) return;
      std::function<void()> job = std::move(jobs.front());
      jobs.pop_front();
      guard.unlock();
      if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % delay_us));
      try {
        if (!broken) job();
      } catch (const illegal &) {
        broken = true;
      }
      guard.lock();
      done++;
      changed.notify_all();
    }
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  long added = 0, done = 0;
  bool ending = false;
  std::thread worker;
};

std::vector<Stream *> streams;

bool all_idle() {
  for (Stream *s : streams)
    if (!s->idle()) return false;
  return true;
}

struct Event {
  Stream *stream = NULL;
  long position = 0;
};

struct Module {
  std::string text;
};

// ---- signals ----

void on_signal(int) { _exit(99); }

void take_signals() {
  for (int number : {SIGINT, SIGTERM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGUSR2})
    signal(number, on_signal);
}

// ---- devices ----

int devices;
struct Context {
  int retained;
} contexts[16];
thread_local CUcontext current;

Stream *stream_of(CUstream s) { return reinterpret_cast<Stream *>(s); }
Event *event_of(CUevent e) { return reinterpret_cast<Event *>(e); }

#define NEEDS_CONTEXT                              \
  do {                                             \
    if (broken) return ILLEGAL_ADDRESS;            \
    if (current == NULL) return INVALID_CONTEXT;   \
  } while (0)

} // namespace

static void *translate(u64 address) { return inside(address, 1); }

extern "C" {

CUresult cuInit(unsigned) {
  std::lock_guard<std::mutex> guard(lock);
  if (getenv("FAKE_CUDA_SIGNALS") != NULL) take_signals();
  devices = (int)setting("FAKE_CUDA_DEVICES", 1);
  limit = setting("FAKE_CUDA_MEMORY", (size_t)1 << 30);
  delay_us = (unsigned)setting("FAKE_CUDA_DELAY_US", 200);
  count_waits(getenv("FAKE_CUDA_WAITS"));
  if (devices == 0) return NO_DEVICE;
  if (hidden != NULL) return SUCCESS;
  int file = memfd_create("fake device", 0);
  if (file < 0 || ftruncate(file, ARENA) != 0) return OUT_OF_MEMORY;
  hidden = (char *)mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  readable = getenv("FAKE_CUDA_READABLE") != NULL;
  int access = readable ? PROT_READ | PROT_WRITE : PROT_NONE;
  window = (char *)mmap(NULL, ARENA, access, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  return hidden == MAP_FAILED || window == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  *version = 13000;
  return SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
  auto text = texts.find(code);
  if (text == texts.end()) return INVALID_VALUE;
  *name = text->second.first;
  return SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **string) {
  auto text = texts.find(code);
  if (text == texts.end()) return INVALID_VALUE;
  *string = text->second.second;
  return SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  *count = devices;
  return SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (ordinal < 0 || ordinal >= devices) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  snprintf(name, (size_t)size, "Fake GPU %c", 'A' + device);
  return SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  for (int i = 0; i < 16; i++) uuid->bytes[i] = (unsigned char)(16 * device + i);
  return SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
  *bytes = limit;
  return SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice) {
  *value = attribute == GPU_MAJOR ? 9 : 0;
  return SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  std::lock_guard<std::mutex> guard(lock);
  contexts[device].retained++;
  *context = reinterpret_cast<CUcontext>(&contexts[device]);
  return SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  std::lock_guard<std::mutex> guard(lock);
  if (contexts[device].retained == 0) return INVALID_CONTEXT;
  if (--contexts[device].retained > 0) return SUCCESS;
  return pieces.empty() && pinned.empty() ? SUCCESS : INVALID_VALUE; // a leak
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (broken) return ILLEGAL_ADDRESS;
  current = context;
  return SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  NEEDS_CONTEXT;
  std::lock_guard<std::mutex> guard(lock);
  *free = limit - used;
  *total = limit;
  return SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  NEEDS_CONTEXT;
  if (bytes == 0) return INVALID_VALUE;
  std::lock_guard<std::mutex> guard(lock);
  size_t room = rounded(bytes);
  if (used + room > limit) return OUT_OF_MEMORY;
  size_t offset;
  auto again = free_pieces.find(room);
  if (again != free_pieces.end()) {
    offset = again->second;
    free_pieces.erase(again);
  } else {
    offset = next_offset + BORDER;
    if (offset + room + BORDER > ARENA) return OUT_OF_MEMORY;
    next_offset = offset + room;
  }
  used += room;
  pieces[offset] = bytes;
  memset(hidden + offset, 0xCD, bytes);
  memset(hidden + offset - BORDER, 0xA5, BORDER);
  memset(hidden + offset + bytes, 0xA5, room - bytes + BORDER);
  *address = public_address(offset);
  return SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  NEEDS_CONTEXT;
  std::lock_guard<std::mutex> guard(lock);
  auto piece = pieces.find((size_t)(address - public_address(0)));
  if (piece == pieces.end()) return INVALID_VALUE;
  size_t offset = piece->first, bytes = piece->second, room = rounded(bytes);
  bool intact = all_idle(); // a real driver waits; code that relies on it has a bug
  for (size_t i = 0; i < BORDER; i++) intact &= hidden[offset - BORDER + i] == (char)0xA5;
  for (size_t i = bytes; i < room + BORDER; i++) intact &= hidden[offset + i] == (char)0xA5;
  memset(hidden + offset, 0xDB, bytes);
  pieces.erase(piece);
  free_pieces.insert({room, offset});
  used -= room;
  if (!intact) broken = true;
  return intact ? SUCCESS : ILLEGAL_ADDRESS;
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned) {
  NEEDS_CONTEXT;
  *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*at == NULL) return OUT_OF_MEMORY;
  memset(*at, 0xCD, bytes);
  std::lock_guard<std::mutex> guard(lock);
  pinned[(uintptr_t)*at] = bytes;
  return SUCCESS;
}

CUresult cuMemFreeHost(void *at) {
  NEEDS_CONTEXT;
  std::lock_guard<std::mutex> guard(lock);
  if (!all_idle() || pinned.erase((uintptr_t)at) == 0) return INVALID_VALUE;
  free(at);
  return SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  NEEDS_CONTEXT;
  if (!known(to, bytes)) return INVALID_VALUE;
  if (is_pinned(from)) {
    stream_of(stream)->add([=] { memcpy(inside(to, bytes), from, bytes); });
    return SUCCESS;
  }
  std::string now((const char *)from, bytes); // pageable memory is read before the call returns
  stream_of(stream)->add([=] { memcpy(inside(to, bytes), now.data(), bytes); });
  return SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  NEEDS_CONTEXT;
  if (!known(from, bytes)) return INVALID_VALUE;
  stream_of(stream)->add([=] { memcpy(to, inside(from, bytes), bytes); });
  if (!is_pinned(to)) stream_of(stream)->wait(stream_of(stream)->position());
  return SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  NEEDS_CONTEXT;
  if (!known(to, bytes) || !known(from, bytes)) return INVALID_VALUE;
  stream_of(stream)->add([=] { memcpy(inside(to, bytes), inside(from, bytes), bytes); });
  return SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  NEEDS_CONTEXT;
  if (!known(to, count)) return INVALID_VALUE;
  stream_of(stream)->add([=] { memset(inside(to, count), value, count); });
  return SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned) {
  NEEDS_CONTEXT;
  Stream *made = new Stream();
  std::lock_guard<std::mutex> guard(lock);
  streams.push_back(made);
  *stream = reinterpret_cast<CUstream>(made);
  return SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  NEEDS_CONTEXT;
  {
    std::lock_guard<std::mutex> guard(lock);
    for (size_t i = 0; i < streams.size(); i++)
      if (streams[i] == stream_of(stream)) streams.erase(streams.begin() + (long)i);
  }
  delete stream_of(stream);
  return SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  NEEDS_CONTEXT;
  stream_of(stream)->wait(stream_of(stream)->position());
  return broken ? ILLEGAL_ADDRESS : SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned) {
  NEEDS_CONTEXT;
  *event = reinterpret_cast<CUevent>(new Event());
  return SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  NEEDS_CONTEXT;
  delete event_of(event);
  return SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  NEEDS_CONTEXT;
  *event_of(event) = {stream_of(stream), stream_of(stream)->position()};
  return SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  NEEDS_CONTEXT;
  if (event_of(event)->stream != NULL) event_of(event)->stream->wait(event_of(event)->position);
  return broken ? ILLEGAL_ADDRESS : SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  NEEDS_CONTEXT;
  std::string text((const char *)image);
  if (getenv("FAKE_CUDA_NO_PTX") != NULL || text.find("\n.target sm_") == std::string::npos)
    return INVALID_PTX;
  *module = reinterpret_cast<CUmodule>(new Module{text});
  return SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  NEEDS_CONTEXT;
  delete reinterpret_cast<Module *>(module);
  return SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  NEEDS_CONTEXT;
  const std::string entry = std::string(".visible .entry ") + name + "(";
  if (reinterpret_cast<Module *>(module)->text.find(entry) == std::string::npos) return NOT_FOUND;
  void (*kernel)(u64) = strcmp(name, "gather") == 0    ? gather
                        : strcmp(name, "scatter") == 0 ? scatter
                       : strcmp(name, "wipe") == 0    ? wipe
                                                      : NULL;
  *function = reinterpret_cast<CUfunction>(kernel);
  return kernel != NULL ? SUCCESS : NOT_FOUND;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                        CUstream stream, void **parameters, void **) {
  NEEDS_CONTEXT;
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || grid_y > 65535 || grid_z > 65535 ||
      block_x == 0 || block_x > 1024 || block_y != 1 || block_z != 1)
    return INVALID_VALUE;
  auto kernel = reinterpret_cast<void (*)(u64)>(function);
  u64 argument = *(u64 *)parameters[0];
  stream_of(stream)->add([=] { run(kernel, {grid_x, grid_y, grid_z}, block_x, argument); });
  return SUCCESS;
}

} // extern "C"
