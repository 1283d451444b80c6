#include "inplace.h"

#include <dlfcn.h>
#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_LANES = 64, MAX_TENSORS = 256, MAX_NAME = 256, MAX_DIMS = 8, MAX_LINE = 4096, LARGE_PAGE = 2 << 20 };

typedef enum { INPUT, OUTPUT, STATE } tensor_kind;

// A tensor of the model; a state is two, with the same memory.
typedef struct {
  tensor_kind kind;
  char name[MAX_NAME], new_name[MAX_NAME]; // the new state's
  ONNXTensorElementDataType type;
  int64_t shape[MAX_DIMS]; // -1: the batch
  int64_t lane_shape[MAX_DIMS]; // the same with a batch of 1
  size_t dims, lane_bytes;
  char *memory;
  OrtValue ***values; // of a state, by lanes and place; of another tensor, by lanes
  OrtValue *elsewhere; // what the next run reads instead, or NULL
} tensor;

struct inplace {
  const OrtApi *api;
  OrtSession *session;
  OrtMemoryInfo *memory_info;
  char library[MAX_LINE], file[MAX_LINE];
  int capacity; // lanes that a state's memory has room for
  tensor tensors[MAX_TENSORS];
  int count;
  int turn[MAX_LANES + 1]; // steps so far, by lanes
  OrtStatus *failure; // what the last run said
};

static int fail(char *error, int size, const char *doing, const char *text) {
  snprintf(error, (size_t)size, "%s: %s", doing, text);
  return -1;
}

static int check(inplace *model, OrtStatus *status, const char *doing, char *error, int size) {
  if (status == NULL) {
    return 0;
  }
  fail(error, size, doing, model->api->GetErrorMessage(status));
  model->api->ReleaseStatus(status);
  return -1;
}

// ---- the file ----

static char *word(char **rest) {
  char *found = strtok_r(NULL, " \n", rest);
  return found == NULL ? "" : found;
}

static int parse_tensor(char *line, tensor *t) {
  char *rest = NULL;
  const char *kind = strtok_r(line, " \n", &rest);
  if (kind == NULL) {
    return -1;
  }
  t->kind = strcmp(kind, "state") == 0 ? STATE : strcmp(kind, "output") == 0 ? OUTPUT : INPUT;
  snprintf(t->name, sizeof t->name, "%s", word(&rest));
  if (t->kind == STATE) {
    snprintf(t->new_name, sizeof t->new_name, "%s", word(&rest));
  }
  t->lane_bytes = strtoul(word(&rest), NULL, 10);
  t->type = (ONNXTensorElementDataType)atoi(word(&rest));
  for (char *dim; *(dim = word(&rest)) != '\0'; t->dims++) {
    if (t->dims == MAX_DIMS) {
      return -1;
    }
    t->shape[t->dims] = atoll(dim);
    t->lane_shape[t->dims] = t->shape[t->dims] < 0 ? 1 : t->shape[t->dims];
    t->lane_bytes *= (size_t)t->lane_shape[t->dims];
  }
  return t->lane_bytes > 0 && t->name[0] != '\0' ? 0 : -1;
}

static int read_line(FILE *file, char *line) {
  if (fgets(line, MAX_LINE, file) == NULL) {
    return -1;
  }
  line[strcspn(line, "\n")] = '\0';
  return 0;
}

static int parse(FILE *file, inplace *model) {
  char line[MAX_LINE];
  if (read_line(file, model->library) != 0 || read_line(file, model->file) != 0 || read_line(file, line) != 0) {
    return -1;
  }
  model->capacity = 2 * atoi(line) + 2 * MAX_LANES;
  while (read_line(file, line) == 0) {
    if (model->count == MAX_TENSORS || parse_tensor(line, &model->tensors[model->count++]) != 0) {
      return -1;
    }
  }
  return 0;
}

// ---- memory and values ----

