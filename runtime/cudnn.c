#include "runtime/cudnn.h"

#include <dlfcn.h>
#include <string.h>

/* Numbers of cuDNN's ABI. */
enum { /* cudnnBackendDescriptorType_t */
  POINTWISE = 0,
  ENGINE_CONFIG = 3,
  HEURISTICS = 4,
  PLAN = 5,
  OP_POINTWISE = 13,
  GRAPH = 15,
  PACK = 16,
  TENSOR = 17,
  MATMUL = 18,
  OP_MATMUL = 19,
  REDUCTION = 21,
  OP_REDUCTION = 22,
  OP_RESHAPE = 31
};

enum { /* cudnnBackendAttributeType_t */
  A_HANDLE = 0,
  A_DTYPE = 1,
  A_BOOL = 2,
  A_I64 = 3,
  A_POINTER = 6,
  A_HEURISTICS = 8,
  A_POINTWISE = 14,
  A_DESCRIPTOR = 15,
  A_REDUCTION = 18
};

enum { /* cudnnBackendAttributeName_t */
  POINTWISE_MODE = 0,
  POINTWISE_IN = 1,
  POINTWISE_AXIS = 9,
  HEURISTICS_MODE = 200,
  HEURISTICS_GRAPH = 201,
  HEURISTICS_RESULTS = 202,
  PLAN_HANDLE = 400,
  PLAN_CONFIG = 401,
  PLAN_WORKSPACE = 402,
  OP_POINTWISE_HOW = 750,
  OP_POINTWISE_X = 751,
  OP_POINTWISE_B = 752,
  OP_POINTWISE_Y = 753,
  OP_POINTWISE_CONDITION = 758,
  GRAPH_HANDLE = 800,
  GRAPH_OPS = 801,
  TENSOR_ALIGNMENT = 900,
  TENSOR_TYPE = 901,
  TENSOR_DIMS = 902,
  TENSOR_STRIDES = 903,
  TENSOR_ID = 906,
  TENSOR_VIRTUAL = 907,
  TENSOR_BY_VALUE = 908,
  PACK_IDS = 1000,
  PACK_POINTERS = 1001,
  PACK_WORKSPACE = 1003,
  MATMUL_IN = 1500,
  OP_MATMUL_A = 1520,
  OP_MATMUL_B = 1521,
  OP_MATMUL_Y = 1522,
  OP_MATMUL_HOW = 1523,
  REDUCTION_MODE = 1600,
  REDUCTION_IN = 1601,
  OP_REDUCTION_X = 1610,
  OP_REDUCTION_Y = 1611,
  OP_REDUCTION_HOW = 1612,
  OP_RESHAPE_X = 2200,
  OP_RESHAPE_Y = 2201
};

/* ---- the library ------------------------------------------------------------------------- */

static moec_status *find_all(moec_cudnn *c) {
  static const struct {
    const char *symbol;
    size_t offset;
  } list[] = {
#define ROW(field, symbol, parameters) {symbol, offsetof(moec_cudnn, field)},
      MOEC_CUDNN_FUNCTIONS(ROW)
#undef ROW
          {"cudnnGetLastErrorString", offsetof(moec_cudnn, last_error)}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    void *at = dlsym(c->library, list[i].symbol);
    if (!at) return moec_error(MOEC_UNSUPPORTED, "expected a newer libcudnn.so.9: it has no %s", list[i].symbol);
    memcpy((char *)c + list[i].offset, &at, sizeof at); /* ISO C has no cast from data to code */
  }
  return NULL;
}

moec_status *moec_cudnn_check(const moec_cudnn *c, int status, const char *what) {
  enum { BAD_PARAMETER = 2000, FAILED = 4000 };
  char text[512] = "";
  if (!status) return NULL;
  c->last_error(text, sizeof text);
  text[sizeof text - 1] = 0;
  for (char *s = text; *s; s++)
    if (*s == '\n') *s = ' ';
  bool unfit = status >= BAD_PARAMETER && status < FAILED;
  return moec_error(unfit ? MOEC_UNSUPPORTED : MOEC_DEVICE, "cuDNN: %s: status %d: %s", what, status, text);
}

