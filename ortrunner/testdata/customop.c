// A library with one custom operator for tests: com.example.Twice doubles a tensor of
// floats.
#include <onnxruntime_c_api.h>

static const OrtApi *api;

static const char *name(const OrtCustomOp *op) {
  (void)op;
  return "Twice";
}

static const char *provider(const OrtCustomOp *op) {
  (void)op;
  return NULL; // the CPU's
}

static size_t one(const OrtCustomOp *op) {
  (void)op;
  return 1;
}

static ONNXTensorElementDataType type(const OrtCustomOp *op, size_t index) {
  (void)op, (void)index;
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

static OrtCustomOpInputOutputCharacteristic required(const OrtCustomOp *op, size_t index) {
  (void)op, (void)index;
  return INPUT_OUTPUT_REQUIRED;
}

static OrtMemType memory(const OrtCustomOp *op, size_t index) {
  (void)op, (void)index;
  return OrtMemTypeDefault;
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *of, const OrtKernelInfo *info,
                         void **kernel) {
  (void)op, (void)info;
  api = of;
  *kernel = (void *)&api; // it has no state
  return NULL;
}

static void destroy(void *kernel) { (void)kernel; }

// Leaves the function with the status of a call that failed.
#define TRY(call)                            \
  do {                                       \
    OrtStatus *failed = (call);              \
    if (failed != NULL) return failed;       \
  } while (0)

static OrtStatus *compute(void *kernel, OrtKernelContext *context) {
  (void)kernel;
  const OrtValue *input = NULL;
  OrtValue *output = NULL;
  OrtTensorTypeAndShapeInfo *info = NULL;
  size_t rank = 0, count = 0;
  int64_t dims[8];
  float *x = NULL, *y = NULL;
  TRY(api->KernelContext_GetInput(context, 0, &input));
  TRY(api->GetTensorTypeAndShape(input, &info));
  TRY(api->GetDimensionsCount(info, &rank));
  TRY(api->GetDimensions(info, dims, rank));
  TRY(api->GetTensorShapeElementCount(info, &count));
  api->ReleaseTensorTypeAndShapeInfo(info);
  TRY(api->KernelContext_GetOutput(context, 0, dims, rank, &output));
  TRY(api->GetTensorMutableData((OrtValue *)input, (void **)&x));
  TRY(api->GetTensorMutableData(output, (void **)&y));
  for (size_t i = 0; i < count; i++) y[i] = 2 * x[i];
  return NULL;
}

static OrtCustomOp twice = {
    .version = 16, // the first with CreateKernelV2
    .GetName = name,
    .GetExecutionProviderType = provider,
    .GetInputType = type,
    .GetInputTypeCount = one,
    .GetOutputType = type,
    .GetOutputTypeCount = one,
    .GetInputCharacteristic = required,
    .GetOutputCharacteristic = required,
    .GetInputMemoryType = memory,
    .KernelDestroy = destroy,
    .CreateKernelV2 = create,
    .KernelComputeV2 = compute,
};

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base);

static OrtCustomOpDomain *domain; // of all sessions

// ONNX Runtime closes the library with its last session.
__attribute__((destructor)) static void release(void) {
  if (domain != NULL) api->ReleaseCustomOpDomain(domain);
}

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  api = base->GetApi(16);
  if (domain == NULL) {
    OrtStatus *status = api->CreateCustomOpDomain("com.example", &domain);
    if (status == NULL) status = api->CustomOpDomain_Add(domain, &twice);
    if (status != NULL) return status;
  }
  return api->AddCustomOpDomain(options, domain);
}
