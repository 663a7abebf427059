/* Rules on constants: folding, and one spelling for equal elements. */
#include <string.h>

#include "base/size.h"
#include "ir/interp.h"
#include "passes/simplify.h"

enum { FOLD_LIMIT = 64, OPERAND_LIMIT = 4096 };

/* A static shape of at most |limit| elements. */
static bool small(const moec_module *m, moec_type_info t, int64_t limit) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; i++) {
    int64_t d;
    if (!moec_dim_is_const(m, t.dims[i], &d) || d < 0 || !moec_mul_i64(n, d, &n) || n > limit) return false;
  }
  return true;
}

/* The constant that |v| is, or that it is a broadcast of; NULL: neither. */
static const moec_const *constant_of(const moec_graph *g, moec_value v) {
  if (moec_def_op(g, v) == MOEC_OP_BROADCAST) v = moec_in(g, moec_def(g, v), 0);
  return moec_def_op(g, v) == MOEC_OP_CONST ? MOEC_ATTRS(g, moec_def(g, v), CONST)->data : NULL;
}

static bool folds(const moec_graph *g, moec_node n) {
  const moec_node_info *p = moec_node_get(g, n);
  moec_op_class c = moec_op_cls(p->op);
  bool pure = moec_op_is_elementwise(p->op) || c == MOEC_CLASS_REDUCE || c == MOEC_CLASS_SCAN ||
              c == MOEC_CLASS_MOVE || c == MOEC_CLASS_INDEX;
  if (!pure || p->op == MOEC_OP_BROADCAST || !small(g->m, moec_ty(g, moec_out(g, n, 0)), FOLD_LIMIT)) return false;
  bool any = false; /* of broadcasts alone the broadcast is the shorter form */
  for (uint32_t i = 0; i < p->n_in; i++) {
    moec_value x = g->edges[p->in + i];
    if (!constant_of(g, x) || !small(g->m, moec_ty(g, x), OPERAND_LIMIT)) return false;
    any = any || moec_def_op(g, x) == MOEC_OP_CONST;
  }
  return any;
}

/* ---- one node in a module of its own -------------------------------------------------------- */

static moec_type move_type(moec_module *to, moec_module *from, moec_type t) {
  moec_type_info i = moec_type_get(from, t);
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t k = 0; k < i.rank; k++) {
    int64_t d = 0;
    moec_dim_is_const(from, i.dims[k], &d);
    dims[k] = moec_dim_const(to, d);
  }
  return moec_type_make(to, i.dtype, i.rank, dims);
}

/* Attributes with their dims made in |to|; NULL where one is no constant. */
static const void *move_attrs(moec_module *to, moec_module *from, moec_op op, const void *attrs) {
  const moec_op_info *info = moec_op_get(op);
  char *copy = moec_arena_copy(to->arena, attrs, info->attrs_size);
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    if (info->attrs[i].kind != MOEC_ATTR_DIMS) continue;
    moec_dims *list = (moec_dims *)(void *)(copy + info->attrs[i].offset);
    moec_dim *dims = MOEC_NEW_ARRAY(to->arena, moec_dim, list->n + 1);
    for (uint32_t k = 0; k < list->n; k++) {
      int64_t d;
      if (!moec_dim_is_const(from, list->v[k], &d)) return NULL;
      dims[k] = moec_dim_const(to, d);
    }
    list->v = dims;
  }
  return copy;
}

static moec_value move_operand(moec_builder *b, const moec_graph *g, moec_value x) {
  moec_module *tmp = b->g->m;
  const moec_const *c = constant_of(g, x);
  moec_value v = moec_b_const(b, move_type(tmp, g->m, c->type), c->bytes, c->size);
  if (moec_def_op(g, x) == MOEC_OP_CONST) return v;
  const void *attrs = move_attrs(tmp, g->m, MOEC_OP_BROADCAST, moec_node_get(g, moec_def(g, x))->attrs);
  return moec_b_op(b, MOEC_OP_BROADCAST, attrs, 1, &v, 1); /* its shape is static: attrs is there */
}

/* Runs node |n| on its constant operands; an error means that it cannot run (a gather out of range). */
static moec_status *run_alone(moec_module *tmp, const moec_graph *g, moec_node n, moec_tensor *out) {
  const moec_node_info p = *moec_node_get(g, n);
  moec_graph *t = moec_fn_get(tmp, moec_fn_add(tmp, "main"));
  moec_builder b = moec_builder_on(t);
  moec_value *in = MOEC_NEW_ARRAY(tmp->arena, moec_value, p.n_in);
  for (uint32_t i = 0; i < p.n_in; i++) in[i] = move_operand(&b, g, g->edges[p.in + i]);
  const void *attrs = move_attrs(tmp, g->m, p.op, p.attrs);
  if (!attrs) return moec_error(MOEC_UNSUPPORTED, "attributes depend on sizes");
  moec_add_output(t, "y", moec_b_op(&b, p.op, attrs, p.n_in, in, 1));
  MOEC_TRY(moec_builder_end(&b));
  return moec_interp_run(tmp, (moec_fn){1}, NULL, 0, out, 1, NULL);
}

static moec_value fold(moec_simplifier *s, moec_node n) {
  if (!folds(s->g, n)) return (moec_value){0};
  moec_type t = moec_value_get(s->g, moec_out(s->g, n, 0))->type;
  moec_tensor y = {0};
  moec_module *tmp = moec_module_create();
  moec_status *e = run_alone(tmp, s->g, n, &y);
  moec_module_destroy(tmp);
  if (e) { /* the error belongs to run time */
    moec_status_free(e);
    return (moec_value){0};
  }
  moec_value v = moec_b_const(&s->b, t, y.data, moec_tensor_bytes(&y));
  moec_tensor_fini(&y);
  return v;
}

