/* The functions of the CUDA driver and of cuBLAS that are used, found when a model is opened: nothing of CUDA is needed
 * to build or to run anything else. Types and numbers are those of the driver's ABI. Thread-safe once loaded. */
#ifndef MOEC_RUNTIME_CUDA_DRIVER_H
#define MOEC_RUNTIME_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct CUctx_st *moec_cu_context;
typedef struct CUmod_st *moec_cu_module;
typedef struct CUfunc_st *moec_cu_function;
typedef struct CUstream_st *moec_cu_stream;
typedef struct CUevent_st *moec_cu_event;
typedef struct CUgraph_st *moec_cu_graph;
typedef struct CUgraphNode_st *moec_cu_node;
typedef struct cublasContext *moec_cublas_handle;
typedef unsigned long long moec_cu_address;

enum { /* CUdevice_attribute, CUfunction_attribute, CUresult, CUstream_flags, CUstreamCaptureMode, CUgraphNodeType */
  MOEC_CU_ATTRIBUTE_THREADS_OF_MULTIPROCESSOR = 39,
  MOEC_CU_ATTRIBUTE_MULTIPROCESSORS = 16,
  MOEC_CU_ATTRIBUTE_MAJOR = 75,
  MOEC_CU_ATTRIBUTE_MINOR = 76,
  MOEC_CU_FUNCTION_SHARED_BYTES = 8,
  MOEC_CU_NO_DEVICE = 100,
  MOEC_CU_STREAM_NON_BLOCKING = 1,
  MOEC_CU_CAPTURE_OF_THREAD = 1,
  MOEC_CU_NODE_KERNEL = 0,
  MOEC_CU_NODE_COPY = 1,
  MOEC_CU_NODE_FILL = 2
};

