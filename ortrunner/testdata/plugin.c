// A library with execution providers for tests, as many as PROVIDERS says. They compute
// nothing, and leave all to the CPU's. The file named by the option "trace" gets a line when
// a session asks one of them for what it can compute.
#include <onnxruntime_c_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const OrtApi *api;

typedef struct {
  OrtEpFactory base;
  const char *name;
} factory;

typedef struct {
  OrtEp base;
  const char *name;
  char trace[512];
} provider;

static const char *name_of_provider(const OrtEp *ep) { return ((const provider *)ep)->name; }

static OrtStatus *capability(OrtEp *ep, const OrtGraph *graph, OrtEpGraphSupportInfo *info) {
  (void)graph, (void)info;
  const provider *p = (const provider *)ep;
  FILE *file = p->trace[0] ? fopen(p->trace, "a") : NULL;
  if (file == NULL) return NULL;
  fprintf(file, "%s was asked\n", p->name);
  fclose(file);
  return NULL;
}

static const char *name(const OrtEpFactory *f) { return ((const factory *)f)->name; }

static const char *vendor(const OrtEpFactory *f) {
  (void)f;
  return "example";
}

static uint32_t vendor_id(const OrtEpFactory *f) {
  (void)f;
  return 0;
}

static const char *version(const OrtEpFactory *f) {
  (void)f;
  return "0.1.0";
}

// Tensors are in host memory, so there is nothing to copy.
static OrtStatus *transfer(OrtEpFactory *f, OrtDataTransferImpl **found) {
  (void)f;
  *found = NULL;
  return NULL;
}

static bool has_streams(const OrtEpFactory *f) {
  (void)f;
  return false;
}

// Each provider offers the first CPU, or nothing.
static OrtStatus *devices(OrtEpFactory *f, const OrtHardwareDevice *const *all, size_t count,
                          OrtEpDevice **found, size_t most, size_t *number) {
  *number = 0;
  for (size_t i = 0; PROVIDERS > 0 && i < count && *number == 0 && most > 0; i++) {
    if (api->HardwareDevice_Type(all[i]) != OrtHardwareDeviceType_CPU) continue;
    OrtStatus *status = api->GetEpApi()->CreateEpDevice(f, all[i], NULL, NULL, &found[0]);
    if (status != NULL) return status;
    *number = 1;
  }
  return NULL;
}

static OrtStatus *create(OrtEpFactory *f, const OrtHardwareDevice *const *on,
                         const OrtKeyValuePairs *const *metadata, size_t count,
                         const OrtSessionOptions *options, const OrtLogger *logger, OrtEp **ep) {
  (void)on, (void)metadata, (void)count, (void)logger;
  provider *p = calloc(1, sizeof *p);
  p->base.ort_version_supported = ORT_API_VERSION;
  p->base.GetName = name_of_provider;
  p->base.GetCapability = capability;
  p->name = ((factory *)f)->name;
  // ONNX Runtime puts the provider's name, in lower case, before the names of its options.
  char key[64] = "ep.";
  for (size_t i = 0; p->name[i] != 0; i++)
    key[3 + i] = (char)(p->name[i] >= 'A' && p->name[i] <= 'Z' ? p->name[i] + 32 : p->name[i]);
  strcat(key, ".trace");
  size_t size = sizeof p->trace;
  int has = 0;
  OrtStatus *status = api->HasSessionConfigEntry(options, key, &has);
  if (status == NULL && has)
    status = api->GetSessionConfigEntry(options, key, p->trace, &size);
  *ep = &p->base;
  return status;
}

static void destroy(OrtEpFactory *f, OrtEp *ep) {
  (void)f;
  free(ep);
}

OrtStatus *CreateEpFactories(const char *registration, const OrtApiBase *base,
                             const OrtLogger *logger, OrtEpFactory **factories, size_t most,
                             size_t *number);
OrtStatus *ReleaseEpFactory(OrtEpFactory *f);

OrtStatus *CreateEpFactories(const char *registration, const OrtApiBase *base,
                             const OrtLogger *logger, OrtEpFactory **factories, size_t most,
                             size_t *number) {
  (void)registration, (void)logger;
  static const char *const names[] = {"FirstProvider", "SecondProvider"};
  api = base->GetApi(ORT_API_VERSION);
  // One factory at least: without a provider it has no device.
  for (*number = 0; *number < most && *number < (PROVIDERS > 0 ? PROVIDERS : 1); ++*number) {
    factory *f = calloc(1, sizeof *f);
    f->base.ort_version_supported = ORT_API_VERSION;
    f->base.GetName = name;
    f->base.GetVendor = vendor;
    f->base.GetVendorId = vendor_id;
    f->base.GetVersion = version;
    f->base.GetSupportedDevices = devices;
    f->base.CreateEp = create;
    f->base.CreateDataTransfer = transfer;
    f->base.IsStreamAware = has_streams;
    f->base.ReleaseEp = destroy;
    f->name = names[*number];
    factories[*number] = &f->base;
  }
  return NULL;
}

OrtStatus *ReleaseEpFactory(OrtEpFactory *f) {
  free(f);
  return NULL;
}