moec_status *moec_cudnn_open(moec_cu_stream stream, moec_cudnn *out) {
  *out = (moec_cudnn){.library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};
  if (!out->library) return moec_error(MOEC_UNSUPPORTED, "libcudnn.so.9 not found");
  moec_status *s = find_all(out);
  if (!s) s = moec_cudnn_check(out, out->create(&out->handle), "cudnnCreate");
  if (!s) s = moec_cudnn_check(out, out->set_stream(out->handle, stream), "cudnnSetStream");
  if (s) moec_cudnn_close(out);
  return s;
}

void moec_cudnn_close(moec_cudnn *c) {
  if (c->handle) (void)c->destroy(c->handle);
  if (c->library) dlclose(c->library);
  *c = (moec_cudnn){0};
}

/* ---- descriptors ------------------------------------------------------------------------- */

static void fail(moec_cudnn_graph *g, moec_status *s) {
  if (g->error) moec_status_free(s);
  else g->error = s;
}

/* What ended at |status|. */
static void note(moec_cudnn_graph *g, int status, const char *what) {
  if (status) fail(g, moec_cudnn_check(g->c, status, what));
}

static moec_cudnn_descriptor make(moec_cudnn_graph *g, int type) {
  moec_cudnn_descriptor d = NULL;
  if (g->error) return NULL;
  if (g->n_made == MOEC_CUDNN_MAX_DESCRIPTORS) {
    fail(g, MOEC_BUG("more than %d descriptors", (int)MOEC_CUDNN_MAX_DESCRIPTORS));
    return NULL;
  }
  note(g, g->c->make(type, &d), "cudnnBackendCreateDescriptor");
  if (!g->error) g->made[g->n_made++] = d;
  return d;
}

static void set(moec_cudnn_graph *g, moec_cudnn_descriptor d, int attribute, int type, int64_t n, const void *values) {
  if (!g->error) note(g, g->c->set(d, attribute, type, n, values), "cudnnBackendSetAttribute");
}

static void set_tensor(moec_cudnn_graph *g, moec_cudnn_descriptor d, int attribute, moec_cudnn_descriptor tensor) {
  set(g, d, attribute, A_DESCRIPTOR, 1, &tensor);
}

static void finish(moec_cudnn_graph *g, moec_cudnn_descriptor d, const char *what) {
  if (!g->error) note(g, g->c->finish(d), what);
}

static void finish_op(moec_cudnn_graph *g, moec_cudnn_descriptor d, const char *what) {
  finish(g, d, what);
  if (g->error) return;
  if (g->n_ops == MOEC_CUDNN_MAX_OPS) fail(g, MOEC_BUG("more than %d operations", (int)MOEC_CUDNN_MAX_OPS));
  else g->ops[g->n_ops++] = d;
}

moec_cudnn_descriptor moec_cudnn_tensor(moec_cudnn_graph *g, moec_cudnn_type type, const int64_t *dims,
                                        const int64_t *strides, int64_t id, bool by_value) {
  enum { AXES = 4, FIRST_INSIDE = 1000 };
  moec_cudnn_descriptor d = make(g, TENSOR);
  const int64_t alignment = 16;
  const bool inside = id == 0;
  if (inside) id = FIRST_INSIDE + g->next_id++;
  set(g, d, TENSOR_TYPE, A_DTYPE, 1, &type);
  set(g, d, TENSOR_DIMS, A_I64, AXES, dims);
  set(g, d, TENSOR_STRIDES, A_I64, AXES, strides);
  set(g, d, TENSOR_ID, A_I64, 1, &id);
  set(g, d, TENSOR_ALIGNMENT, A_I64, 1, &alignment);
  set(g, d, TENSOR_VIRTUAL, A_BOOL, 1, &inside);
  set(g, d, TENSOR_BY_VALUE, A_BOOL, 1, &by_value);
  finish(g, d, "a tensor");
  return d;
}

/* ---- operations -------------------------------------------------------------------------- */

