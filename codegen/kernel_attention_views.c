/* What a library has to know of an attention kernel's operands: which are views of arguments, and what a mask that
 * depends on arguments is where those are all ones, as the mask of padding is in a batch without any. */
#include "codegen/kernel_attention.h"

#include <math.h>

/* ---- views ---------------------------------------------------------------------------------- */

void moec_kattention_view(moec_kattention *t, moec_kpool *p, const moec_kernel *k, moec_koperand o, moec_kx value,
                          const moec_kx *row, moec_kx d) {
  const moec_kx_node *load = moec_kx_get(p, value);
  moec_kview v = {.is = true};
  if (load->kind != MOEC_KX_LOAD || load->n_args != 1 || k->bufs[load->id].data) return;
  const moec_kx index = load->args[0];
  const moec_kbuf *buf = &k->bufs[load->id];
  if (buf->dtype != (o == MOEC_KOPERAND_LSE ? MOEC_F32 : t->dtype)) return;
  moec_kx rest = index;
  v.arg = buf->arg;
  for (int i = 0; i < 3; i++) {
    v.strides[i] = moec_kx_coeff(p, index, row[i]);
    rest = moec_kx_sub(p, rest, moec_kx_scale(p, row[i], v.strides[i]));
  }
  if (d.i) rest = moec_kx_sub(p, rest, d);
  const moec_kx_node *left = moec_kx_get(p, rest);
  if (left->kind != MOEC_KX_SUM || left->n_args) return; /* more than a constant: not linear, or steps along d */
  v.offset = left->dim;
  t->views[o] = v;
}

/* ---- masks ---------------------------------------------------------------------------------- */

typedef struct reader {
  moec_kpool *p;
  const moec_kernel *k;
  moec_kattention *t;
  moec_kx *memo; /* by expression of the pool as it was */
} reader;

static void note_argument(const reader *r, uint32_t arg) {
  moec_kattention *t = r->t;
  for (uint32_t i = 0; i < t->n_ones; i++)
    if (t->ones[i] == arg) return;
  t->ones[t->n_ones++] = arg;
}

static moec_kx one_of(moec_kpool *p, moec_dtype t) {
  return moec_dtype_is_float(t) ? moec_kx_num(p, t, 1) : moec_kx_int(p, t, 1);
}

/* A constant of any kind. */
static bool constant(const moec_kpool *p, moec_kx e, double *v) {
  const moec_kx_node *n = moec_kx_get(p, e);
  int64_t size = 0;
  bool sum = n->kind == MOEC_KX_SUM && !n->n_args && moec_dim_is_const(p->m, n->dim, &size);
  *v = sum ? (double)size : n->kind == MOEC_KX_INT ? (double)n->num_i : n->num;
  return sum || n->kind == MOEC_KX_INT || n->kind == MOEC_KX_NUM;
}

static bool compare(moec_op op, double x, double y) {
  switch (op) {
    case MOEC_OP_EQ: return x == y;
    case MOEC_OP_NE: return x != y;
    case MOEC_OP_LT: return x < y;
    case MOEC_OP_LE: return x <= y;
    case MOEC_OP_GT: return x > y;
    default: return x >= y;
  }
}

/* op(args), also where moec_kx_apply() leaves what depends on memory alone. */
static moec_kx apply(const reader *r, const moec_kx_node *n, const moec_kx *args) {
  moec_dtype type = n->op == MOEC_OP_CAST ? (moec_dtype)n->num_i : n->dtype;
  double x, y;
  if (n->op == MOEC_OP_CAST && type == MOEC_BOOL && constant(r->p, args[0], &x)) return moec_kx_bool(r->p, x != 0);
  if (moec_op_cls(n->op) == MOEC_CLASS_COMPARE && constant(r->p, args[0], &x) && constant(r->p, args[1], &y))
    return moec_kx_bool(r->p, compare(n->op, x, y));
  for (int i = 0; i < 2 && n->op == MOEC_OP_ADD && moec_dtype_is_float(type); i++)
    if (constant(r->p, args[i], &x) && x == 0) return args[1 - i]; /* of zeros a score may get either */
  return moec_kx_apply(r->p, n->op, type, n->n_args, args);
}

