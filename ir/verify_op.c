/* The verifier's rules about single ops, those that inference leaves out. One line of the table an op
 * or a class, one function a rule. */
#include "base/size.h"
#include "ir/infer.h"

typedef struct use {
  moec_module *m;
  const void *attrs;
  uint32_t n_in;
  const moec_type *in;
} use;

typedef moec_status *(*rule)(const use *u);

static moec_dtype dtype_of(const use *u, uint32_t i) { return moec_type_get(u->m, u->in[i]).dtype; }

static moec_status *takes_floats(const use *u) {
  return moec_dtype_is_float(dtype_of(u, 0)) ? NULL : BAD("expected floats, got %s", moec_type_text(u->m, u->in[0]));
}

static moec_status *takes_numbers(const use *u) {
  return dtype_of(u, 0) == MOEC_BOOL ? BAD("expected numbers, got %s", moec_type_text(u->m, u->in[0])) : NULL;
}

/* Bytes for each element of a static shape. */
static moec_status *const_is_whole(const use *u) {
  const moec_const *c = ((const moec_attrs_CONST *)u->attrs)->data;
  int64_t dims[MOEC_MAX_RANK];
  size_t size;
  if (!c) return BAD("expected data");
  moec_type_info t = moec_type_get(u->m, c->type);
  for (uint32_t i = 0; i < t.rank; i++)
    if (!moec_dim_is_const(u->m, t.dims[i], &dims[i]))
      return BAD("expected constant sizes, got %s", moec_type_text(u->m, c->type));
  MOEC_TRY(moec_shape_bytes(t.dtype, t.rank, dims, &size));
  return size == c->size ? NULL : BAD("expected %zu bytes of data, got %zu", size, c->size);
}

static moec_status *iota_counts(const use *u) {
  moec_dtype t = ((const moec_attrs_IOTA *)u->attrs)->dtype;
  return t && t != MOEC_BOOL ? NULL : BAD("expected an integer or float dtype");
}

/* Keeps the arithmetic of inference in range. */
static moec_status *small(const char *name, int64_t v) {
  return v >= INT32_MIN && v <= INT32_MAX ? NULL
                                          : BAD("%s: expected a number of 32 bits, got %lld", name, (long long)v);
}

static moec_status *all_small(const char *name, moec_ints list) {
  for (uint32_t i = 0; i < list.n; i++) MOEC_TRY(small(name, list.v[i]));
  return NULL;
}

static moec_status *conv_fits(const use *u) {
  const moec_attrs_CONV *a = u->attrs;
  moec_type_info w = moec_type_get(u->m, u->in[1]);
  int64_t filters;
  MOEC_TRY(all_small("pads", a->pads));
  MOEC_TRY(all_small("strides", a->strides));
  MOEC_TRY(all_small("dilations", a->dilations));
  MOEC_TRY(small("groups", a->groups));
  if (dtype_of(u, 0) != w.dtype)
    return BAD("expected operands of one dtype, got %s and %s", moec_type_text(u->m, u->in[0]),
               moec_type_text(u->m, u->in[1]));
  if (w.rank && a->groups > 0 && moec_dim_is_const(u->m, w.dims[0], &filters) && filters % a->groups)
    return BAD("expected groups to divide M, got groups = %lld and w %s", (long long)a->groups,
               moec_type_text(u->m, u->in[1]));
  return NULL;
}

static moec_status *plan_fits(const use *u) {
  return small("experts", ((const moec_attrs_MOE_PLAN *)u->attrs)->experts);
}

/* body(i: i64[], c: bool[], ...) -> (c: bool[], ...) */
static moec_status *loop_counts(const use *u) {
  const moec_graph *g = moec_fn_get(u->m, ((const moec_attrs_LOOP *)u->attrs)->body);
  moec_type count = moec_type_scalar(u->m, MOEC_I64), go_on = moec_type_scalar(u->m, MOEC_BOOL);
  if (u->in[0].i != count.i || u->in[1].i != go_on.i) return BAD("expected a trip count i64[] and a condition bool[]");
  if (g->n_inputs < 2 || g->values[g->inputs[0].i].type.i != count.i || g->values[g->inputs[1].i].type.i != go_on.i)
    return BAD("body: expected i64[] and bool[] as first inputs");
  if (g->n_outputs < 1 || g->values[g->outputs[0].i].type.i != go_on.i)
    return BAD("body: expected bool[] as first output");
  return NULL;
}