static void pointwise(moec_cudnn_graph *g, moec_cudnn_pointwise mode, const int64_t *axis, moec_cudnn_descriptor x,
                      moec_cudnn_descriptor b, moec_cudnn_descriptor condition, moec_cudnn_descriptor y) {
  moec_cudnn_descriptor how = make(g, POINTWISE), op = make(g, OP_POINTWISE);
  const moec_cudnn_type in = mode == MOEC_CUDNN_GE ? MOEC_CUDNN_BOOL : MOEC_CUDNN_F32;
  set(g, how, POINTWISE_MODE, A_POINTWISE, 1, &mode);
  set(g, how, POINTWISE_IN, A_DTYPE, 1, &in);
  if (axis) set(g, how, POINTWISE_AXIS, A_I64, 1, axis);
  finish(g, how, "a pointwise operation");
  set_tensor(g, op, OP_POINTWISE_HOW, how);
  set_tensor(g, op, OP_POINTWISE_X, x);
  set_tensor(g, op, OP_POINTWISE_Y, y);
  if (b) set_tensor(g, op, OP_POINTWISE_B, b);
  if (condition) set_tensor(g, op, OP_POINTWISE_CONDITION, condition);
  finish_op(g, op, "a pointwise operation");
}

void moec_cudnn_add_pointwise(moec_cudnn_graph *g, moec_cudnn_pointwise mode, moec_cudnn_descriptor x,
                              moec_cudnn_descriptor b, moec_cudnn_descriptor condition, moec_cudnn_descriptor y) {
  pointwise(g, mode, NULL, x, b, condition, y);
}

void moec_cudnn_add_index(moec_cudnn_graph *g, int64_t axis, moec_cudnn_descriptor x, moec_cudnn_descriptor y) {
  pointwise(g, MOEC_CUDNN_INDEX, &axis, x, NULL, NULL, y);
}

void moec_cudnn_add_matmul(moec_cudnn_graph *g, moec_cudnn_descriptor a, moec_cudnn_descriptor b,
                           moec_cudnn_descriptor y) {
  moec_cudnn_descriptor how = make(g, MATMUL), op = make(g, OP_MATMUL);
  const moec_cudnn_type in = MOEC_CUDNN_F32;
  set(g, how, MATMUL_IN, A_DTYPE, 1, &in);
  finish(g, how, "a product");
  set_tensor(g, op, OP_MATMUL_A, a);
  set_tensor(g, op, OP_MATMUL_B, b);
  set_tensor(g, op, OP_MATMUL_Y, y);
  set_tensor(g, op, OP_MATMUL_HOW, how);
  finish_op(g, op, "a product");
}

void moec_cudnn_add_reduction(moec_cudnn_graph *g, moec_cudnn_reduction mode, moec_cudnn_descriptor x,
                              moec_cudnn_descriptor y) {
  moec_cudnn_descriptor how = make(g, REDUCTION), op = make(g, OP_REDUCTION);
  const moec_cudnn_type in = MOEC_CUDNN_F32;
  set(g, how, REDUCTION_IN, A_DTYPE, 1, &in);
  set(g, how, REDUCTION_MODE, A_REDUCTION, 1, &mode);
  finish(g, how, "a reduction");
  set_tensor(g, op, OP_REDUCTION_X, x);
  set_tensor(g, op, OP_REDUCTION_Y, y);
  set_tensor(g, op, OP_REDUCTION_HOW, how);
  finish_op(g, op, "a reduction");
}

void moec_cudnn_add_reshape(moec_cudnn_graph *g, moec_cudnn_descriptor x, moec_cudnn_descriptor y) {
  moec_cudnn_descriptor op = make(g, OP_RESHAPE);
  set_tensor(g, op, OP_RESHAPE_X, x);
  set_tensor(g, op, OP_RESHAPE_Y, y);
  finish_op(g, op, "a reshape");
}

/* ---- plans ------------------------------------------------------------------------------- */

