/* Shape arithmetic: nodes whose operands have known content are computed on dims at import and make
 * no node. One function an operator, in one table; an operator that is not here, or whose operands
 * have no content, is imported as data. */
#include <string.h>

#include "frontend/import_internal.h"

enum { MAX_CONTENT = 256 }; /* elements; longer ones are data */

typedef struct list {
  uint32_t rank, n;
  const moec_dim *v;
  moec_dtype dtype;
} list;

/* What an operator's function works on. |ok| false: leave it to the importer. */
typedef struct content_node {
  moec_onnx *n;
  moec_module *m;
  uint32_t n_in;
  list in[16];
  bool ok;
  moec_dim out[MAX_CONTENT];
  uint32_t rank, count;
  moec_dtype dtype;
} content_node;

typedef void (*content_fn)(content_node *c);

static void give(content_node *c, uint32_t rank, uint32_t count, moec_dtype dtype) {
  c->rank = rank, c->count = count, c->dtype = dtype;
  c->ok = rank <= 1 && count <= MAX_CONTENT;
  for (uint32_t i = 0; c->ok && i < count; i++) c->ok = moec_dim_known(c->out[i]);
}

static bool constant(const content_node *c, uint32_t i, uint32_t k, int64_t *out) {
  return i < c->n_in && k < c->in[i].n && moec_dim_is_const(c->m, c->in[i].v[k], out);
}

/* ---- elementwise -------------------------------------------------------------------------- */

typedef moec_dim (*dim_fn)(moec_module *m, moec_dim a, moec_dim b);

static void pairwise(content_node *c, dim_fn fn) {
  uint32_t n = c->in[0].n > c->in[1].n || c->in[1].n == 1 ? c->in[0].n : c->in[1].n;
  if (c->n_in != 2 || (c->in[0].n != n && c->in[0].n != 1) || (c->in[1].n != n && c->in[1].n != 1) || n > MAX_CONTENT)
    return;
  for (uint32_t i = 0; i < n; i++)
    c->out[i] = fn(c->m, c->in[0].v[c->in[0].n == 1 ? 0 : i], c->in[1].v[c->in[1].n == 1 ? 0 : i]);
  give(c, c->in[0].rank > c->in[1].rank ? c->in[0].rank : c->in[1].rank, n, c->in[0].dtype);
}

static void do_add(content_node *c) { pairwise(c, moec_dim_add); }
static void do_sub(content_node *c) { pairwise(c, moec_dim_sub); }
static void do_mul(content_node *c) { pairwise(c, moec_dim_mul); }
static void do_min(content_node *c) { pairwise(c, moec_dim_min); }
static void do_max(content_node *c) { pairwise(c, moec_dim_max); }

/* ONNX truncates; that is the floor only for sizes that are not negative. */
static moec_dim divide(moec_module *m, moec_dim a, moec_dim b) {
  int64_t x, y;
  if (moec_dim_is_const(m, a, &x) && moec_dim_is_const(m, b, &y))
    return y == 0 || (y == -1 && x == INT64_MIN) ? (moec_dim){0} : moec_dim_const(m, x / y);
  if (moec_dim_exact_div(m, a, b).i) return moec_dim_exact_div(m, a, b);
  moec_dim zero = moec_dim_const(m, 0), minus = moec_dim_sub(m, zero, a);
  if (!moec_dim_is_nonneg(m, b)) return (moec_dim){0};
  if (moec_dim_is_nonneg(m, a)) return moec_dim_floordiv(m, a, b);
  return moec_dim_is_nonneg(m, minus) ? moec_dim_sub(m, zero, moec_dim_floordiv(m, minus, b)) : (moec_dim){0};
}
static void do_div(content_node *c) { pairwise(c, divide); }
static void do_mod(content_node *c) {
  if (moec_attr_int(c->n, "fmod", 0) == 0) pairwise(c, moec_dim_mod);
}

static void do_neg(content_node *c) {
  for (uint32_t i = 0; i < c->in[0].n; i++) c->out[i] = moec_dim_sub(c->m, moec_dim_const(c->m, 0), c->in[0].v[i]);
  give(c, c->in[0].rank, c->in[0].n, c->in[0].dtype);
}

/* 1 where |d| is at least |low| for all sizes, 0 where it never is, {0} where that depends. */
static moec_dim at_least(moec_module *m, moec_dim d, int64_t low) {
  moec_dim above = moec_dim_sub(m, d, moec_dim_const(m, low)), below = moec_dim_sub(m, moec_dim_const(m, low - 1), d);
  if (moec_dim_is_nonneg(m, above)) return moec_dim_const(m, 1);
  return moec_dim_is_nonneg(m, below) ? moec_dim_const(m, 0) : (moec_dim){0};
}