static int places(const inplace *model, int lanes) { return model->capacity / lanes; }

static OrtStatus *wrap(const inplace *model, const tensor *t, char *memory, int lanes, OrtValue **value) {
  int64_t shape[MAX_DIMS];
  for (size_t i = 0; i < t->dims; i++) {
    shape[i] = t->shape[i] < 0 ? lanes : t->shape[i];
  }
  return model->api->CreateTensorWithDataAsOrtValue(model->memory_info, memory, t->lane_bytes * (size_t)lanes, shape,
                                                    t->dims, t->type, value);
}

// make_values makes all values of a number of lanes, so that runs need not.
static OrtStatus *make_values(inplace *model, tensor *t, int lanes) {
  int number = t->kind == STATE ? places(model, lanes) : 1;
  t->values[lanes] = calloc((size_t)number, sizeof *t->values[lanes]);
  for (int place = 0; place < number; place++) {
    char *memory = t->memory + (size_t)place * (size_t)lanes * t->lane_bytes;
    OrtStatus *status = wrap(model, t, memory, lanes, &t->values[lanes][place]);
    if (status != NULL) {
      return status;
    }
  }
  return NULL;
}

// new_memory returns zeros that take no memory before they are written; in large pages where the kernel has them, as the
// other contenders ask for, too.
static char *new_memory(size_t bytes) {
  char *memory = mmap(NULL, bytes + LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return NULL;
  }
  memory += LARGE_PAGE - (uintptr_t)memory % LARGE_PAGE;
  if (bytes >= LARGE_PAGE) {
    madvise(memory, bytes, MADV_HUGEPAGE); // a wish
  }
  return memory;
}

static OrtStatus *make_tensor(inplace *model, tensor *t) {
  int lanes = t->kind == STATE ? model->capacity : MAX_LANES;
  t->memory = new_memory(t->lane_bytes * (size_t)lanes);
  t->values = calloc(MAX_LANES + 1, sizeof *t->values);
  if (t->memory == NULL || t->values == NULL) {
    return model->api->CreateStatus(ORT_FAIL, "out of memory");
  }
  OrtStatus *status = NULL;
  for (int n = 1; n <= MAX_LANES && status == NULL; n++) {
    status = make_values(model, t, n);
  }
  return status;
}

// ---- the session ----

static int load_library(inplace *model, char *error, int size) {
  void *library = dlopen(model->library, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    return fail(error, size, "opening ONNX Runtime", dlerror());
  }
  const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))dlsym(library, "OrtGetApiBase");
  model->api = base == NULL ? NULL : base()->GetApi(ORT_API_VERSION);
  return model->api != NULL ? 0 : fail(error, size, model->library, "it does not offer the API that was compiled for");
}

// make_session sets what the raw loop of the benchmark sets, too: one thread, which does not spin.
static OrtStatus *make_session(inplace *model) {
  const OrtApi *api = model->api;
  OrtEnv *environment;
  OrtSessionOptions *options;
  OrtStatus *status = api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "floor", &environment);
  if (status == NULL) status = api->CreateSessionOptions(&options);
  if (status == NULL) status = api->SetIntraOpNumThreads(options, 1);
  if (status == NULL) status = api->AddSessionConfigEntry(options, "session.intra_op.allow_spinning", "0");
  if (status == NULL) status = api->CreateSession(environment, model->file, options, &model->session);
  if (status == NULL) status = api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &model->memory_info);
  for (int i = 0; i < model->count && status == NULL; i++) {
    status = make_tensor(model, &model->tensors[i]);
  }
  return status;
}

inplace *inplace_open(const char *path, char *error, int size) {
  FILE *file = fopen(path, "r");
  inplace *model = calloc(1, sizeof *model); // lives as long as the server
  int parsed = file == NULL || model == NULL ? -1 : parse(file, model);
  if (file != NULL) {
    fclose(file);
  }
  if (parsed != 0) {
    fail(error, size, path, "cannot be read, or is not as inplace.h says");
    return NULL;
  }
  if (load_library(model, error, size) != 0 || check(model, make_session(model), model->file, error, size) != 0) {
    return NULL;
  }
  return model;
}

