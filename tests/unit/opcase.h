/* Op cases as text, run through the interpreter:
 *
 *     topk(f32[4] 3 nan 1 3) k=2 axis=0 largest=1 -> f32[2] nan 3; i64[2] 1 0
 *     gather(f32[3] 1 2 3; i64[1] 3) axis=0 ! out of range
 *
 * Operands and results are separated by ';', '_' is an absent operand, lists of attributes are
 * separated by ','. '!' expects an error whose message holds the text. */
#ifndef MOEC_TESTS_OPCASE_H
#define MOEC_TESTS_OPCASE_H

#include <ctype.h>
#include <math.h>

#include "ir/interp.h"
#include "tests/unit/unit.h"

enum { OPCASE_MAX = 8 };

typedef struct opcase {
  moec_op op;
  moec_module *m;
  moec_graph *g;
  _Alignas(16) char attrs[512];
  moec_tensor in[OPCASE_MAX], want[OPCASE_MAX], got[OPCASE_MAX];
  bool absent[OPCASE_MAX];
  uint32_t n_in, n_out;
  const char *error; /* NULL: none expected */
} opcase;

static inline const char *opcase_blank(const char *p) {
  while (*p == ' ') p++;
  return p;
}

/* Letters, digits, '.', '_' and '-' at *p, into |word|. */
static inline void opcase_word(const char **p, char word[64]) {
  size_t n = 0;
  *p = opcase_blank(*p);
  while (n < 63 && (isalnum((unsigned char)**p) || strchr("._-+", **p)) && **p) word[n++] = *(*p)++;
  word[n] = 0;
}

static inline void opcase_store(moec_tensor *t, size_t i, const char *word) {
  if (moec_dtype_is_float(t->dtype))
    moec_store_f64(t->dtype, t->data, i, strtod(word, NULL));
  else if (t->dtype == MOEC_U64)
    moec_store_i64(t->dtype, t->data, i, (int64_t)strtoull(word, NULL, 10));
  else
    moec_store_i64(t->dtype, t->data, i, strtoll(word, NULL, 10));
}

/* "f32[2,2] 1 2 3 4" */
static inline void opcase_tensor(const char **p, moec_tensor *out) {
  char word[64];
  int64_t dims[MOEC_MAX_RANK];
  uint32_t rank = 0;
  opcase_word(p, word);
  moec_dtype dtype = moec_dtype_from_text(word);
  if (!dtype || **p != '[') ck_abort_msg("expected a tensor at '%s%s'", word, *p);
  for ((*p)++; **p != ']'; *p += **p == ',') {
    char *end;
    dims[rank++] = strtoll(*p, &end, 10);
    if (end == *p) ck_abort_msg("expected a dim at '%s'", *p);
    *p = end;
  }
  (*p)++;
  UNIT_OK(moec_tensor_init(out, dtype, rank, dims));
  for (int64_t i = 0; i < moec_tensor_numel(out); i++) {
    opcase_word(p, word);
    if (!word[0]) ck_abort_msg("expected an element at '%s'", *p);
    opcase_store(out, (size_t)i, word);
  }
  *p = opcase_blank(*p);
}

static inline uint32_t opcase_list(const char *value, int64_t *out) {
  uint32_t n = 0;
  for (const char *p = value; *p; p += *p == ',') {
    char *end;
    out[n++] = strtoll(p, &end, 10);
    if (end == p) ck_abort_msg("expected a number at '%s'", p);
    p = end;
  }
  return n;
}

/* Sets attribute |name| from its text. */
static inline void opcase_attr(opcase *c, const char *name, const char *value) {
  const moec_op_info *info = moec_op_get(c->op);
  const moec_attr_info *a = info->attrs;
  int64_t list[32] = {0};
  while (a->name && strcmp(a->name, name) != 0) a++;
  if (a == info->attrs + info->n_attrs) ck_abort_msg("%s has no attribute %s", info->text, name);
  void *p = c->attrs + a->offset;
  bool text = a->kind == MOEC_ATTR_E || a->kind == MOEC_ATTR_F;
  uint32_t n = text ? 0 : opcase_list(value, list);
  moec_dim *dims = MOEC_NEW_ARRAY(c->m->arena, moec_dim, n + 1);
  if (a->kind == MOEC_ATTR_DIM || a->kind == MOEC_ATTR_DIMS)
    for (uint32_t i = 0; i < n; i++) dims[i] = moec_dim_const(c->m, list[i]);
  switch (a->kind) {
    case MOEC_ATTR_I: *(int64_t *)p = list[0]; break;
    case MOEC_ATTR_F: *(double *)p = strtod(value, NULL); break;
    case MOEC_ATTR_B: *(bool *)p = list[0] != 0; break;
    case MOEC_ATTR_E: *(moec_dtype *)p = moec_dtype_from_text(value); break;
    case MOEC_ATTR_DIM: *(moec_dim *)p = dims[0]; break;
    case MOEC_ATTR_DIMS: *(moec_dims *)p = (moec_dims){n, dims}; break;
    case MOEC_ATTR_INTS:
      *(moec_ints *)p = (moec_ints){n, moec_arena_copy(c->m->arena, list, sizeof list)};
      break;
    default: ck_abort_msg("attribute %s cannot be written in a case", name);
  }
}

