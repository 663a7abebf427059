/* The sizes a report is evaluated at. */
#include <string.h>

#include "codegen/report_internal.h"

/* Symbols in the order in which the model's inputs introduce them; those of no input follow. The
 * symbol table itself is in the order of the file. */
static void order_symbols(report *r) {
  uint32_t n = moec_dim_symbol_count(r->m), placed = 0;
  const moec_graph *g = moec_main(r->m);
  for (uint32_t i = 0; i < n; i++) r->symbol_rank[i] = REPORT_NONE;
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_type_info t = moec_ty(g, g->inputs[i]);
    for (uint32_t k = 0; k < t.rank; k++)
      for (uint32_t term = 0; moec_dim_known(t.dims[k]) && term < moec_dim_n_terms(r->m, t.dims[k]); term++) {
        moec_dim_term x = moec_dim_get_term(r->m, t.dims[k], term);
        for (uint32_t a = 0; a < x.n_atoms; a++) {
          moec_dim_atom atom = moec_dim_get_atom(r->m, x.atoms[a]);
          if (atom.op != MOEC_DIM_SYMBOL || r->symbol_rank[atom.symbol] != REPORT_NONE) continue;
          r->symbol_rank[atom.symbol] = placed;
          r->symbol_order[placed++] = atom.symbol;
        }
      }
  }
  for (uint32_t i = 0; i < n; i++) {
    if (r->symbol_rank[i] != REPORT_NONE) continue;
    r->symbol_rank[i] = placed;
    r->symbol_order[placed++] = i;
  }
}

/* Whether symbol |s| is by itself the second axis of an integer matrix: a sequence of tokens. */
static bool counts_tokens(const report *r, uint32_t s) {
  const moec_graph *g = moec_main(r->m);
  moec_dim d = moec_dim_symbol(r->m, moec_dim_symbol_name(r->m, s));
  for (size_t i = 0; i < g->n_inputs; i++) {
    moec_type_info t = moec_ty(g, g->inputs[i]);
    if (t.rank == 2 && !moec_dtype_is_float(t.dtype) && moec_dim_eq(t.dims[1], d)) return true;
  }
  return false;
}

static int64_t default_value(const report *r, uint32_t s) {
  const char *name = moec_dim_symbol_name(r->m, s);
  if (strcmp(name, "batch") == 0) return 1;
  return strcmp(name, "seq") == 0 || counts_tokens(r, s) ? 128 : 1;
}

static moec_status *unknown_dim(const report *r, const char *name) {
  moec_buf b = {0};
  for (uint32_t i = 0; i < moec_dim_symbol_count(r->m); i++)
    moec_buf_printf(&b, "%s%s", i ? ", " : "", moec_dim_symbol_name(r->m, r->symbol_order[i]));
  moec_status *s = moec_error(MOEC_INVALID_ARGUMENT, "expected a size of the model (%s), got \"%s\"",
                              b.size ? moec_buf_str(&b) : "it has none", name);
  moec_buf_fini(&b);
  return s;
}

moec_status *moec_report_symbols(report *r) {
  uint32_t n = moec_dim_symbol_count(r->m);
  r->symbols = MOEC_NEW_ARRAY(r->arena, int64_t, n + 1);
  r->given = MOEC_NEW_ARRAY(r->arena, bool, n + 1);
  r->symbol_order = MOEC_NEW_ARRAY(r->arena, uint32_t, n + 1);
  r->symbol_rank = MOEC_NEW_ARRAY(r->arena, uint64_t, n + 1);
  order_symbols(r);
  for (uint32_t i = 0; i < n; i++) r->symbols[i] = default_value(r, i);
  for (size_t k = 0; k < r->in->n_dims; k++) {
    const moec_report_dim *d = &r->in->dims[k];
    uint32_t i = 0;
    while (i < n && strcmp(moec_dim_symbol_name(r->m, i), d->name) != 0) i++;
    if (i == n) return unknown_dim(r, d->name);
    if (d->value < 1)
      return moec_error(MOEC_INVALID_ARGUMENT, "size %s: expected 1 or more, got %lld", d->name, (long long)d->value);
    r->symbols[i] = d->value;
    r->given[i] = true;
  }
  return NULL;
}
