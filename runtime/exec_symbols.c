/* Sizes from the shapes of inputs: dims that are a symbol first, then those linear in one
 * symbol that is still open; every other dim is only compared. An input that has a default and
 * is left out (dtype NONE, rank 0) tells nothing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/model.h"
#include "runtime/sizes.h"

/* Inputs are those of the plan, of one program; what is given for them is by m->ins. */
static const char *input_name(const moec_rt_plan *p, uint32_t i) {
  return moec_rt_str(p, p->inputs[i].name);
}

static moec_expr_ref dim_of(const moec_rt_plan *p, uint32_t tensor, uint32_t axis) {
  return p->pool[p->tensors[tensor].dims + axis];
}

static void mark_symbols(const moec_rt_plan *p, moec_expr_ref e, uint8_t *seen, uint32_t n,
                         int depth) {
  const moec_plan_expr *x = &p->exprs[e];
  if (x->op == MOEC_EXPR_CONST || depth == 0) return;
  if (x->op == MOEC_EXPR_SYMBOL) {
    if (x->a < n) seen[x->a] = 1;
    return;
  }
  mark_symbols(p, x->a, seen, n, depth - 1);
  mark_symbols(p, x->b, seen, n, depth - 1);
}

const char *moec_rt_sizes_text(const moec_model *m, const int64_t *symbols, moec_expr_ref a,
                               moec_expr_ref b, char *out, size_t size) {
  enum { SHOWN = 64, DEPTH = 14 }; /* more would not help a reader */
  uint8_t seen[SHOWN] = {0};
  const moec_rt_plan *p = &m->plan;
  mark_symbols(p, a, seen, SHOWN, DEPTH);
  mark_symbols(p, b, seen, SHOWN, DEPTH);
  size_t used = 0;
  out[0] = 0;
  for (uint32_t i = 0; i < SHOWN && i < p->n_symbols && used + 1 < size; i++) {
    if (!seen[i] || symbols[i] == MOEC_RT_UNKNOWN) continue;
    int n = snprintf(out + used, size - used, "%s%s = %" PRId64, used ? ", " : " with ",
                     moec_rt_str(p, p->symbols[i].name), symbols[i]);
    used += n > 0 ? (size_t)n : 0;
  }
  return out;
}

static moec_status *check_type(const moec_rt_plan *p, uint32_t i, const moec_tensor *got) {
  const moec_plan_tensor *t = &p->tensors[p->inputs[i].tensor];
  if (got->dtype == MOEC_DTYPE_NONE) {
    if (p->inputs[i].has_default) return NULL;
    return moec_error(MOEC_INVALID_ARGUMENT, "input \"%s\" is missing", input_name(p, i));
  }
  if ((uint32_t)got->dtype != t->dtype || got->rank != t->rank) {
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "input \"%s\": expected %s of rank %u, got %s of rank %u", input_name(p, i),
                      moec_dtype_get((moec_dtype)t->dtype)->text, t->rank,
                      moec_dtype_get(got->dtype)->text, got->rank);
  }
  return NULL;
}

/* Binds the symbol that axis |a| of input |i| leaves open, if it is one; *progress says so. */
static moec_status *solve_dim(moec_model *m, uint32_t i, uint32_t a, int64_t size, bool plain,
                              int64_t *symbols, bool *progress) {
  const moec_rt_plan *p = &m->plan;
  moec_expr_ref e = dim_of(p, p->inputs[i].tensor, a);
  moec_rt_linear x;
  if (m->values[e] != MOEC_RT_UNKNOWN || (plain && p->exprs[e].op != MOEC_EXPR_SYMBOL)) return NULL;
  if (!moec_rt_expr_linear(p, e, m->values, &x) || symbols[x.symbol] != MOEC_RT_UNKNOWN)
    return NULL;
  int64_t rest;
  if (__builtin_sub_overflow(size, x.rest, &rest) || rest % x.coef || rest / x.coef < 0) {
    char text[MOEC_RT_EXPR_TEXT];
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "input \"%s\": axis %u: expected a size that is %s, got %" PRId64,
                      input_name(p, i), a, moec_rt_expr_text(p, e, text, sizeof text), size);
  }
  symbols[x.symbol] = rest / x.coef;
  *progress = true;
  return NULL;
}

static moec_status *solve_pass(moec_model *m, moec_schedule program, const moec_tensor *inputs,
                               bool plain, int64_t *symbols, bool *progress) {
  moec_rt_eval(&m->plan, symbols, m->values);
  for (uint32_t k = 0; k < m->n_ins; k++) {
    uint32_t i = m->ins[k].at[program];
    for (uint32_t a = 0; i != MOEC_NONE && a < inputs[k].rank; a++) {
      MOEC_TRY(solve_dim(m, i, a, inputs[k].dims[a], plain, symbols, progress));
    }
  }
  return NULL;
}

/* An input that is left out has the sizes that the others tell. */
static moec_status *check_dims(moec_model *m, uint32_t i, const moec_tensor *got,
                               const int64_t *symbols) {
  const moec_rt_plan *p = &m->plan;
  bool left_out = got->dtype == MOEC_DTYPE_NONE;
  for (uint32_t a = 0; a < p->tensors[p->inputs[i].tensor].rank; a++) {
    moec_expr_ref e = dim_of(p, p->inputs[i].tensor, a);
    if (left_out ? m->values[e] != MOEC_RT_UNKNOWN : m->values[e] == got->dims[a]) continue;
    char text[MOEC_RT_EXPR_TEXT], sizes[256];
    moec_rt_expr_text(p, e, text, sizeof text);
    if (m->values[e] == MOEC_RT_UNKNOWN) {
      return moec_error(MOEC_INVALID_ARGUMENT,
                        "input \"%s\": axis %u: the inputs' shapes do not tell what %s is",
                        input_name(p, i), a, text);
    }
    if (p->exprs[e].op == MOEC_EXPR_CONST) {
      return moec_error(MOEC_INVALID_ARGUMENT,
                        "input \"%s\": axis %u: expected size %s, got %" PRId64, input_name(p, i),
                        a, text, got->dims[a]);
    }
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "input \"%s\": axis %u: expected size %s = %" PRId64 ", got %" PRId64 "%s",
                      input_name(p, i), a, text, m->values[e], got->dims[a],
                      moec_rt_sizes_text(m, symbols, e, e, sizes, sizeof sizes));
  }
  return NULL;
}

moec_status *moec_rt_solve(moec_model *m, moec_schedule program, const moec_tensor *inputs,
                           int64_t *symbols) {
  const moec_rt_plan *p = &m->plan;
  for (uint32_t k = 0; k < m->n_ins; k++) {
    uint32_t i = m->ins[k].at[program];
    if (i != MOEC_NONE) MOEC_TRY(check_type(p, i, &inputs[k]));
  }
  moec_rt_symbols_fixed(p, symbols);
  bool progress = false;
  MOEC_TRY(solve_pass(m, program, inputs, true, symbols, &progress));
  do {
    progress = false;
    MOEC_TRY(solve_pass(m, program, inputs, false, symbols, &progress));
  } while (progress);
  for (uint32_t k = 0; k < m->n_ins; k++) {
    uint32_t i = m->ins[k].at[program];
    if (i != MOEC_NONE) MOEC_TRY(check_dims(m, i, &inputs[k], symbols));
  }
  return NULL;
}
