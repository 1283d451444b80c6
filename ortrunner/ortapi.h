// The part of ONNX Runtime's C API that the wrapper does not offer, in our own
// words. OrtApi is a table of function pointers that only ever grows at its end,
// so a function is known by its ordinal. A test compiles this list against the
// vendor's onnxruntime_c_api.h and compares every ordinal and every prototype.
#ifndef STATEFUL_ORTAPI_H
#define STATEFUL_ORTAPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct OrtAllocator OrtAllocator;
typedef struct OrtCUDAProviderOptionsV2 OrtCUDAProviderOptionsV2;
typedef struct OrtEnv OrtEnv;
typedef struct OrtIoBinding OrtIoBinding;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtModelMetadata OrtModelMetadata;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtStatus OrtStatus;
typedef struct OrtTensorRTProviderOptionsV2 OrtTensorRTProviderOptionsV2;
typedef struct OrtThreadingOptions OrtThreadingOptions;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtValue OrtValue;

// The enums of the API as what they are to the compiler. OrtErrorCode,
// OrtLoggingLevel, ONNXType and ONNXTensorElementDataType have no negative
// value; OrtAllocatorType and OrtMemType have.
typedef unsigned ortx_enum;
typedef int ortx_signed_enum;

// OrtLoggingFunction.
typedef void (*ortx_log_function)(void *param, ortx_enum severity, const char *category,
                                  const char *log_id, const char *code_location,
                                  const char *message);

// The version of the API that is asked for: the one of onnxruntime_go, so that a
// library is either good for both or refused before the wrapper sees it.
enum { ORTX_API_VERSION = 29 };