static moec_status *build_plan(const moec_cudnn *c, moec_cudnn_descriptor config, moec_cudnn_descriptor *out,
                               uint64_t *workspace) {
  moec_cudnn_descriptor p = NULL;
  int64_t bytes = 0, got = 0;
  int status = c->make(PLAN, &p);
  if (!status) status = c->set(p, PLAN_HANDLE, A_HANDLE, 1, &c->handle);
  if (!status) status = c->set(p, PLAN_CONFIG, A_DESCRIPTOR, 1, &config);
  if (!status) status = c->finish(p);
  if (!status) status = c->get(p, PLAN_WORKSPACE, A_I64, 1, &got, &bytes);
  moec_status *s = moec_cudnn_check(c, status, "a plan");
  if (!s && bytes < 0) s = moec_error(MOEC_DEVICE, "cuDNN: a plan: expected a workspace of 0 bytes or more, got less");
  if (s && p) (void)c->drop(p);
  if (!s) *out = p, *workspace = (uint64_t)bytes;
  return s;
}

/* Only the library's first choice: engines of older devices, which come behind it, read the log-sum-exp as if it were
 * dense, whatever its strides. */
static moec_status *build(moec_cudnn_graph *g, moec_cudnn_descriptor *plan, uint64_t *workspace) {
  enum { MODE_A = 3 };
  const moec_cudnn *c = g->c;
  moec_cudnn_descriptor graph = make(g, GRAPH), choice = make(g, HEURISTICS), config = make(g, ENGINE_CONFIG);
  const int mode = MODE_A;
  int64_t n = 0;
  set(g, graph, GRAPH_HANDLE, A_HANDLE, 1, &c->handle);
  set(g, graph, GRAPH_OPS, A_DESCRIPTOR, g->n_ops, g->ops);
  finish(g, graph, "a graph");
  set_tensor(g, choice, HEURISTICS_GRAPH, graph);
  set(g, choice, HEURISTICS_MODE, A_HEURISTICS, 1, &mode);
  finish(g, choice, "the choice of an engine");
  if (!g->error)
    note(g, c->get(choice, HEURISTICS_RESULTS, A_DESCRIPTOR, 1, &n, &config), "the choice of an engine");
  if (g->error) return g->error;
  if (n < 1) return moec_error(MOEC_UNSUPPORTED, "cuDNN: it has no engine for these sizes");
  return build_plan(c, config, plan, workspace);
}

moec_status *moec_cudnn_graph_end(moec_cudnn_graph *g, moec_cudnn_descriptor *plan, uint64_t *workspace) {
  moec_status *s = build(g, plan, workspace);
  while (g->n_made) (void)g->c->drop(g->made[--g->n_made]);
  return s;
}

void moec_cudnn_plan_drop(const moec_cudnn *c, moec_cudnn_plan *p) {
  if (p->plan) (void)c->drop(p->plan);
  *p = (moec_cudnn_plan){0};
}

/* ---- runs -------------------------------------------------------------------------------- */

moec_status *moec_cudnn_pack(const moec_cudnn *c, uint32_t n, const int64_t *ids, void *const *pointers,
                             void *workspace, moec_cudnn_descriptor *out) {
  moec_cudnn_descriptor d = NULL;
  int status = c->make(PACK, &d);
  if (!status) status = c->set(d, PACK_IDS, A_I64, n, ids);
  if (!status) status = c->set(d, PACK_POINTERS, A_POINTER, n, pointers);
  if (!status) status = c->set(d, PACK_WORKSPACE, A_POINTER, 1, &workspace);
  if (!status) status = c->finish(d);
  if (status && d) (void)c->drop(d);
  MOEC_TRY(moec_cudnn_check(c, status, "addresses"));
  *out = d;
  return NULL;
}

void moec_cudnn_pack_drop(const moec_cudnn *c, moec_cudnn_descriptor *pack) {
  if (*pack) (void)c->drop(*pack);
  *pack = NULL;
}

moec_status *moec_cudnn_run(const moec_cudnn *c, const moec_cudnn_plan *p, moec_cudnn_descriptor pack) {
  return moec_cudnn_check(c, c->execute(c->handle, p->plan, pack), "cudnnBackendExecute");
}
