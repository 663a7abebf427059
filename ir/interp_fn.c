/* The interpreter's heart: a function, node by node. A value lives until its last use. */
#include <stdlib.h>
#include <string.h>

#include "ir/interp_internal.h"

enum { MAX_DEPTH = 64 }; /* of calls: a function that calls itself ends here */

/* ---- dispatch ----------------------------------------------------------------------------- */

#define KERNEL_LEAF(infer) moec_eval_##infer
#define KERNEL_UNARY(infer) moec_eval_##infer
#define KERNEL_BINARY(infer) moec_eval_##infer
#define KERNEL_COMPARE(infer) moec_eval_##infer
#define KERNEL_SELECT(infer) moec_eval_##infer
#define KERNEL_CAST(infer) moec_eval_##infer
#define KERNEL_REDUCE(infer) moec_eval_##infer
#define KERNEL_SCAN(infer) moec_eval_##infer
#define KERNEL_MOVE(infer) moec_eval_##infer
#define KERNEL_INDEX(infer) moec_eval_##infer
#define KERNEL_DOT(infer) moec_eval_##infer
#define KERNEL_SORT(infer) moec_eval_##infer
#define KERNEL_EFFECT(infer) moec_eval_##infer
#define KERNEL_CONTROL(infer) moec_eval_##infer
#define KERNEL_COMPOSITE(infer) moec_eval_composite
#define KERNEL_MOE(infer) moec_eval_composite
#define OP(NAME, text, min_in, max_in, min_out, max_out, cls, infer, attrs) \
  [MOEC_OP_##NAME] = KERNEL_##cls(infer),
static const moec_kernel kernels[MOEC_OP_COUNT] = {
#include "ir/ops.def"
};
#undef OP

/* Ops that run functions get their results from them. */
static bool runs_function(moec_op op) { return moec_op_cls(op) >= MOEC_CLASS_CONTROL; }

/* ---- memory ------------------------------------------------------------------------------- */

moec_status *moec_interp_new(moec_interp *ip, moec_dtype dtype, uint32_t rank, const int64_t *dims,
                             moec_tensor *out) {
  size_t bytes, limit = ip->options.memory_limit;
  moec_tensor t; /* |dims| may lie in *out */
  out->data = NULL;
  MOEC_TRY(moec_shape_bytes(dtype, rank, dims, &bytes));
  if (bytes > limit - ip->live)
    return moec_error(MOEC_OUT_OF_MEMORY,
                      "expected at most %zu bytes of intermediate values, got %zu and %zu more",
                      limit, ip->live, bytes);
  MOEC_TRY(moec_tensor_init(&t, dtype, rank, dims));
  *out = t;
  ip->live += bytes;
  return NULL;
}

void moec_interp_free(moec_interp *ip, moec_tensor *t) {
  if (!t->data) return;
  ip->live -= moec_tensor_bytes(t);
  moec_tensor_fini(t);
}

moec_status *moec_interp_copy(moec_interp *ip, const moec_tensor *t, moec_tensor *out) {
  MOEC_TRY(moec_interp_new(ip, t->dtype, t->rank, t->dims, out));
  memcpy(out->data, t->data, moec_tensor_bytes(t));
  return NULL;
}

static moec_dtype held_as(moec_dtype t) { return moec_dtype_is_float(t) ? MOEC_F64 : MOEC_I64; }

/* ---- sizes -------------------------------------------------------------------------------- */

moec_status *moec_interp_dim(const moec_interp *ip, moec_dim d, int64_t *out) {
  if (moec_dim_bound(ip->m, d, ip->symbols)) return moec_dim_eval(ip->m, d, ip->symbols, out);
  moec_buf text = {0};
  moec_dim_print(&text, ip->m, d);
  moec_status *e = MOEC_RUN_ERROR("size %s does not follow from the inputs", moec_buf_str(&text));
  moec_buf_fini(&text);
  return e;
}

moec_status *moec_interp_shape(const moec_interp *ip, moec_type t, int64_t *dims) {
  moec_type_info i = moec_type_get(ip->m, t);
  for (uint32_t k = 0; k < i.rank; k++) MOEC_TRY(moec_interp_dim(ip, i.dims[k], &dims[k]));
  return NULL;
}

/* ---- rounding ----------------------------------------------------------------------------- */

static void round_floats(moec_dtype t, int64_t n, double *x) {
  uint64_t bytes = 0;
  if (t == MOEC_F64) return;
  if (t == MOEC_F32) {
    for (int64_t i = 0; i < n; i++) x[i] = (double)(float)x[i];
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    moec_store_f64(t, &bytes, 0, x[i]);
    x[i] = moec_load_f64(t, &bytes, 0);
  }
}

/* Brings computed elements to what the value's dtype can hold. */
static void settle(const moec_interp *ip, moec_dtype t, moec_tensor *x) {
  int64_t n = moec_tensor_numel(x), *v = x->data;
  if (moec_is_f64(x)) {
    if (!ip->options.f64) round_floats(t, n, x->data);
  } else if (t != MOEC_I64 && t != MOEC_U64) {
    for (int64_t i = 0; i < n; i++) v[i] = moec_wrap_int(t, v[i]);
  }
}

/* ---- one function ------------------------------------------------------------------------- */

typedef struct frame {
  moec_interp *ip;
  moec_fn fn;
  const moec_graph *g;
  moec_tensor *values; /* by value; no data: not computed yet, or dead */
  bool *owned;         /* by value; inputs belong to the caller */
  uint32_t *uses;      /* by value: reads to come, the function's outputs included */
  moec_node *order;    /* the nodes that outputs need, operands first */
  size_t n_order;
  uint8_t *seen; /* by node, while ordering */
  moec_node *stack;
  uint32_t *next; /* by node: the operand to visit next */
} frame;

static void frame_fini(frame *f) {
  for (size_t v = 1; f->values && v < f->g->n_values; v++)
    if (f->owned[v]) moec_interp_free(f->ip, &f->values[v]);
  free(f->values);
  free(f->owned);
  free(f->uses);
  free(f->order);
  free(f->seen);
  free(f->stack);
  free(f->next);
}

static moec_status *frame_init(frame *f) {
  size_t nv = f->g->n_values, nn = f->g->n_nodes;
  f->values = calloc(nv, sizeof *f->values);
  f->owned = calloc(nv, sizeof *f->owned);
  f->uses = calloc(nv, sizeof *f->uses);
  f->order = calloc(nn, sizeof *f->order);
  f->seen = calloc(nn, sizeof *f->seen);
  f->stack = calloc(nn, sizeof *f->stack);
  f->next = calloc(nn, sizeof *f->next);
  if (!f->owned || !f->uses || !f->order || !f->seen || !f->stack || !f->next) {
    free(f->values); /* frame_fini() reads the others only for values */
    f->values = NULL;
  }
  return f->values ? NULL : moec_error(MOEC_OUT_OF_MEMORY, "no memory for %zu values", nv);
}

/* Appends |root| to the order, behind everything it reads. Iterative: any depth. */
static void visit(frame *f, moec_node root) {
  size_t n = 0;
  if (!root.i || f->seen[root.i]) return;
  f->seen[root.i] = 1;
  f->stack[n++] = root;
  while (n) {
    moec_node top = f->stack[n - 1];
    if (f->next[top.i] == moec_node_get(f->g, top)->n_in) {
      f->order[f->n_order++] = top;
      n--;
      continue;
    }
    moec_value v = moec_in(f->g, top, f->next[top.i]++);
    moec_node d = moec_def(f->g, v);
    f->uses[v.i]++;
    if (!d.i || f->seen[d.i]) continue;
    f->seen[d.i] = 1;
    f->stack[n++] = d;
  }
}

static void release(frame *f, moec_value v) {
  if (v.i && --f->uses[v.i] == 0 && f->owned[v.i]) moec_interp_free(f->ip, &f->values[v.i]);
}

/* A reshape of a value that nobody else reads any more takes its elements over. */
static bool take_over(frame *f, moec_step *s) {
  moec_value v = moec_in(s->g, s->n, 0);
  if (s->op != MOEC_OP_RESHAPE || !f->owned[v.i] || f->uses[v.i] != 1) return false;
  if (moec_tensor_numel(&s->out[0]) != moec_tensor_numel(&f->values[v.i])) return false;
  s->out[0].data = f->values[v.i].data;
  f->values[v.i].data = NULL;
  return true;
}

/* Results of functions have the sizes that the caller's types say? */
static moec_status *check_shape(const moec_step *s, uint32_t i) {
  moec_type type = moec_value_get(s->g, moec_out(s->g, s->n, i))->type;
  int64_t dims[MOEC_MAX_RANK];
  MOEC_TRY(moec_interp_shape(s->ip, type, dims));
  for (uint32_t k = 0; k < s->out[i].rank; k++)
    if (s->out[i].dims[k] != dims[k])
      return MOEC_RUN_ERROR("axis %u of result %u is %lld, expected %lld", k, i,
                            (long long)s->out[i].dims[k], (long long)dims[k]);
  return NULL;
}

static moec_status *evaluate(frame *f, moec_step *s) {
  moec_interp *ip = s->ip;
  for (uint32_t i = 0; i < s->n_out; i++) {
    moec_type type = moec_value_get(s->g, moec_out(s->g, s->n, i))->type;
    moec_type_info t = moec_type_get(ip->m, type);
    s->out[i] = (moec_tensor){.dtype = held_as(t.dtype), .rank = t.rank};
    MOEC_TRY(moec_interp_shape(ip, type, s->out[i].dims));
  }
  if (take_over(f, s)) return NULL;
  bool function = runs_function(s->op);
  for (uint32_t i = 0; i < s->n_out && !function; i++) {
    moec_tensor *y = &s->out[i];
    MOEC_TRY(moec_interp_new(ip, y->dtype, y->rank, y->dims, y));
  }
  MOEC_TRY(kernels[s->op](s));
  for (uint32_t i = 0; i < s->n_out; i++) {
    if (function)
      MOEC_TRY(check_shape(s, i));
    else
      settle(ip, moec_step_result(s, i), &s->out[i]);
  }
  return NULL;
}

static void trace(const moec_step *s) {
  const moec_interp *ip = s->ip;
  if (ip->options.trace && s->fn.i < ip->source->n_fns)
    ip->options.trace(ip->options.user, moec_fn_get(ip->source, s->fn), s->n, s->out);
}

static moec_status *run_node(frame *f, moec_node n) {
  const moec_node_info *p = moec_node_get(f->g, n);
  moec_step s = {f->ip, f->fn, f->g, n, p->op, p->attrs, p->n_in, p->n_out, NULL, NULL};
  s.in = calloc(p->n_in + 1, sizeof *s.in);
  s.out = calloc(p->n_out + 1, sizeof *s.out);
  moec_status *e = NULL;
  if (!s.in || !s.out) {
    e = moec_error(MOEC_OUT_OF_MEMORY, "no memory for operands");
  } else {
    for (uint32_t i = 0; i < s.n_in; i++) {
      moec_value v = moec_in(f->g, n, i);
      if (v.i) s.in[i] = &f->values[v.i];
    }
    e = evaluate(f, &s);
  }
  if (!e) trace(&s);
  for (uint32_t i = 0; s.out && i < s.n_out; i++) {
    moec_value v = moec_out(f->g, n, i);
    f->values[v.i] = s.out[i];
    f->owned[v.i] = true;
    if (!f->uses[v.i]) moec_interp_free(f->ip, &f->values[v.i]);
  }
  for (uint32_t i = 0; !e && i < s.n_in; i++) release(f, moec_in(f->g, n, i));
  free(s.in);
  free(s.out);
  return moec_context(e, "%s \"%s\"", moec_op_get(p->op)->text, moec_sym_str(f->ip->m, p->loc));
}

static moec_status *take_outputs(frame *f, moec_tensor *out) {
  for (size_t i = 0; i < f->g->n_outputs; i++) {
    moec_value v = f->g->outputs[i];
    if (f->owned[v.i] && f->uses[v.i] == 1) {
      out[i] = f->values[v.i];
      f->values[v.i] = (moec_tensor){0};
    } else {
      MOEC_TRY(moec_interp_copy(f->ip, &f->values[v.i], &out[i]));
    }
    f->uses[v.i]--;
  }
  return NULL;
}

static moec_status *run_frame(frame *f, const moec_tensor **in, moec_tensor *out) {
  MOEC_TRY(frame_init(f));
  for (size_t i = 0; i < f->g->n_inputs; i++) f->values[f->g->inputs[i].i] = *in[i];
  for (size_t i = 0; i < f->g->n_outputs; i++) {
    f->uses[f->g->outputs[i].i]++;
    visit(f, moec_def(f->g, f->g->outputs[i]));
  }
  for (size_t i = 0; i < f->n_order; i++) MOEC_TRY(run_node(f, f->order[i]));
  return take_outputs(f, out);
}

moec_status *moec_interp_call(moec_interp *ip, moec_fn fn, uint32_t n_in, const moec_tensor **in,
                              uint32_t n_out, moec_tensor *out) {
  frame f = {.ip = ip, .fn = fn, .g = moec_fn_get(ip->m, fn)};
  const char *name = moec_sym_str(ip->m, f.g->name);
  if (n_in != f.g->n_inputs || n_out != f.g->n_outputs)
    return MOEC_BUG("@\"%s\": expected %zu inputs and %zu outputs, got %u and %u", name,
                    f.g->n_inputs, f.g->n_outputs, n_in, n_out);
  if (ip->depth == MAX_DEPTH)
    return MOEC_RUN_ERROR("@\"%s\": expected calls at most %d deep", name, MAX_DEPTH);
  for (uint32_t i = 0; i < n_out; i++) out[i] = (moec_tensor){0};
  ip->depth++;
  moec_status *e = run_frame(&f, in, out);
  ip->depth--;
  frame_fini(&f);
  for (uint32_t i = 0; e && i < n_out; i++) moec_interp_free(ip, &out[i]);
  return e;
}
