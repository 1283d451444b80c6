// Triton's functions, looked up at run time: the library links without
// Triton, runs in programs that hide Triton's symbols, and names what an older
// server lacks.
#pragma once

#include "../internal/triton/triton.h"

// REQUIRED functions must be there; an OPTIONAL one is NULL in a server that is
// too old for it, and its users ask first.
#define TRITON_FUNCTIONS(REQUIRED, OPTIONAL)                        \
  REQUIRED(TRITONSERVER_ErrorNew)                                   \
  REQUIRED(TRITONSERVER_ErrorDelete)                                \
  REQUIRED(TRITONSERVER_ErrorCode)                                  \
  REQUIRED(TRITONSERVER_ErrorMessage)                               \
  REQUIRED(TRITONSERVER_LogIsEnabled)                               \
  REQUIRED(TRITONSERVER_LogMessage)                                 \
  REQUIRED(TRITONSERVER_MessageSerializeToJson)                     \
  REQUIRED(TRITONSERVER_MessageDelete)                              \
  REQUIRED(TRITONSERVER_MessageNewFromSerializedJson)               \
  OPTIONAL(TRITONSERVER_ParameterNew)                               \
  OPTIONAL(TRITONSERVER_ParameterDelete)                            \
  OPTIONAL(TRITONSERVER_MetricFamilyNew)                            \
  OPTIONAL(TRITONSERVER_MetricFamilyDelete)                         \
  OPTIONAL(TRITONSERVER_MetricArgsNew)                              \
  OPTIONAL(TRITONSERVER_MetricArgsSetHistogram)                     \
  OPTIONAL(TRITONSERVER_MetricArgsDelete)                           \
  OPTIONAL(TRITONSERVER_MetricNew)                                  \
  OPTIONAL(TRITONSERVER_MetricNewWithArgs)                          \
  OPTIONAL(TRITONSERVER_MetricDelete)                               \
  OPTIONAL(TRITONSERVER_MetricIncrement)                            \
  OPTIONAL(TRITONSERVER_MetricSet)                                  \
  OPTIONAL(TRITONSERVER_MetricObserve)                              \
  OPTIONAL(TRITONSERVER_InferenceTraceReportActivity)               \
  OPTIONAL(TRITONSERVER_BufferAttributesNew)                        \
  OPTIONAL(TRITONSERVER_BufferAttributesDelete)                     \
  OPTIONAL(TRITONSERVER_BufferAttributesSetMemoryType)              \
  OPTIONAL(TRITONSERVER_BufferAttributesSetMemoryTypeId)            \
  OPTIONAL(TRITONSERVER_BufferAttributesSetByteSize)                \
  REQUIRED(TRITONBACKEND_ApiVersion)                                \
  REQUIRED(TRITONBACKEND_BackendConfig)                             \
  REQUIRED(TRITONBACKEND_BackendState)                              \
  REQUIRED(TRITONBACKEND_BackendSetState)                           \
  OPTIONAL(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup) \
  OPTIONAL(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading) \
  REQUIRED(TRITONBACKEND_ModelName)                                 \
  REQUIRED(TRITONBACKEND_ModelVersion)                              \
  REQUIRED(TRITONBACKEND_ModelRepository)                           \
  REQUIRED(TRITONBACKEND_ModelConfig)                               \
  REQUIRED(TRITONBACKEND_ModelAutoCompleteConfig)                   \
  REQUIRED(TRITONBACKEND_ModelSetConfig)                            \
  REQUIRED(TRITONBACKEND_ModelBackend)                              \
  REQUIRED(TRITONBACKEND_ModelState)                                \
  REQUIRED(TRITONBACKEND_ModelSetState)                             \
  OPTIONAL(TRITONBACKEND_ModelReportMemoryUsage)                    \
  REQUIRED(TRITONBACKEND_ModelInstanceName)                         \
  REQUIRED(TRITONBACKEND_ModelInstanceKind)                         \
  REQUIRED(TRITONBACKEND_ModelInstanceDeviceId)                     \
  OPTIONAL(TRITONBACKEND_ModelInstanceHostPolicy)                   \
  REQUIRED(TRITONBACKEND_ModelInstanceModel)                        \
  REQUIRED(TRITONBACKEND_ModelInstanceState)                        \
  REQUIRED(TRITONBACKEND_ModelInstanceSetState)                     \
  REQUIRED(TRITONBACKEND_ModelInstanceReportStatistics)             \
  REQUIRED(TRITONBACKEND_ModelInstanceReportBatchStatistics)        \
  REQUIRED(TRITONBACKEND_RequestFlags)                              \
  REQUIRED(TRITONBACKEND_RequestCorrelationId)                      \
  REQUIRED(TRITONBACKEND_RequestCorrelationIdString)                \
  OPTIONAL(TRITONBACKEND_RequestTrace)                              \
  OPTIONAL(TRITONBACKEND_RequestIsCancelled)                        \
  OPTIONAL(TRITONBACKEND_InferenceRequestTimeoutMicroseconds)       \
  OPTIONAL(TRITONBACKEND_RequestParameterCount)                     \
  OPTIONAL(TRITONBACKEND_RequestParameter)                          \
  REQUIRED(TRITONBACKEND_RequestInput)                              \
  REQUIRED(TRITONBACKEND_RequestOutputCount)                        \
  REQUIRED(TRITONBACKEND_RequestOutputName)                         \
  REQUIRED(TRITONBACKEND_RequestRelease)                            \
  REQUIRED(TRITONBACKEND_InputProperties)                           \
  REQUIRED(TRITONBACKEND_InputBuffer)                               \
  REQUIRED(TRITONBACKEND_ResponseNew)                               \
  REQUIRED(TRITONBACKEND_ResponseDelete)                            \
  REQUIRED(TRITONBACKEND_ResponseSetIntParameter)                   \
  REQUIRED(TRITONBACKEND_ResponseSetBoolParameter)                  \
  REQUIRED(TRITONBACKEND_ResponseOutput)                            \
  REQUIRED(TRITONBACKEND_OutputBuffer)                              \
  REQUIRED(TRITONBACKEND_ResponseSend)