/* Equal or different for all sizes. */
static moec_dim equal(moec_module *m, moec_dim a, moec_dim b) {
  moec_dim d = moec_dim_sub(m, a, b);
  int64_t v;
  if (moec_dim_is_const(m, d, &v)) return moec_dim_const(m, v == 0);
  bool differ = moec_dim_is(m, at_least(m, d, 0), 0) || moec_dim_is(m, at_least(m, d, 1), 1);
  return differ ? moec_dim_const(m, 0) : (moec_dim){0};
}
static moec_dim less(moec_module *m, moec_dim a, moec_dim b) { return at_least(m, moec_dim_sub(m, b, a), 1); }
static moec_dim less_equal(moec_module *m, moec_dim a, moec_dim b) { return at_least(m, moec_dim_sub(m, b, a), 0); }
static moec_dim greater(moec_module *m, moec_dim a, moec_dim b) { return less(m, b, a); }
static moec_dim greater_equal(moec_module *m, moec_dim a, moec_dim b) { return less_equal(m, b, a); }

static void compare(content_node *c, dim_fn fn) {
  pairwise(c, fn);
  c->dtype = MOEC_BOOL;
}
static void do_equal(content_node *c) { compare(c, equal); }
static void do_less(content_node *c) { compare(c, less); }
static void do_less_equal(content_node *c) { compare(c, less_equal); }
static void do_greater(content_node *c) { compare(c, greater); }
static void do_greater_equal(content_node *c) { compare(c, greater_equal); }

/* Of bools: 0 and 1. */
static moec_dim logical_xor(moec_module *m, moec_dim a, moec_dim b) { return moec_dim_const(m, !moec_dim_eq(a, b)); }
static void logic(content_node *c, dim_fn fn) {
  for (uint32_t i = 0; i < c->n_in; i++)
    if (c->in[i].dtype != MOEC_BOOL) return;
  pairwise(c, fn);
}
static void do_and(content_node *c) { logic(c, moec_dim_mul); }
static void do_or(content_node *c) { logic(c, moec_dim_max); }
static void do_xor(content_node *c) { logic(c, logical_xor); }
static void do_not(content_node *c) {
  for (uint32_t i = 0; i < c->in[0].n; i++) c->out[i] = moec_dim_sub(c->m, moec_dim_const(c->m, 1), c->in[0].v[i]);
  if (c->in[0].dtype == MOEC_BOOL) give(c, c->in[0].rank, c->in[0].n, MOEC_BOOL);
}

static void do_where(content_node *c) {
  uint32_t n = 1;
  if (c->n_in != 3) return;
  for (int i = 0; i < 3; i++)
    if (c->in[i].n != 1) n = c->in[i].n;
  for (uint32_t k = 0; k < n; k++) {
    int64_t cond;
    for (int i = 0; i < 3; i++)
      if (c->in[i].n != n && c->in[i].n != 1) return;
    if (!constant(c, 0, c->in[0].n == 1 ? 0 : k, &cond)) return;
    const list *from = &c->in[cond ? 1 : 2];
    c->out[k] = from->v[from->n == 1 ? 0 : k];
  }
  uint32_t rank = 0;
  for (int i = 0; i < 3; i++) rank = c->in[i].rank > rank ? c->in[i].rank : rank;
  give(c, rank, n, c->in[1].dtype);
}

static void copy_first(content_node *c) { /* an empty list may have no elements to point at */
  if (c->in[0].n) memcpy(c->out, c->in[0].v, c->in[0].n * sizeof *c->out);
}

static void do_identity(content_node *c) {
  copy_first(c);
  give(c, c->in[0].rank, c->in[0].n, c->in[0].dtype);
}

static void do_cast(content_node *c) {
  moec_dtype to = moec_dtype_from_onnx((int)moec_attr_int(c->n, "to", 0));
  if (to != MOEC_I64 && to != MOEC_I32) return;
  do_identity(c);
  c->dtype = to;
}