/* ---- spellings ------------------------------------------------------------------------------ */

/* A constant whose elements are all the same bytes is a broadcast of a scalar. */
static moec_value equal_elements(moec_simplifier *s, moec_node n) {
  const moec_const *c = MOEC_ATTRS(s->g, n, CONST)->data;
  moec_type_info t = moec_type_get(s->m, c->type);
  size_t elem = moec_dtype_get(t.dtype)->bytes;
  if (t.rank == 0 || c->size < elem) return (moec_value){0};
  const char *bytes = c->bytes;
  if (c->size > elem && memcmp(bytes, bytes + elem, c->size - elem) != 0) return (moec_value){0};
  moec_const first = {moec_type_scalar(s->m, t.dtype), bytes, elem};
  return moec_s_fill_like(s, c->type, &first);
}

/* A constant size is a constant. */
static moec_value constant_size(moec_simplifier *s, moec_node n) {
  int64_t v;
  if (!moec_dim_is_const(s->m, MOEC_ATTRS(s->g, n, SIZE)->value, &v)) return (moec_value){0};
  return moec_b_scalar_i(&s->b, MOEC_I64, v);
}

/* An i64 scalar known as a dim: a size or a constant. */
static bool as_dim(moec_simplifier *s, moec_value v, moec_dim *out) {
  int64_t c;
  moec_type_info t = moec_ty(s->g, v);
  if (t.rank != 0 || t.dtype != MOEC_I64) return false;
  if (moec_def_op(s->g, v) == MOEC_OP_SIZE) *out = MOEC_ATTRS(s->g, moec_def(s->g, v), SIZE)->value;
  else if (moec_s_fill_int(s->g, v, &c)) *out = moec_dim_const(s->m, c);
  else return false;
  return true;
}

typedef moec_dim (*dim_fn)(struct moec_module *m, moec_dim a, moec_dim b);

/* Arithmetic on sizes is a size. Truncating division only equals floordiv where nothing is negative. */
static moec_value size_arithmetic(moec_simplifier *s, moec_node n, dim_fn f, bool nonneg) {
  moec_dim a, b;
  if (!as_dim(s, moec_in(s->g, n, 0), &a) || !as_dim(s, moec_in(s->g, n, 1), &b)) return (moec_value){0};
  if (nonneg && !(moec_dim_is_nonneg(s->m, a) && moec_dim_is_positive(s->m, b))) return (moec_value){0};
  moec_dim d = f(s->m, a, b);
  return moec_dim_known(d) ? moec_b_size(&s->b, d) : (moec_value){0};
}

static moec_value size_add(moec_simplifier *s, moec_node n) { return size_arithmetic(s, n, moec_dim_add, false); }
static moec_value size_sub(moec_simplifier *s, moec_node n) { return size_arithmetic(s, n, moec_dim_sub, false); }
static moec_value size_mul(moec_simplifier *s, moec_node n) { return size_arithmetic(s, n, moec_dim_mul, false); }
static moec_value size_min(moec_simplifier *s, moec_node n) { return size_arithmetic(s, n, moec_dim_min, false); }
static moec_value size_max(moec_simplifier *s, moec_node n) { return size_arithmetic(s, n, moec_dim_max, false); }
static moec_value size_div(moec_simplifier *s, moec_node n) { return size_arithmetic(s, n, moec_dim_floordiv, true); }
static moec_value size_rem(moec_simplifier *s, moec_node n) { return size_arithmetic(s, n, moec_dim_mod, true); }

#define FOLD_ELEMENTWISE MOEC_OP_NONE
const moec_rule moec_rules_const[] = {
    {"fold elementwise", FOLD_ELEMENTWISE, fold},
    {"fold reduce_sum", MOEC_OP_REDUCE_SUM, fold},
    {"fold reduce_prod", MOEC_OP_REDUCE_PROD, fold},
    {"fold reduce_max", MOEC_OP_REDUCE_MAX, fold},
    {"fold reduce_min", MOEC_OP_REDUCE_MIN, fold},
    {"fold cumsum", MOEC_OP_CUMSUM, fold},
    {"fold reshape", MOEC_OP_RESHAPE, fold},
    {"fold transpose", MOEC_OP_TRANSPOSE, fold},
    {"fold slice", MOEC_OP_SLICE, fold},
    {"fold pad", MOEC_OP_PAD, fold},
    {"fold concat", MOEC_OP_CONCAT, fold},
    {"fold reverse", MOEC_OP_REVERSE, fold},
    {"fold gather", MOEC_OP_GATHER, fold},
    {"fold gather_elements", MOEC_OP_GATHER_ELEMENTS, fold},
    {"fold gather_nd", MOEC_OP_GATHER_ND, fold},
    {"equal elements", MOEC_OP_CONST, equal_elements},
    {"constant size", MOEC_OP_SIZE, constant_size},
    {"size + size", MOEC_OP_ADD, size_add},
    {"size - size", MOEC_OP_SUB, size_sub},
    {"size * size", MOEC_OP_MUL, size_mul},
    {"min of sizes", MOEC_OP_MIN, size_min},
    {"max of sizes", MOEC_OP_MAX, size_max},
    {"size / size", MOEC_OP_DIV, size_div},
    {"size mod size", MOEC_OP_MOD, size_rem},
    {"size rem size", MOEC_OP_REM, size_rem},
    {0},
};
