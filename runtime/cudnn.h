/* cuDNN's graph API, found when a model is opened, for attention and its gradient: a graph of its operations becomes a
 * plan for one set of sizes and strides, which is run on given addresses. Files: cudnn.c the library, its descriptors
 * and plans; cudnn_attention.c the graphs. Types and numbers are those of cuDNN 9's ABI. Like the model one thread at a
 * time. */
#ifndef MOEC_RUNTIME_CUDNN_H
#define MOEC_RUNTIME_CUDNN_H

#include "base/dtype.h"
#include "runtime/cuda_driver.h"

typedef struct cudnnContext *moec_cudnn_handle;
typedef void *moec_cudnn_descriptor;

/* Each gives a cudnnStatus_t, 0 for success. */
#define MOEC_CUDNN_FUNCTIONS(FUNCTION)                                                                              \
  FUNCTION(create, "cudnnCreate", (moec_cudnn_handle *out))                                                         \
  FUNCTION(destroy, "cudnnDestroy", (moec_cudnn_handle handle))                                                     \
  FUNCTION(set_stream, "cudnnSetStream", (moec_cudnn_handle handle, moec_cu_stream stream))                         \
  FUNCTION(make, "cudnnBackendCreateDescriptor", (int type, moec_cudnn_descriptor *out))                            \
  FUNCTION(drop, "cudnnBackendDestroyDescriptor", (moec_cudnn_descriptor d))                                        \
  FUNCTION(finish, "cudnnBackendFinalize", (moec_cudnn_descriptor d))                                               \
  FUNCTION(set, "cudnnBackendSetAttribute",                                                                         \
           (moec_cudnn_descriptor d, int attribute, int type, int64_t n, const void *values))                       \
  FUNCTION(get, "cudnnBackendGetAttribute",                                                                         \
           (moec_cudnn_descriptor d, int attribute, int type, int64_t most, int64_t *n, void *values))              \
  FUNCTION(execute, "cudnnBackendExecute",                                                                          \
           (moec_cudnn_handle handle, moec_cudnn_descriptor plan, moec_cudnn_descriptor pack))

typedef struct moec_cudnn {
  void *library; /* NULL: not loaded */
  moec_cudnn_handle handle;
  void (*last_error)(char *out, size_t size);
#define MOEC_CU_FIELD(field, symbol, parameters) int(*field) parameters;
  MOEC_CUDNN_FUNCTIONS(MOEC_CU_FIELD)
#undef MOEC_CU_FIELD
} moec_cudnn;

/* Finds libcudnn.so.9 and makes a handle whose work goes to |stream| of the current context. */
moec_status *moec_cudnn_open(moec_cu_stream stream, moec_cudnn *out) MOEC_MUST_USE;
void moec_cudnn_close(moec_cudnn *c); /* also of what was not opened */
/* NULL for 0; else what the library says of it. Its plans don't fit: UNSUPPORTED. */
moec_status *moec_cudnn_check(const moec_cudnn *c, int status, const char *what) MOEC_MUST_USE;

/* ---- graphs ------------------------------------------------------------------------------ */

enum { MOEC_CUDNN_MAX_DESCRIPTORS = 128, MOEC_CUDNN_MAX_OPS = 32 };

typedef enum moec_cudnn_type { /* cudnnDataType_t */
  MOEC_CUDNN_F32 = 0,
  MOEC_CUDNN_F16 = 2,
  MOEC_CUDNN_I32 = 4,
  MOEC_CUDNN_BF16 = 9,
  MOEC_CUDNN_BOOL = 11
} moec_cudnn_type;

typedef enum moec_cudnn_pointwise { /* cudnnPointwiseMode_t */
  MOEC_CUDNN_ADD = 0,
  MOEC_CUDNN_MUL = 1,
  MOEC_CUDNN_DIV = 6,
  MOEC_CUDNN_SUB = 9,
  MOEC_CUDNN_EXP = 13,
  MOEC_CUDNN_LOG = 15,
  MOEC_CUDNN_IDENTITY = 21,
  MOEC_CUDNN_GE = 303,
  MOEC_CUDNN_INDEX = 501, /* along |axis| */
  MOEC_CUDNN_SELECT = 601
} moec_cudnn_pointwise;

typedef enum moec_cudnn_reduction { MOEC_CUDNN_SUM = 0, MOEC_CUDNN_MAX = 3 } moec_cudnn_reduction;

/* A graph being made. The first error stays and what follows does nothing. */
typedef struct moec_cudnn_graph {
  const moec_cudnn *c;
  moec_status *error;
  moec_cudnn_descriptor made[MOEC_CUDNN_MAX_DESCRIPTORS], ops[MOEC_CUDNN_MAX_OPS];
  uint32_t n_made, n_ops;
  int64_t next_id; /* of tensors that exist inside the graph alone */
} moec_cudnn_graph;