/* Whether the sizes of the first axes of |t|, maybe of none, have the product |rows|. */
static bool has_rows(moec_module *m, moec_type t, moec_dim rows) {
  moec_type_info i = moec_type_get(m, t);
  moec_dim product = moec_dim_const(m, 1);
  for (uint32_t k = 0; k < i.rank && !moec_dim_eq(product, rows); k++) product = moec_dim_mul(m, product, i.dims[k]);
  return moec_dim_eq(product, rows);
}

static bool is_attention(moec_op op) {
  return op == MOEC_OP_ATTENTION || op == MOEC_OP_ATTENTION_GRAD;
}

/* What generated code can do. */
static bool fits_kernel(moec_op op) {
  static const bool fits[] = {
      [MOEC_CLASS_LEAF] = true,    [MOEC_CLASS_UNARY] = true,  [MOEC_CLASS_BINARY] = true,
      [MOEC_CLASS_COMPARE] = true, [MOEC_CLASS_SELECT] = true, [MOEC_CLASS_CAST] = true,
      [MOEC_CLASS_REDUCE] = true,  [MOEC_CLASS_MOVE] = true,   [MOEC_CLASS_INDEX] = true,
      [MOEC_CLASS_MOE] = false, /* the last class */
  };
  if (op == MOEC_OP_PARAM || op == MOEC_OP_SCATTER_ELEMENTS || op == MOEC_OP_SCATTER_ND)
    return false;
  return is_attention(op) || op == MOEC_OP_BLOCK_SUM || fits[moec_op_cls(op)];
}

static moec_status *check_kernel(const moec_graph *g) {
  uint32_t attentions = 0, reductions = 0, sums = 0, results = 0;
  const char *name = moec_sym_str(g->m, g->name);
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    moec_op op = g->nodes[n].op;
    if (!op) continue;
    if (!fits_kernel(op)) return BAD("kernel @\"%s\" holds %s", name, moec_op_get(op)->text);
    attentions += is_attention(op);
    reductions += moec_op_cls(op) == MOEC_CLASS_REDUCE;
    sums += op == MOEC_OP_BLOCK_SUM;
  }
  for (size_t i = 0; i < g->n_outputs; i++)
    results += moec_def_op(g, g->outputs[i]) == MOEC_OP_BLOCK_SUM;
  if (sums != results) return BAD("kernel @\"%s\": expected every block_sum as a result", name);
  if (attentions > 1 || (attentions && reductions))
    return BAD("kernel @\"%s\": expected one attention alone", name);
  return NULL;
}

static moec_status *fused_is_kernel(const use *u) {
  const moec_attrs_FUSED *a = u->attrs;
  const moec_graph *g = moec_fn_get(u->m, a->fn);
  MOEC_TRY(check_kernel(g));
  if (!moec_dim_known(a->rows)) return BAD("rows is unknown");
  for (size_t i = 0; i < g->n_outputs; i++) {
    moec_value v = g->outputs[i];
    if (moec_def_op(g, v) == MOEC_OP_BLOCK_SUM) v = moec_in(g, moec_def(g, v), 0); /* its rows are those it adds up */
    moec_type t = g->values[v.i].type;
    if (!has_rows(u->m, t, a->rows))
      return BAD("rows = %s is no product of the first axes of result %zu, %s", moec_dim_text(u->m, a->rows), i,
                 moec_type_text(u->m, t));
  }
  return NULL;
}

static const rule rules[MOEC_OP_COUNT] = {
    [MOEC_OP_CONST] = const_is_whole,
    [MOEC_OP_IOTA] = iota_counts,
    [MOEC_OP_NEG] = takes_numbers,
    [MOEC_OP_ABS] = takes_numbers,
    [MOEC_OP_SIGN] = takes_numbers,
    [MOEC_OP_ISNAN] = takes_floats,
    [MOEC_OP_ISINF] = takes_floats,
    [MOEC_OP_REDUCE_SUM] = takes_numbers,
    [MOEC_OP_REDUCE_PROD] = takes_numbers,
    [MOEC_OP_CUMSUM] = takes_numbers,
    [MOEC_OP_CONV] = conv_fits,
    [MOEC_OP_LOOP] = loop_counts,
    [MOEC_OP_FUSED] = fused_is_kernel,
    [MOEC_OP_MOE_PLAN] = plan_fits,
};

moec_status *moec_verify_op(moec_module *m, moec_op op, const void *attrs, uint32_t n_in, const moec_type *in) {
  use u = {m, attrs, n_in, in};
  if (rules[op]) return rules[op](&u);
  return moec_op_cls(op) == MOEC_CLASS_UNARY && op != MOEC_OP_NOT ? takes_floats(&u) : NULL;
}