// ---- a step ----

// The sequences' states are in as many places as it takes batches to step all of them, and one more, where the next step
// writes; what it has read is free then for the one that follows.
static int places_in_use(const inplace *model, int lanes, int live) {
  int used = (live + lanes / 2) / lanes + 1;
  int room = places(model, lanes);
  return used < 2 ? 2 : used < room ? used : room;
}

// The place of a state that the next run reads; it writes to the one before.
static int place_to_read(const inplace *model, int lanes, int used) { return model->turn[lanes] % used; }

static const char *outcome(inplace *model, OrtStatus *status) {
  if (model->failure != NULL) {
    model->api->ReleaseStatus(model->failure);
  }
  model->failure = status;
  return status == NULL ? NULL : model->api->GetErrorMessage(status);
}

const char *inplace_run(inplace *model, int lanes, int live) {
  const char *input_names[MAX_TENSORS], *output_names[MAX_TENSORS];
  const OrtValue *inputs[MAX_TENSORS];
  OrtValue *outputs[MAX_TENSORS];
  size_t input_count = 0, output_count = 0;
  int used = places_in_use(model, lanes, live);
  int now = place_to_read(model, lanes, used), before = (now + used - 1) % used;
  model->turn[lanes]++;
  for (int i = 0; i < model->count; i++) {
    const tensor *t = &model->tensors[i];
    if (t->kind != OUTPUT) {
      input_names[input_count] = t->name;
      inputs[input_count++] = t->elsewhere != NULL ? t->elsewhere : t->values[lanes][t->kind == STATE ? now : 0];
    }
    if (t->kind != INPUT) {
      output_names[output_count] = t->kind == STATE ? t->new_name : t->name;
      outputs[output_count++] = t->values[lanes][t->kind == STATE ? before : 0];
    }
  }
  const OrtApi *api = model->api;
  OrtStatus *status =
      api->Run(model->session, NULL, input_names, inputs, input_count, output_names, output_count, outputs);
  for (int i = 0; i < model->count; i++) {
    api->ReleaseValue(model->tensors[i].elsewhere); // NULL is none
    model->tensors[i].elsewhere = NULL;
  }
  return outcome(model, status);
}

// ---- real values ----

int inplace_count(const inplace *model) { return model->count; }

static inplace_tensor at_place(const tensor *t, const char *name, int lanes, int place) {
  size_t offset = t->kind == STATE ? (size_t)place * (size_t)lanes * t->lane_bytes : 0;
  return (inplace_tensor){
      .name = name,
      .type = t->type,
      .shape = t->lane_shape,
      .dims = (uint32_t)t->dims,
      .bytes = t->lane_bytes,
      .memory = t->memory + offset,
      .state = t->kind == STATE,
  };
}

bool inplace_input(const inplace *model, int i, int lanes, inplace_tensor *found) {
  const tensor *t = &model->tensors[i];
  *found = at_place(t, t->name, lanes, place_to_read(model, lanes, places_in_use(model, lanes, 0)));
  return t->kind != OUTPUT;
}

bool inplace_output(const inplace *model, int i, int lanes, inplace_tensor *found) {
  const tensor *t = &model->tensors[i];
  // With two places, the one that was written is the one to read next.
  *found = at_place(t, t->kind == STATE ? t->new_name : t->name, lanes,
                    place_to_read(model, lanes, places_in_use(model, lanes, 0)));
  return t->kind != INPUT;
}

const char *inplace_read_from(inplace *model, int i, const void *memory) {
  tensor *t = &model->tensors[i];
  return outcome(model, wrap(model, t, (char *)memory, 1, &t->elsewhere));
}