/* |e| where every element of every argument is one; what an index depends on stays. */
static moec_kx with_ones(const reader *r, moec_kx e) {
  const moec_kx_node n = *moec_kx_get(r->p, e); /* a copy: the pool may move */
  moec_kx args[3], *done = &r->memo[e.i];
  if (done->i) return *done;
  *done = e;
  if (n.kind == MOEC_KX_LOAD && n.n_args == 1 && !r->k->bufs[n.id].data) {
    note_argument(r, r->k->bufs[n.id].arg);
    *done = one_of(r->p, n.dtype);
  }
  if (n.kind != MOEC_KX_APPLY || n.n_args > 3) return *done;
  for (uint32_t i = 0; i < n.n_args; i++) args[i] = with_ones(r, n.args[i]);
  return *done = apply(r, &n, args);
}

/* Whether |e| is |visible| just where |key| is at most |query| + T - S. */
static bool is_causal(const reader *r, moec_kx e, bool visible, moec_kx query, moec_kx key) {
  const moec_kx_node *n = moec_kx_get(r->p, e);
  moec_dim most = moec_dim_sub(r->p->m, r->t->t, r->t->s);
  for (; n->kind == MOEC_KX_APPLY && n->op == MOEC_OP_NOT; visible = !visible) n = moec_kx_get(r->p, n->args[0]);
  bool less = n->op == MOEC_OP_LE || n->op == MOEC_OP_LT, strict = n->op == MOEC_OP_LT || n->op == MOEC_OP_GT;
  if (n->kind != MOEC_KX_APPLY || !(less || n->op == MOEC_OP_GE || n->op == MOEC_OP_GT)) return false;
  if (!visible) less = !less, strict = !strict; /* not a <= b: a > b */
  if (!moec_kx_ranged(r->p, n->args[0]) || !moec_kx_ranged(r->p, n->args[1])) return false;
  moec_kx small = n->args[!less], great = n->args[less];
  if (strict) most = moec_dim_add(r->p->m, most, moec_dim_const(r->p->m, 1));
  moec_kx bound = moec_kx_add(r->p, query, moec_kx_size(r->p, most));
  return moec_kx_eq(moec_kx_sub(r->p, small, great), moec_kx_sub(r->p, key, bound));
}

/* What the score of a hidden key gets: the least f16 or less, of which nothing is left beside a key that is seen. */
static bool hides(double v) { return v <= -65504; }

static moec_kx through_casts(const moec_kpool *p, moec_kx e) {
  const moec_kx_node *n = moec_kx_get(p, e);
  while (n->kind == MOEC_KX_APPLY && n->op == MOEC_OP_CAST && moec_dtype_is_float((moec_dtype)n->num_i) &&
         moec_dtype_is_float(moec_kx_get(p, n->args[0])->dtype))
    e = n->args[0], n = moec_kx_get(p, e);
  return e;
}

static moec_kmask classify(const reader *r, moec_kx e, moec_kx query, moec_kx key) {
  e = through_casts(r->p, e);
  const moec_kx_node *n = moec_kx_get(r->p, e);
  double yes, no;
  if (constant(r->p, e, &yes)) return yes == 0 ? MOEC_KMASK_NONE : MOEC_KMASK_ANY;
  if (n->kind != MOEC_KX_APPLY || n->op != MOEC_OP_SELECT) return MOEC_KMASK_ANY;
  const moec_kx *args = n->args;
  if (!constant(r->p, args[1], &yes) || !constant(r->p, args[2], &no)) return MOEC_KMASK_ANY;
  bool visible = yes == 0 && hides(no), hidden = no == 0 && hides(yes);
  bool causal = (visible || hidden) && is_causal(r, args[0], visible, query, key);
  return causal ? MOEC_KMASK_CAUSAL : MOEC_KMASK_ANY;
}

void moec_kattention_mask(moec_kattention *t, moec_kpool *p, const moec_kernel *k, moec_kx value, moec_kx query,
                          moec_kx key) {
  reader r = {p, k, t, MOEC_NEW_ARRAY(p->arena, moec_kx, p->n)};
  t->ones = MOEC_NEW_ARRAY(p->arena, uint32_t, k->n_in ? k->n_in : 1);
  moec_kx e = with_ones(&r, value);
  t->seen = classify(&r, e, query, key);
}