/* A float constant cast to an integer: exporters write range(0.0 as int64, seq, 1.0 as int64). */
static moec_status *cast_float_constant(moec_onnx *n, bool *done) {
  bool like = strcmp(n->p->op_type, "CastLike") == 0;
  moec_dtype to = like ? moec_onnx_dtype(n, 1) : moec_dtype_from_onnx((int)moec_attr_int(n, "to", 0));
  moec_dim out[16];
  if (strncmp(n->p->op_type, "Cast", 4) != 0 || (to != MOEC_I64 && to != MOEC_I32)) return NULL;
  if (like) {
    const moec_entry *e = moec_onnx_entry(n, 0);
    if (e && e->known) {
      moec_onnx_out_content(n, 0, to, e->rank, e->n, e->content);
      *done = true;
      return NULL;
    }
  }
  moec_value v = moec_onnx_in(n, 0);
  MOEC_TRY(moec_builder_end(n->b));
  if (!v.i || moec_def_op(n->b->g, v) != MOEC_OP_CONST) return NULL;
  const moec_const *c = MOEC_ATTRS(n->b->g, moec_def(n->b->g, v), CONST)->data;
  moec_type_info t = moec_type_get(n->m, c->type);
  size_t count = c->size / moec_dtype_get(t.dtype)->bytes;
  if (t.rank > 1 || count > 16) return NULL;
  for (size_t i = 0; i < count; i++) { /* through the target type: truncation and saturation as cast has them */
    int64_t bits = 0;
    moec_store_f64(to, &bits, 0, moec_load_f64(t.dtype, c->bytes, i));
    out[i] = moec_dim_const(n->m, moec_load_i64(to, &bits, 0));
  }
  moec_onnx_out_content(n, 0, to, t.rank, (uint32_t)count, out);
  *done = true;
  return NULL;
}

/* ---- movement ----------------------------------------------------------------------------- */

static void do_gather(content_node *c) {
  if (c->n_in != 2 || c->in[0].rank != 1) return;
  for (uint32_t i = 0; i < c->in[1].n; i++) {
    int64_t at;
    if (!constant(c, 1, i, &at)) return;
    if (at < 0) at += c->in[0].n;
    if (at < 0 || at >= c->in[0].n) return;
    c->out[i] = c->in[0].v[at];
  }
  give(c, c->in[1].rank, c->in[1].n, c->in[0].dtype);
}

static void do_concat(content_node *c) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->n_in; i++)
    for (uint32_t k = 0; k < c->in[i].n; k++) {
      if (n == MAX_CONTENT || c->in[i].rank != 1) return;
      c->out[n++] = c->in[i].v[k];
    }
  give(c, 1, n, c->in[0].dtype);
}

static void do_squeeze(content_node *c) {
  if (c->in[0].n != 1) return;
  c->out[0] = c->in[0].v[0];
  give(c, 0, 1, c->in[0].dtype);
}

static void do_unsqueeze(content_node *c) {
  if (c->in[0].rank != 0) return;
  c->out[0] = c->in[0].v[0];
  give(c, 1, 1, c->in[0].dtype);
  moec_ints axes;
  if (moec_attr_ints(c->n, "axes", &axes) ? axes.n != 1 : c->n_in > 1 && c->in[1].n != 1) c->ok = false;
}

static void do_reshape(content_node *c) {
  int64_t size = -1;
  if (c->n_in != 2 || c->in[1].n > 1) return;
  if (c->in[1].n == 0 && c->in[0].n != 1) return;
  if (c->in[1].n == 1 && (!constant(c, 1, 0, &size) || (size != -1 && size != c->in[0].n))) return;
  copy_first(c);
  give(c, c->in[1].n, c->in[0].n, c->in[0].dtype);
}

static void do_slice(content_node *c) {
  int64_t start, end, axis = 0, step = 1, n = c->in[0].n;
  if (c->n_in < 3 || c->in[0].rank != 1 || c->in[1].n != 1) return;
  if (!constant(c, 1, 0, &start) || !constant(c, 2, 0, &end)) return;
  if (c->n_in > 3 && (!constant(c, 3, 0, &axis) || (axis != 0 && axis != -1))) return;
  if (c->n_in > 4 && (!constant(c, 4, 0, &step) || step == 0)) return;
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  if (start < 0) start += n;
  if (end < 0 && end != INT64_MIN) end = end + n < 0 ? -1 : end + n;
  start = start < (step > 0 ? 0 : low) ? (step > 0 ? 0 : low) : start > high ? high : start;
  end = end < low ? low : end > n ? n : end;
  uint32_t count = 0;
  step = step > n ? n + 1 : step < -n ? -n - 1 : step; /* the same elements, and sums without overflow */
  for (int64_t i = start; step > 0 ? i < end : i > end; i += step) c->out[count++] = c->in[0].v[i];
  give(c, 1, count, c->in[0].dtype);
}