// X(ordinal in OrtApi, result, name, parameters)
#define ORTX_FUNCTIONS(X)                                                                          \
  X(0, OrtStatus *, CreateStatus, (ortx_enum, const char *))                                       \
  X(1, ortx_enum, GetErrorCode, (const OrtStatus *))                                               \
  X(2, const char *, GetErrorMessage, (const OrtStatus *))                                         \
  X(93, void, ReleaseStatus, (OrtStatus *))                                                        \
                                                                                                   \
  X(4, OrtStatus *, CreateEnvWithCustomLogger,                                                     \
    (ortx_log_function, void *, ortx_enum, const char *, OrtEnv **))                               \
  X(151, OrtStatus *, CreateEnvWithCustomLoggerAndGlobalThreadPools,                               \
    (ortx_log_function, void *, ortx_enum, const char *, const OrtThreadingOptions *, OrtEnv **))  \
  X(121, OrtStatus *, CreateThreadingOptions, (OrtThreadingOptions **))                            \
  X(122, void, ReleaseThreadingOptions, (OrtThreadingOptions *))                                   \
  X(147, OrtStatus *, SetGlobalIntraOpNumThreads, (OrtThreadingOptions *, int))                    \
  X(148, OrtStatus *, SetGlobalInterOpNumThreads, (OrtThreadingOptions *, int))                    \
  X(149, OrtStatus *, SetGlobalSpinControl, (OrtThreadingOptions *, int))                          \
  X(120, OrtStatus *, DisablePerSessionThreads, (OrtSessionOptions *))                             \
  X(69, OrtStatus *, CreateCpuMemoryInfo, (ortx_signed_enum, ortx_signed_enum, OrtMemoryInfo **))  \
  X(78, OrtStatus *, GetAllocatorWithDefaultOptions, (OrtAllocator **))                            \
  X(76, OrtStatus *, AllocatorFree, (OrtAllocator *, void *))                                      \
  X(125, OrtStatus *, GetAvailableProviders, (char ***, int *))                                    \
  X(126, OrtStatus *, ReleaseAvailableProviders, (char **, int))                                   \
  X(20, OrtStatus *, SetSessionLogId, (OrtSessionOptions *, const char *))                         \
                                                                                                   \
  X(7, OrtStatus *, CreateSession,                                                                 \
    (const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **))                      \
  X(95, void, ReleaseSession, (OrtSession *))                                                      \
  X(30, OrtStatus *, SessionGetInputCount, (const OrtSession *, size_t *))                         \
  X(31, OrtStatus *, SessionGetOutputCount, (const OrtSession *, size_t *))                        \
  X(32, OrtStatus *, SessionGetOverridableInitializerCount, (const OrtSession *, size_t *))        \
  X(33, OrtStatus *, SessionGetInputTypeInfo, (const OrtSession *, size_t, OrtTypeInfo **))        \
  X(34, OrtStatus *, SessionGetOutputTypeInfo, (const OrtSession *, size_t, OrtTypeInfo **))       \
  X(35, OrtStatus *, SessionGetOverridableInitializerTypeInfo,                                     \
    (const OrtSession *, size_t, OrtTypeInfo **))                                                  \
  X(36, OrtStatus *, SessionGetInputName, (const OrtSession *, size_t, OrtAllocator *, char **))   \
  X(37, OrtStatus *, SessionGetOutputName, (const OrtSession *, size_t, OrtAllocator *, char **))  \
  X(38, OrtStatus *, SessionGetOverridableInitializerName,                                         \
    (const OrtSession *, size_t, OrtAllocator *, char **))                                         \
  X(131, OrtStatus *, CreateAllocator,                                                             \
    (const OrtSession *, const OrtMemoryInfo *, OrtAllocator **))                                  \
  X(132, void, ReleaseAllocator, (OrtAllocator *))                                                 \
  X(319, OrtStatus *, AllocatorGetStats, (const OrtAllocator *, OrtKeyValuePairs **))              \
  X(297, const char *, GetKeyValue, (const OrtKeyValuePairs *, const char *))                      \
  X(300, void, ReleaseKeyValuePairs, (OrtKeyValuePairs *))                                         \
  X(111, OrtStatus *, SessionGetModelMetadata, (const OrtSession *, OrtModelMetadata **))          \
  X(158, OrtStatus *, ModelMetadataGetGraphDescription,                                            \
    (const OrtModelMetadata *, OrtAllocator *, char **))                                           \
  X(118, void, ReleaseModelMetadata, (OrtModelMetadata *))                                         \
                                                                                                   \
  X(56, OrtStatus *, GetOnnxTypeFromTypeInfo, (const OrtTypeInfo *, ortx_enum *))                  \
  X(55, OrtStatus *, CastTypeInfoToTensorInfo,                                                     \
    (const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **))                                     \
  X(60, OrtStatus *, GetTensorElementType, (const OrtTensorTypeAndShapeInfo *, ortx_enum *))       \
  X(390, bool, TensorTypeAndShape_HasShape, (const OrtTensorTypeAndShapeInfo *))                   \
  X(61, OrtStatus *, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo *, size_t *))            \
  X(62, OrtStatus *, GetDimensions, (const OrtTensorTypeAndShapeInfo *, int64_t *, size_t))        \
  X(63, OrtStatus *, GetSymbolicDimensions,                                                        \
    (const OrtTensorTypeAndShapeInfo *, const char **, size_t))                                    \
  X(98, void, ReleaseTypeInfo, (OrtTypeInfo *))                                                    \
  X(99, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo *))                        \
                                                                                                   \
  X(49, OrtStatus *, CreateTensorWithDataAsOrtValue,                                               \
    (const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, ortx_enum, OrtValue **))      \
  X(48, OrtStatus *, CreateTensorAsOrtValue,                                                       \
    (OrtAllocator *, const int64_t *, size_t, ortx_enum, OrtValue **))                             \
  X(65, OrtStatus *, GetTensorTypeAndShape, (const OrtValue *, OrtTensorTypeAndShapeInfo **))      \
  X(64, OrtStatus *, GetTensorShapeElementCount, (const OrtTensorTypeAndShapeInfo *, size_t *))    \
  X(51, OrtStatus *, GetTensorMutableData, (OrtValue *, void **))                                  \
  X(318, OrtStatus *, GetTensorSizeInBytes, (const OrtValue *, size_t *))                          \
  X(252, OrtStatus *, GetResizedStringTensorElementBuffer, (OrtValue *, size_t, size_t, char **))  \
  X(127, OrtStatus *, GetStringTensorElementLength, (const OrtValue *, size_t, size_t *))          \
  X(128, OrtStatus *, GetStringTensorElement, (const OrtValue *, size_t, size_t, void *))          \
  X(96, void, ReleaseValue, (OrtValue *))                                                          \
                                                                                                   \
  X(9, OrtStatus *, Run,                                                                           \
    (OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, size_t,    \
     const char *const *, size_t, OrtValue **))                                                    \
                                                                                                   \
  X(68, OrtStatus *, CreateMemoryInfo,                                                             \
    (const char *, ortx_signed_enum, int, ortx_signed_enum, OrtMemoryInfo **))                     \
  X(94, void, ReleaseMemoryInfo, (OrtMemoryInfo *))                                                \
  X(134, OrtStatus *, CreateIoBinding, (OrtSession *, OrtIoBinding **))                            \
  X(135, void, ReleaseIoBinding, (OrtIoBinding *))                                                 \
  X(136, OrtStatus *, BindInput, (OrtIoBinding *, const char *, const OrtValue *))                 \
  X(137, OrtStatus *, BindOutput, (OrtIoBinding *, const char *, const OrtValue *))                \
  X(138, OrtStatus *, BindOutputToDevice, (OrtIoBinding *, const char *, const OrtMemoryInfo *))   \
  X(140, OrtStatus *, GetBoundOutputValues,                                                        \
    (const OrtIoBinding *, OrtAllocator *, OrtValue ***, size_t *))                                \
  X(39, OrtStatus *, CreateRunOptions, (OrtRunOptions **))                                         \
  X(165, OrtStatus *, AddRunConfigEntry, (OrtRunOptions *, const char *, const char *))            \
  X(97, void, ReleaseRunOptions, (OrtRunOptions *))                                                \
  X(133, OrtStatus *, RunWithBinding, (OrtSession *, const OrtRunOptions *, const OrtIoBinding *)) \
                                                                                                   \
  X(205, OrtStatus *, CreateCUDAProviderOptions, (OrtCUDAProviderOptionsV2 **))                    \
  X(206, OrtStatus *, UpdateCUDAProviderOptions,                                                   \
    (OrtCUDAProviderOptionsV2 *, const char *const *, const char *const *, size_t))                \
  X(263, OrtStatus *, UpdateCUDAProviderOptionsWithValue,                                          \
    (OrtCUDAProviderOptionsV2 *, const char *, void *))                                            \
  X(208, void, ReleaseCUDAProviderOptions, (OrtCUDAProviderOptionsV2 *))                           \
  X(204, OrtStatus *, SessionOptionsAppendExecutionProvider_CUDA_V2,                               \
    (OrtSessionOptions *, const OrtCUDAProviderOptionsV2 *))                                       \
  X(171, OrtStatus *, CreateTensorRTProviderOptions, (OrtTensorRTProviderOptionsV2 **))            \
  X(172, OrtStatus *, UpdateTensorRTProviderOptions,                                               \
    (OrtTensorRTProviderOptionsV2 *, const char *const *, const char *const *, size_t))            \
  X(261, OrtStatus *, UpdateTensorRTProviderOptionsWithValue,                                      \
    (OrtTensorRTProviderOptionsV2 *, const char *, void *))                                        \
  X(174, void, ReleaseTensorRTProviderOptions, (OrtTensorRTProviderOptionsV2 *))                   \
  X(170, OrtStatus *, SessionOptionsAppendExecutionProvider_TensorRT_V2,                           \
    (OrtSessionOptions *, const OrtTensorRTProviderOptionsV2 *))

// The functions by name, filled when the library is opened.
typedef struct {
#define X(ordinal, result, name, parameters) result(*name) parameters;
  ORTX_FUNCTIONS(X)
#undef X
} ortx_api;

#endif
