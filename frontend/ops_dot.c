/* Importers of contractions: MatMul, Gemm, Conv, Einsum. */
#include <string.h>

#include "frontend/ops.h"

IMPORTER(matmul) {
  moec_value in[2];
  MOEC_TRY(moec_onnx_operands(n, 2, 2, in));
  return moec_onnx_result(n, moec_b_matmul(n->b, in[0], in[1]));
}

/* Transposition only changes which axes are contracted. */
IMPORTER(gemm) {
  moec_builder *b = n->b;
  moec_value in[3];
  MOEC_TRY(moec_onnx_operands(n, 2, 3, in));
  for (uint32_t i = 0; i < 2; i++)
    if (moec_b_ty(b, in[i]).rank != 2)
      return moec_onnx_bad(n, "operand %u: expected rank 2, got %s", i, moec_onnx_text(n, in[i]));
  double alpha = moec_attr_float(n, "alpha", 1), beta = moec_attr_float(n, "beta", 1);
  int64_t xk = moec_attr_int(n, "transA", 0) ? 0 : 1, yk = moec_attr_int(n, "transB", 0) ? 1 : 0;
  moec_same_size(n, moec_b_dim(b, in[0], xk), moec_b_dim(b, in[1], yk),
                 "gemm: contracted sizes must be equal");
  moec_attrs_DOT a = {.lhs_contract = {1, &xk}, .rhs_contract = {1, &yk}};
  moec_value y = moec_b_op(b, MOEC_OP_DOT, &a, 2, in, 1);
  if (alpha != 1) y = moec_with(b, MOEC_OP_MUL, y, alpha);
  if (!in[2].i || beta == 0) return moec_onnx_result(n, y);
  moec_value c = beta == 1 ? in[2] : moec_with(b, MOEC_OP_MUL, in[2], beta);
  return moec_onnx_result(n, moec_b_binary(b, MOEC_OP_ADD, y, c));
}

/* ---- convolution -------------------------------------------------------------------------- */

/* |count| numbers of an attribute, each in lo .. 2^31, so that sums of them cannot overflow. */
static moec_status *conv_ints(moec_onnx *n, const char *name, uint32_t count, int64_t lo,
                              int64_t dflt, moec_ints *out) {
  if (moec_attr_ints(n, name, out)) {
    if (out->n != count)
      return moec_onnx_bad(n, "%s: expected %u numbers, got %u", name, count, out->n);
    for (uint32_t i = 0; i < count; i++)
      if (out->v[i] < lo || out->v[i] > INT32_MAX)
        return moec_onnx_bad(n, "%s: expected numbers from %lld on, got %lld", name, (long long)lo,
                             (long long)out->v[i]);
    return NULL;
  }
  int64_t *v = MOEC_NEW_ARRAY(n->m->arena, int64_t, count);
  for (uint32_t i = 0; i < count; i++) v[i] = dflt;
  *out = (moec_ints){count, v};
  return NULL;
}

/* The sizes of the filter, where they are said once more. */
static moec_status *check_kernel(moec_onnx *n, moec_value w, uint32_t rank) {
  moec_ints kernel;
  if (!moec_attr_ints(n, "kernel_shape", &kernel)) return NULL;
  bool same = kernel.n == rank - 2 && moec_b_ty(n->b, w).rank == rank;
  for (uint32_t i = 0; i < kernel.n && same; i++)
    same = moec_dim_is(n->m, moec_b_dim(n->b, w, (int)i + 2), kernel.v[i]);
  return same ? NULL
              : moec_onnx_bad(n, "kernel_shape: expected the sizes of operand 1, %s",
                              moec_onnx_text(n, w));
}

