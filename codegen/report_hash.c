/* The structural hash of a function: the same for any names, metadata, node order and numbering
 * of the file, and for any order in which symbols, sizes and parameters became known. */
#include <string.h>

#include "codegen/report_internal.h"

static uint64_t mix(uint64_t h, uint64_t v) { return moec_hash(h, &v, sizeof v); }

/* Sums don't depend on the order of terms and factors, which is that of interning. */
static uint64_t hash_dim(const report *r, moec_dim d) {
  uint64_t sum = MOEC_HASH_SEED;
  if (!moec_dim_known(d)) return 0;
  for (uint32_t i = 0; i < moec_dim_n_terms(r->m, d); i++) {
    moec_dim_term t = moec_dim_get_term(r->m, d, i);
    uint64_t factors = 0;
    for (uint32_t k = 0; k < t.n_atoms; k++) {
      moec_dim_atom a = moec_dim_get_atom(r->m, t.atoms[k]);
      uint64_t h = mix(MOEC_HASH_SEED, a.op);
      if (a.op == MOEC_DIM_SYMBOL)
        factors += mix(h, r->symbol_rank[a.symbol]);
      else
        factors += mix(mix(h, hash_dim(r, a.a)), hash_dim(r, a.b));
    }
    sum += mix(mix(MOEC_HASH_SEED, (uint64_t)t.coeff), factors);
  }
  return sum;
}

static uint64_t hash_type(const report *r, uint64_t h, moec_type t) {
  moec_type_info i = moec_type_get(r->m, t);
  h = mix(mix(h, i.dtype), i.rank);
  for (uint32_t k = 0; k < i.rank; k++) h = mix(h, hash_dim(r, i.dims[k]));
  return h;
}

static uint64_t hash_attr(const report *r, uint64_t h, moec_attr_kind kind, const void *at) {
  switch (kind) {
    case MOEC_ATTR_I: return moec_hash(h, at, sizeof(int64_t));
    case MOEC_ATTR_F: return moec_hash(h, at, sizeof(double));
    case MOEC_ATTR_B: return moec_hash(h, at, sizeof(bool));
    case MOEC_ATTR_E: return moec_hash(h, at, sizeof(moec_dtype));
    case MOEC_ATTR_INTS: {
      const moec_ints *l = at;
      return l->n ? moec_hash(h, l->v, l->n * sizeof *l->v) : mix(h, 0);
    }
    case MOEC_ATTR_DIMS: {
      const moec_dims *l = at;
      for (uint32_t i = 0; i < l->n; i++) h = mix(h, hash_dim(r, l->v[i]));
      return mix(h, l->n);
    }
    case MOEC_ATTR_DIM: return mix(h, hash_dim(r, *(const moec_dim *)at));
    case MOEC_ATTR_FN: {
      const moec_fn *f = at;
      return f->i ? mix(h, moec_report_hash(r, moec_fn_get(r->m, *f))) : h;
    }
    case MOEC_ATTR_DATA: {
      const moec_const *d = *(const moec_const *const *)at;
      return moec_hash(hash_type(r, h, d->type), d->bytes, d->size);
    }
    case MOEC_ATTR_PARAM: /* which parameter it is differs from call to call */
    case MOEC_ATTR_S: return h;
  }
  return h;
}

uint64_t moec_report_hash(const report *r, const moec_graph *g) {
  uint64_t h = MOEC_HASH_SEED;
  for (size_t i = 0; i < g->n_inputs; i++) h = hash_type(r, h, moec_value_get(g, g->inputs[i])->type);
  for (uint32_t n = 1; n < g->n_nodes; n++) {
    const moec_node_info *p = &g->nodes[n];
    const moec_op_info *op = moec_op_get(p->op);
    h = moec_hash(h, op->text ? op->text : "", op->text ? strlen(op->text) : 0);
    for (uint32_t i = 0; i < op->n_attrs; i++)
      h = hash_attr(r, h, op->attrs[i].kind, (const char *)p->attrs + op->attrs[i].offset);
    for (uint32_t i = 0; i < p->n_in; i++) h = mix(h, g->edges[p->in + i].i);
    for (uint32_t i = 0; i < p->n_out; i++) h = hash_type(r, h, moec_value_get(g, g->edges[p->out + i])->type);
  }
  for (size_t i = 0; i < g->n_outputs; i++) h = mix(h, g->outputs[i].i);
  return h;
}