/* FUNCTION(field, symbol, parameters); each gives a CUresult, 0 for success. */
#define MOEC_CU_FUNCTIONS(FUNCTION)                                                                               \
  FUNCTION(init, "cuInit", (unsigned flags))                                                                      \
  FUNCTION(device_get, "cuDeviceGet", (int *device, int ordinal))                                                 \
  FUNCTION(device_count, "cuDeviceGetCount", (int *count))                                                        \
  FUNCTION(device_name, "cuDeviceGetName", (char *name, int size, int device))                                    \
  FUNCTION(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                     \
  FUNCTION(context_retain, "cuDevicePrimaryCtxRetain", (moec_cu_context *out, int device))                        \
  FUNCTION(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                         \
  FUNCTION(context_set, "cuCtxSetCurrent", (moec_cu_context context))                                             \
  FUNCTION(stream_create, "cuStreamCreate", (moec_cu_stream *out, unsigned flags))                                \
  FUNCTION(stream_destroy, "cuStreamDestroy_v2", (moec_cu_stream stream))                                         \
  FUNCTION(stream_wait, "cuStreamSynchronize", (moec_cu_stream stream))                                           \
  FUNCTION(alloc, "cuMemAlloc_v2", (moec_cu_address *out, size_t bytes))                                          \
  FUNCTION(free, "cuMemFree_v2", (moec_cu_address at))                                                            \
  FUNCTION(host_alloc, "cuMemHostAlloc", (void **out, size_t bytes, unsigned flags))                              \
  FUNCTION(host_free, "cuMemFreeHost", (void *at))                                                                \
  FUNCTION(write, "cuMemcpyHtoDAsync_v2",                                                                         \
           (moec_cu_address to, const void *from, size_t bytes, moec_cu_stream stream))                           \
  FUNCTION(read, "cuMemcpyDtoHAsync_v2", (void *to, moec_cu_address from, size_t bytes, moec_cu_stream stream))   \
  FUNCTION(copy, "cuMemcpyDtoDAsync_v2",                                                                          \
           (moec_cu_address to, moec_cu_address from, size_t bytes, moec_cu_stream stream))                       \
  FUNCTION(fill, "cuMemsetD8Async", (moec_cu_address to, unsigned char byte, size_t bytes, moec_cu_stream stream)) \
  FUNCTION(event_create, "cuEventCreate", (moec_cu_event *out, unsigned flags))                                   \
  FUNCTION(event_destroy, "cuEventDestroy_v2", (moec_cu_event event))                                             \
  FUNCTION(event_record, "cuEventRecord", (moec_cu_event event, moec_cu_stream stream))                           \
  FUNCTION(event_elapsed, "cuEventElapsedTime", (float *ms, moec_cu_event from, moec_cu_event to))                \
  FUNCTION(capture_begin, "cuStreamBeginCapture_v2", (moec_cu_stream stream, int mode))                           \
  FUNCTION(capture_end, "cuStreamEndCapture", (moec_cu_stream stream, moec_cu_graph *out))                        \
  FUNCTION(graph_nodes, "cuGraphGetNodes", (moec_cu_graph graph, moec_cu_node *out, size_t *n))                   \
  FUNCTION(graph_node_type, "cuGraphNodeGetType", (moec_cu_node node, int *out))                                  \
  FUNCTION(graph_destroy, "cuGraphDestroy", (moec_cu_graph graph))                                                \
  FUNCTION(tensor_map, "cuTensorMapEncodeTiled",                                                                  \
           (void *out, int type, uint32_t rank, void *at, const uint64_t *dims, const uint64_t *strides,          \
            const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill))    \
  FUNCTION(module_load, "cuModuleLoadData", (moec_cu_module *out, const void *image))                             \
  FUNCTION(module_unload, "cuModuleUnload", (moec_cu_module module))                                              \
  FUNCTION(module_function, "cuModuleGetFunction",                                                                \
           (moec_cu_function *out, moec_cu_module module, const char *name))                                      \
  FUNCTION(function_set, "cuFuncSetAttribute", (moec_cu_function function, int attribute, int value))             \
  FUNCTION(launch, "cuLaunchKernel",                                                                              \
           (moec_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,       \
            unsigned block_y, unsigned block_z, unsigned shared, moec_cu_stream stream, void **parameters,        \
            void **extra))                                                                                        \
  FUNCTION(error_name, "cuGetErrorName", (int error, const char **out))                                           \
  FUNCTION(error_text, "cuGetErrorString", (int error, const char **out))

typedef struct moec_cu {
  void *library;
#define MOEC_CU_FIELD(field, symbol, parameters) int(*field) parameters;
  MOEC_CU_FUNCTIONS(MOEC_CU_FIELD)
#undef MOEC_CU_FIELD
} moec_cu;

enum { /* cudaDataType, cublasComputeType_t, cublasMath_t, cublasOperation_t, cublasGemmAlgo_t */
  MOEC_CUBLAS_F32 = 0,
  MOEC_CUBLAS_F64 = 1,
  MOEC_CUBLAS_F16 = 2,
  MOEC_CUBLAS_BF16 = 14,
  MOEC_CUBLAS_IN_F32 = 68,
  MOEC_CUBLAS_IN_F64 = 70,
  MOEC_CUBLAS_WHOLE_SUMS = 16, /* no partial sums in 16 bits; and f32 stays f32 */
  MOEC_CUBLAS_PLAIN = 0,
  MOEC_CUBLAS_TRANSPOSED = 1,
  MOEC_CUBLAS_ANY_ALGORITHM = -1
};

/* Each gives a cublasStatus_t, 0 for success. */
#define MOEC_CUBLAS_FUNCTIONS(FUNCTION)                                                                             \
  FUNCTION(create, "cublasCreate_v2", (moec_cublas_handle *out))                                                    \
  FUNCTION(destroy, "cublasDestroy_v2", (moec_cublas_handle handle))                                                \
  FUNCTION(set_stream, "cublasSetStream_v2", (moec_cublas_handle handle, moec_cu_stream stream))                    \
  FUNCTION(set_workspace, "cublasSetWorkspace_v2", (moec_cublas_handle handle, void *at, size_t bytes))             \
  FUNCTION(set_math, "cublasSetMathMode", (moec_cublas_handle handle, int mode))                                    \
  FUNCTION(gemm, "cublasGemmStridedBatchedEx_64",                                                                   \
           (moec_cublas_handle handle, int a_transposed, int b_transposed, int64_t m, int64_t n, int64_t k,         \
            const void *alpha, const void *a, int a_type, int64_t a_lead, long long a_step, const void *b,          \
            int b_type, int64_t b_lead, long long b_step, const void *beta, void *c, int c_type, int64_t c_lead,    \
            long long c_step, int64_t count, int compute, int algorithm))

typedef struct moec_cublas {
  void *library;
#define MOEC_CU_FIELD(field, symbol, parameters) int(*field) parameters;
  MOEC_CUBLAS_FUNCTIONS(MOEC_CU_FIELD)
#undef MOEC_CU_FIELD
} moec_cublas;

moec_status *moec_cu_load(moec_cu *out) MOEC_MUST_USE;
void moec_cu_unload(moec_cu *c);
moec_status *moec_cublas_load(moec_cublas *out) MOEC_MUST_USE;
void moec_cublas_unload(moec_cublas *c);

/* NULL for 0; else "CUDA: WHAT: the driver's name and text of |error|". */
moec_status *moec_cu_check(const moec_cu *c, int error, const char *what) MOEC_MUST_USE;

#endif