IMPORTER(conv) {
  moec_value in[3];
  moec_attrs_CONV a = {.groups = moec_attr_int(n, "group", 1)};
  const char *auto_pad = moec_attr_string(n, "auto_pad", "NOTSET");
  if (strcmp(auto_pad, "NOTSET") != 0 && strcmp(auto_pad, "VALID") != 0)
    return moec_onnx_unsupported(n, "auto_pad: expected NOTSET or VALID, got \"%s\"", auto_pad);
  MOEC_TRY(moec_onnx_operands(n, 2, 3, in));
  uint32_t rank = moec_b_ty(n->b, in[0]).rank;
  if (rank < 3)
    return moec_onnx_bad(n, "operand 0: expected rank at least 3, got %s",
                         moec_onnx_text(n, in[0]));
  MOEC_TRY(check_kernel(n, in[1], rank));
  MOEC_TRY(conv_ints(n, "strides", rank - 2, 1, 1, &a.strides));
  MOEC_TRY(conv_ints(n, "dilations", rank - 2, 1, 1, &a.dilations));
  MOEC_TRY(conv_ints(n, "pads", 2 * (rank - 2), 0, 0, &a.pads));
  moec_value y = moec_b_op(n->b, MOEC_OP_CONV, &a, 2, in, 1);
  if (!in[2].i) return moec_onnx_result(n, y);
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < rank; i++)
    dims[i] = i == 1 ? moec_b_dim(n->b, in[2], 0) : moec_dim_const(n->m, 1);
  return moec_onnx_result(
      n, moec_b_binary(n->b, MOEC_OP_ADD, y, moec_b_reshape(n->b, in[2], rank, dims)));
}

/* ---- einsum ------------------------------------------------------------------------------- */

/* An operand with one label an axis: a letter, or 1 + i for axis i of what "..." stands for. */
typedef struct term {
  moec_value v;
  uint32_t n;
  uint8_t label[2 * MOEC_MAX_RANK];
} term;

typedef struct einsum {
  moec_onnx *n;
  uint32_t n_terms, ellipsis; /* rank that "..." stands for, aligned at the right */
  term *terms;
  term out;
  uint32_t uses[256]; /* in the operands */
} einsum;