static void do_reduce_prod(content_node *c) {
  moec_dim p = moec_dim_const(c->m, 1);
  if (c->n_in > 1 && c->in[1].n != 1) return;
  for (uint32_t i = 0; i < c->in[0].n; i++) p = moec_dim_mul(c->m, p, c->in[0].v[i]);
  c->out[0] = p;
  give(c, moec_attr_int(c->n, "keepdims", 1) ? c->in[0].rank : 0, 1, c->in[0].dtype);
}

static void do_range(content_node *c) {
  int64_t start, limit, delta;
  if (c->n_in != 3 || !constant(c, 0, 0, &start) || !constant(c, 1, 0, &limit) || !constant(c, 2, 0, &delta) ||
      delta == 0)
    return;
  uint32_t n = 0;
  for (int64_t v = start; delta > 0 ? v < limit : v > limit; v += delta) {
    if (n == 64) return; /* longer ones are data */
    c->out[n++] = moec_dim_const(c->m, v);
    if ((delta > 0 ? INT64_MAX - delta < v : INT64_MIN - delta > v)) return;
  }
  give(c, 1, n, c->in[0].dtype);
}

static void do_constant_of_shape(content_node *c) {
  const Onnx__AttributeProto *a = moec_onnx_attr(c->n, "value");
  int64_t n;
  moec_tensor t;
  if (c->in[0].n != 1 || !constant(c, 0, 0, &n) || n < 0 || n > 64 || !a || !a->t) return;
  moec_status *s = moec_onnx_tensor(c->n->x, a->t, &t, NULL);
  bool good = !s && moec_tensor_numel(&t) == 1 && !moec_dtype_is_float(t.dtype);
  moec_status_free(s);
  if (!good) return;
  for (int64_t i = 0; i < n; i++) c->out[i] = moec_dim_const(c->m, moec_load_i64(t.dtype, t.data, 0));
  give(c, 1, (uint32_t)n, t.dtype);
}

static const struct {
  const char *name;
  content_fn fn;
} table[] = {
    {"Add", do_add},           {"Sub", do_sub},         {"Mul", do_mul},           {"Div", do_div},
    {"Mod", do_mod},           {"Min", do_min},         {"Max", do_max},           {"Neg", do_neg},
    {"Equal", do_equal},       {"Where", do_where},     {"Identity", do_identity}, {"Cast", do_cast},
    {"Gather", do_gather},     {"Concat", do_concat},   {"Squeeze", do_squeeze},   {"Unsqueeze", do_unsqueeze},
    {"Reshape", do_reshape},   {"Slice", do_slice},     {"ReduceProd", do_reduce_prod}, {"Range", do_range},
    {"ConstantOfShape", do_constant_of_shape},
    {"And", do_and},           {"Or", do_or},           {"Xor", do_xor},           {"Not", do_not},
    {"Less", do_less},         {"LessOrEqual", do_less_equal},
    {"Greater", do_greater},   {"GreaterOrEqual", do_greater_equal},
};

static bool load_operands(content_node *c) {
  moec_onnx *n = c->n;
  c->n_in = moec_onnx_n_in(n);
  if (c->n_in == 0 || c->n_in > 16) return false;
  for (uint32_t i = 0; i < c->n_in; i++) {
    moec_entry *e = moec_onnx_entry(n, i);
    if (e && !e->known && e->tensor) {
      moec_status *s = moec_initializer_content(n->x, e);
      if (s) { /* said again, and better, when the value is made */
        moec_status_free(s);
        return false;
      }
    }
    if (!e || !e->known || e->n > MAX_CONTENT) return false;
    c->in[i] = (list){e->rank, e->n, e->content, e->dtype};
  }
  return true;
}

moec_status *moec_import_content(moec_onnx *n, bool *done) {
  *done = false;
  if (n->p->domain[0]) return NULL;
  MOEC_TRY(cast_float_constant(n, done));
  if (*done) return NULL;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (strcmp(table[i].name, n->p->op_type) != 0) continue;
    content_node c = {.n = n, .m = n->m};
    if (!load_operands(&c)) return NULL;
    table[i].fn(&c);
    if (!c.ok) return NULL;
    moec_onnx_out_content(n, 0, c.dtype, c.rank, c.count, c.out);
    *done = true;
  }
  return NULL;
}