#define TABLE_FIELD(name) __typeof__(&name) name;
typedef struct {
  TRITON_FUNCTIONS(TABLE_FIELD, TABLE_FIELD)
} triton_table;
#undef TABLE_FIELD

// The process has one Triton, so there is one table. Written by table_fill
// alone, before anything else of this library runs.
extern triton_table triton;

// table_fill looks every function up and returns the name of the first required
// one that is missing, or NULL. A second call changes nothing.
const char *table_fill(void);

// has_request_parameters reports whether the server has parameters of requests: Triton 23.04.
bool has_request_parameters(void);

// ---- errors ----

// error_new is TRITONSERVER_ErrorNew, and so on; for Go, which cannot call
// through the table.
TRITONSERVER_Error *error_new(TRITONSERVER_Error_Code code, const char *text);
void error_delete(TRITONSERVER_Error *error);
TRITONSERVER_Error_Code error_code(TRITONSERVER_Error *error);
const char *error_message(TRITONSERVER_Error *error);

// error_format is error_new with the format of printf; a text of more than
// 1 KiB is cut.
TRITONSERVER_Error *error_format(TRITONSERVER_Error_Code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// error_log deletes an error that has no caller to go to, after writing it to the
// log with what was being done. NULL is no error.
void error_log(const char *doing, TRITONSERVER_Error *error);

// ---- log ----

bool log_is_enabled(TRITONSERVER_LogLevel level);
TRITONSERVER_Error *log_message(TRITONSERVER_LogLevel level, const char *file, int line,
                                const char *text);

// log_onnxruntime takes ONNX Runtime's log lines, with its level: 0 verbose to
// 4 fatal. Called from any thread.
void log_onnxruntime(int level, const char *text);