static inline void opcase_attrs(opcase *c, const char **p) {
  char name[64], value[64];
  for (*p = opcase_blank(*p); isalpha((unsigned char)**p); *p = opcase_blank(*p)) {
    size_t n = 0;
    opcase_word(p, name);
    if (**p != '=') ck_abort_msg("expected '=' at '%s'", *p);
    for ((*p)++; **p && **p != ' ' && n < 63; (*p)++) value[n++] = **p;
    value[n] = 0;
    opcase_attr(c, name, value);
  }
}

static inline void opcase_parse(opcase *c, const char *p) {
  char word[64];
  opcase_word(&p, word);
  c->op = moec_op_from_text(word);
  if (!c->op || *p++ != '(') ck_abort_msg("no op '%s'", word);
  moec_attrs_default(c->op, c->attrs);
  for (p = opcase_blank(p); *p != ')'; p = opcase_blank(p + (*p == ';'))) {
    c->absent[c->n_in] = *p == '_';
    if (*p == '_')
      p = opcase_blank(p + 1);
    else
      opcase_tensor(&p, &c->in[c->n_in]);
    c->n_in++;
  }
  p++;
  opcase_attrs(c, &p);
  if (*p == '!') {
    c->error = opcase_blank(p + 1);
    c->n_out = moec_op_get(c->op)->min_out;
    return;
  }
  if (strncmp(p, "->", 2) != 0) ck_abort_msg("expected '->' at '%s'", p);
  for (p += 2; *p; p += *p == ';') opcase_tensor(&p, &c->want[c->n_out++]);
}

/* Equal up to |tol| relative to the larger of 1 and the value; NaN equals NaN. */
static inline void opcase_compare(const char *text, uint32_t k, const moec_tensor *got,
                                  const moec_tensor *want, double tol) {
  if (got->dtype != want->dtype || got->rank != want->rank ||
      moec_tensor_numel(got) != moec_tensor_numel(want))
    ck_abort_msg("%s: result %u has another type", text, k);
  for (uint32_t i = 0; i < want->rank; i++)
    if (got->dims[i] != want->dims[i]) ck_abort_msg("%s: result %u has another shape", text, k);
  for (int64_t i = 0; i < moec_tensor_numel(want); i++) {
    double x = moec_load_f64(got->dtype, got->data, (size_t)i);
    double y = moec_load_f64(want->dtype, want->data, (size_t)i);
    bool same = (isnan(x) && isnan(y)) || x == y || fabs(x - y) <= tol * fmax(1, fabs(y));
    if (!moec_dtype_is_float(got->dtype))
      same = moec_load_i64(got->dtype, got->data, (size_t)i) ==
             moec_load_i64(want->dtype, want->data, (size_t)i);
    if (!same)
      ck_abort_msg("%s: result %u, element %lld: got %.9g, expected %.9g", text, k, (long long)i, x,
                   y);
  }
}

static inline moec_status *opcase_build(opcase *c, moec_tensor *inputs, size_t *n_inputs) {
  moec_value in[OPCASE_MAX] = {{0}};
  moec_node n;
  for (uint32_t i = 0; i < c->n_in; i++) {
    moec_dim dims[MOEC_MAX_RANK];
    if (c->absent[i]) continue;
    for (uint32_t k = 0; k < c->in[i].rank; k++) dims[k] = moec_dim_const(c->m, c->in[i].dims[k]);
    in[i] = moec_add_input(c->g, "x", moec_type_make(c->m, c->in[i].dtype, c->in[i].rank, dims));
    inputs[(*n_inputs)++] = c->in[i];
  }
  MOEC_TRY(moec_add_node(c->g, c->op, c->attrs, c->n_in, in, c->n_out, &n));
  for (uint32_t i = 0; i < c->n_out; i++) moec_add_output(c->g, "y", moec_out(c->g, n, i));
  return NULL;
}

/* Runs one case; returns its op. */
static inline moec_op opcase_run(const char *text, const moec_interp_options *options) {
  opcase c = {.m = moec_module_create()};
  moec_tensor inputs[OPCASE_MAX];
  size_t n_inputs = 0;
  c.g = moec_fn_get(c.m, moec_fn_add(c.m, "main"));
  opcase_parse(&c, text);
  moec_status *s = opcase_build(&c, inputs, &n_inputs);
  if (!s) s = moec_interp_run(c.m, (moec_fn){1}, inputs, n_inputs, c.got, c.n_out, options);
  if (c.error && (!s || !strstr(moec_status_message(s), c.error)))
    ck_abort_msg("%s: got '%s'", text, moec_status_message(s));
  if (!c.error && s) ck_abort_msg("%s: %s", text, moec_status_message(s));
  for (uint32_t i = 0; i < c.n_out && !c.error; i++)
    opcase_compare(text, i, &c.got[i], &c.want[i], c.want[i].dtype == MOEC_F64 ? 1e-9 : 2e-6);
  moec_status_free(s);
  for (uint32_t i = 0; i < OPCASE_MAX; i++) {
    moec_tensor_fini(&c.in[i]);
    moec_tensor_fini(&c.want[i]);
    moec_tensor_fini(&c.got[i]);
  }
  moec_module_destroy(c.m);
  return c.op;
}

#endif