/* A tensor of four axes. |id|: of one in memory or, |by_value|, of a number; 0: inside the graph alone. */
moec_cudnn_descriptor moec_cudnn_tensor(moec_cudnn_graph *g, moec_cudnn_type type, const int64_t *dims,
                                        const int64_t *strides, int64_t id, bool by_value);
void moec_cudnn_add_pointwise(moec_cudnn_graph *g, moec_cudnn_pointwise mode, moec_cudnn_descriptor x,
                              moec_cudnn_descriptor b, moec_cudnn_descriptor condition, moec_cudnn_descriptor y);
void moec_cudnn_add_index(moec_cudnn_graph *g, int64_t axis, moec_cudnn_descriptor x, moec_cudnn_descriptor y);
void moec_cudnn_add_matmul(moec_cudnn_graph *g, moec_cudnn_descriptor a, moec_cudnn_descriptor b,
                           moec_cudnn_descriptor y);
void moec_cudnn_add_reduction(moec_cudnn_graph *g, moec_cudnn_reduction mode, moec_cudnn_descriptor x,
                              moec_cudnn_descriptor y);
/* y is x by other strides. */
void moec_cudnn_add_reshape(moec_cudnn_graph *g, moec_cudnn_descriptor x, moec_cudnn_descriptor y);
/* Addresses by id for a plan. */
moec_status *moec_cudnn_pack(const moec_cudnn *c, uint32_t n, const int64_t *ids, void *const *pointers,
                             void *workspace, moec_cudnn_descriptor *out) MOEC_MUST_USE;
/* The plan that the library chooses for the graph, and the bytes of memory it works in. The graph is over, also after
 * an error. */
moec_status *moec_cudnn_graph_end(moec_cudnn_graph *g, moec_cudnn_descriptor *plan,
                                  uint64_t *workspace) MOEC_MUST_USE;

/* ---- attention --------------------------------------------------------------------------- */

typedef enum moec_cudnn_operand {
  MOEC_CUDNN_Q,   /* [b, s, h, d] */
  MOEC_CUDNN_K,   /* [b, t, g, d] */
  MOEC_CUDNN_V,   /* [b, t, g, e] */
  MOEC_CUDNN_Y,   /* [b, s, h, e] */
  MOEC_CUDNN_LSE, /* [b, s, h], f32 */
  MOEC_CUDNN_DY,
  MOEC_CUDNN_DQ,
  MOEC_CUDNN_DK,
  MOEC_CUDNN_DV,
  MOEC_CUDNN_OPERANDS
} moec_cudnn_operand;

/* As `attention` and `attention_grad` of the IR. Two are the same when all their bytes are: start from zeros. */
typedef struct moec_cudnn_attention {
  int64_t b, s, t, h, g, d, e;
  int64_t strides[MOEC_CUDNN_OPERANDS][3]; /* in elements, of batch, row and head; the last axis is dense */
  float scale;
  uint32_t dtype; /* of all but lse: f16 or bf16 */
  uint32_t grad, causal, lse; /* lse: a forward's is wanted */
} moec_cudnn_attention;

typedef struct moec_cudnn_plan {
  moec_cudnn_attention of;
  moec_cudnn_descriptor plan;
  uint64_t sums, dq;  /* in the workspace, behind what the library works in: a number a row; a gradient's dq in f32 */
  uint64_t workspace; /* bytes of all of it */
  float numbers[3];   /* that the graph takes by value */
} moec_cudnn_plan;

moec_status *moec_cudnn_plan_make(const moec_cudnn *c, const moec_cudnn_attention *a,
                                  moec_cudnn_plan *out) MOEC_MUST_USE;
void moec_cudnn_plan_drop(const moec_cudnn *c, moec_cudnn_plan *p);

/* The plan with addresses on the device, of operands and |workspace|, at multiples of 256 but those of views. The plan
 * stays where it is as long as the pack is there. */
moec_status *moec_cudnn_pack_make(const moec_cudnn *c, const moec_cudnn_plan *p, void *const *operands, void *workspace,
                                  moec_cudnn_descriptor *out) MOEC_MUST_USE;
void moec_cudnn_pack_drop(const moec_cudnn *c, moec_cudnn_descriptor *pack);
/* Starts it on the handle's stream. */
moec_status *moec_cudnn_run(const moec_cudnn *c, const moec_cudnn_plan *p, moec_cudnn_descriptor pack) MOEC_MUST_USE;

#endif