static int find(const term *t, uint8_t label) {
  for (uint32_t i = 0; i < t->n; i++)
    if (t->label[i] == label) return (int)i;
  return -1;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Reads the labels of one term from *at up to a comma, an arrow or the end; |dots|: rank of its "...". */
static moec_status *read_term(einsum *e, const char **at, uint32_t dots, term *out,
                              bool *has_dots) {
  const char *s = *at;
  *has_dots = false;
  for (; *s && *s != ',' && strncmp(s, "->", 2) != 0; s++) {
    if (*s == ' ') continue;
    bool dot = strncmp(s, "...", 3) == 0;
    uint32_t count = dot ? dots : 1;
    if ((!dot && !is_letter(*s)) || (dot && *has_dots))
      return moec_onnx_bad(e->n, "equation: expected letters, got \"%s\"", s);
    if (out->n + count > MOEC_MAX_RANK)
      return moec_onnx_unsupported(e->n, "equation: a term has more than %d axes", MOEC_MAX_RANK);
    for (uint32_t i = 0; i < count; i++)
      out->label[out->n++] = dot ? (uint8_t)(1 + e->ellipsis - dots + i) : (uint8_t)*s;
    if (dot) *has_dots = true, s += 2;
  }
  *at = s;
  return NULL;
}

/* Rank of what "..." stands for in the operand whose term starts at |s|. */
static uint32_t dots_rank(const char *s, uint32_t rank) {
  uint32_t letters = 0;
  for (; *s && *s != ',' && strncmp(s, "->", 2) != 0; s++) letters += is_letter(*s);
  return letters < rank ? rank - letters : 0;
}

static moec_status *read_operands(einsum *e, const char **at) {
  moec_onnx *n = e->n;
  const char *s = *at;
  bool dots;
  for (uint32_t i = 0; i < e->n_terms;
       i++) { /* the widest "..." decides which axis a label means */
    uint32_t r = dots_rank(s, moec_b_ty(n->b, e->terms[i].v).rank);
    if (r > e->ellipsis) e->ellipsis = r;
    s += strcspn(s, ",");
    if (*s) s++;
  }
  for (uint32_t i = 0; i < e->n_terms; i++) {
    term *t = &e->terms[i];
    uint32_t rank = moec_b_ty(n->b, t->v).rank;
    MOEC_TRY(read_term(e, at, dots_rank(*at, rank), t, &dots));
    if (t->n != rank)
      return moec_onnx_bad(n, "equation: operand %u has rank %u, its term %u axes", i, rank, t->n);
    bool last = i + 1 == e->n_terms;
    if (last != (**at != ',')) return moec_onnx_bad(n, "equation: expected %u terms", e->n_terms);
    if (!last) ++*at;
    for (uint32_t k = 0; k < t->n; k++) e->uses[t->label[k]]++;
  }
  return NULL;
}

/* Without an arrow the result has the axes of "...", then the letters that stand once, in alphabetical order. */
static moec_status *read_result(einsum *e, const char *at) {
  bool dots;
  if (*at) {
    at += 2;
    MOEC_TRY(read_term(e, &at, e->ellipsis, &e->out, &dots));
    if (*at) return moec_onnx_bad(e->n, "equation: expected an end, got \"%s\"", at);
  } else {
    for (uint32_t c = 1; c < 256; c++)
      if ((c <= e->ellipsis || e->uses[c] == 1) && e->out.n < MOEC_MAX_RANK)
        e->out.label[e->out.n++] = (uint8_t)c;
  }
  for (uint32_t i = 0; i < e->out.n; i++)
    if (!e->uses[e->out.label[i]] || find(&e->out, e->out.label[i]) != (int)i)
      return moec_onnx_bad(
          e->n, "equation: axis %u of the result must stand in an operand, and once in the result",
          i);
  return NULL;
}

static void drop_label(term *t, uint32_t i) {
  memmove(&t->label[i], &t->label[i + 1], t->n - i - 1);
  t->n--;
}

/* A label that stands twice in a term means the diagonal: zeros off it, and a sum over the second axis. */
static void take_diagonals(einsum *e, term *t) {
  moec_builder *b = e->n->b;
  for (uint32_t i = 0; i < t->n; i++) {
    uint32_t first = (uint32_t)find(t, t->label[i]);
    if (first == i) continue;
    moec_type_info ty = moec_b_ty(b, t->v);
    moec_same_size(e->n, moec_b_dim(b, t->v, first), moec_b_dim(b, t->v, i),
                   "einsum: sizes of one letter must be equal");
    if (b->error) return;
    moec_value on = moec_b_binary(b, MOEC_OP_EQ, moec_b_iota(b, MOEC_I64, ty.rank, ty.dims, first),
                                  moec_b_iota(b, MOEC_I64, ty.rank, ty.dims, i));
    t->v = moec_b_reduce(b, MOEC_OP_REDUCE_SUM, moec_b_select(b, on, t->v, moec_like(b, t->v, 0)),
                         i, false);
    drop_label(t, i--);
  }
}

/* Sums over the axes that neither |other| nor |keep| has. */
static void sum_out(einsum *e, term *t, const term *other, const bool *keep) {
  for (uint32_t i = 0; i < t->n; i++) {
    if (keep[t->label[i]] || (other && find(other, t->label[i]) >= 0)) continue;
    t->v = moec_b_reduce(e->n->b, MOEC_OP_REDUCE_SUM, t->v, i, false);
    drop_label(t, i--);
  }
}

/* Axes of size 1 that are longer in the other term broadcast: there they are left out. */
static void squeeze_ones(einsum *e, term *t, const term *other) {
  moec_builder *b = e->n->b;
  for (uint32_t i = 0; i < t->n; i++) {
    int k = find(other, t->label[i]);
    if (k < 0 || !moec_dim_is(e->n->m, moec_b_dim(b, t->v, i), 1) ||
        moec_dim_is(e->n->m, moec_b_dim(b, other->v, k), 1))
      continue;
    t->v = moec_b_squeeze(b, t->v, i);
    drop_label(t, i--);
  }
}

/* The product of two terms: shared labels are batch axes where something later needs them, else contracted. */
static void multiply(einsum *e, term *x, term *y, const bool *keep) {
  moec_builder *b = e->n->b;
  int64_t axes[4][MOEC_MAX_RANK];
  uint32_t nb = 0, nc = 0;
  term z = {.n = 0};
  squeeze_ones(e, x, y);
  squeeze_ones(e, y, x);
  sum_out(e, x, y, keep);
  sum_out(e, y, x, keep);
  for (uint32_t i = 0; i < x->n; i++) {
    int k = find(y, x->label[i]);
    if (k < 0) continue;
    bool batch = keep[x->label[i]];
    uint32_t at = batch ? nb++ : nc++;
    axes[batch ? 0 : 2][at] = i, axes[batch ? 1 : 3][at] = k;
    if (batch) z.label[z.n++] = x->label[i];
    moec_same_size(e->n, moec_b_dim(b, x->v, i), moec_b_dim(b, y->v, k),
                   "einsum: sizes of one letter must be equal");
  }
  for (uint32_t i = 0; i < x->n; i++)
    if (find(y, x->label[i]) < 0) z.label[z.n++] = x->label[i];
  for (uint32_t i = 0; i < y->n; i++)
    if (find(x, y->label[i]) < 0) z.label[z.n++] = y->label[i];
  moec_attrs_DOT a = {.lhs_batch = {nb, axes[0]},
                      .rhs_batch = {nb, axes[1]},
                      .lhs_contract = {nc, axes[2]},
                      .rhs_contract = {nc, axes[3]}};
  moec_value in[2] = {x->v, y->v};
  z.v = moec_b_op(b, MOEC_OP_DOT, &a, 2, in, 1);
  *x = z;
}

/* Left to right; a label is kept while a later operand or the result has it. */
static moec_value contract(einsum *e) {
  term *x = &e->terms[0];
  int64_t perm[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < e->n_terms; i++) take_diagonals(e, &e->terms[i]);
  for (uint32_t i = 1; i <= e->n_terms && !e->n->b->error; i++) {
    bool keep[256] = {false};
    for (uint32_t k = 0; k < e->out.n; k++) keep[e->out.label[k]] = true;
    for (uint32_t j = i + 1; j < e->n_terms; j++)
      for (uint32_t k = 0; k < e->terms[j].n; k++) keep[e->terms[j].label[k]] = true;
    if (i < e->n_terms)
      multiply(e, x, &e->terms[i], keep);
    else
      sum_out(e, x, NULL, keep);
  }
  if (e->n->b->error) return (moec_value){0};
  for (uint32_t i = 0; i < e->out.n; i++) perm[i] = find(x, e->out.label[i]);
  return moec_b_transpose(e->n->b, x->v, perm);
}

IMPORTER(einsum) {
  einsum e = {.n = n, .n_terms = moec_onnx_n_in(n)};
  const char *at = moec_attr_string(n, "equation", "");
  if (!e.n_terms) return moec_onnx_bad(n, "expected at least one operand");
  e.terms = MOEC_NEW_ARRAY(n->m->arena, term, e.n_terms);
  for (uint32_t i = 0; i < e.n_terms; i++) {
    if (!moec_onnx_has(n, i)) return moec_onnx_bad(n, "operand %u is missing", i);
    e.terms[i].v = moec_onnx_in(n, i);
  }
  MOEC_TRY(moec_builder_end(n->b));
  MOEC_TRY(read_operands(&e, &at));
  MOEC_TRY(read_result(&e, at));
  return moec_onnx_result(n, contract(&e));
}
