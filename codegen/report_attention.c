/* The variant of an attention kernel. */
#include "codegen/report_idiom.h"
#include "codegen/report_mask.h"

/* The rope whose result reaches |v|: in this kernel, or in the one that made its operand. */
static const moec_graph *find_rope(const report *r, const report_fn *f, const report_region *reg, const moec_graph *g,
                                   moec_value v, moec_node *out) {
  *out = moec_report_find_idiom(g, MOEC_OP_ROPE);
  if (out->i && g != f->g) return g;
  while (moec_def(g, v).i && moec_node_get(g, moec_def(g, v))->n_in) v = moec_in(g, moec_def(g, v), 0); /* movement */
  if (g != f->g) v = moec_in(f->g, reg->node, moec_value_get(g, v)->slot);
  for (int depth = 0; depth < 3; depth++) { /* a copy may lie between */
    v = f->source[v.i];
    uint32_t from = f->region_of[moec_def(f->g, v).i];
    if (from == REPORT_NONE) return NULL;
    const moec_graph *k = moec_report_kernel(r, f, &f->regions[from]);
    if (!k) return NULL;
    *out = moec_report_find_idiom(k, MOEC_OP_ROPE);
    if (out->i) return k;
    if (!f->regions[from].n_edges) return NULL;
    v = f->edges[f->regions[from].edges].v;
  }
  return NULL;
}

/* Whether the kernel takes every second element: pairs lie side by side. */
static bool takes_pairs(const moec_graph *k) {
  for (uint32_t n = 1; n < k->n_nodes; n++) {
    if (k->nodes[n].op != MOEC_OP_SLICE) continue;
    moec_ints step = MOEC_ATTRS(k, (moec_node){n}, SLICE)->step;
    if (step.n && step.v[step.n - 1] == 2) return true;
  }
  return false;
}

static json_t *rope_json(const report *r, const report_fn *f, const report_region *reg, const moec_graph *g,
                         moec_node n) {
  moec_node rope;
  const moec_graph *k = find_rope(r, f, reg, g, moec_in(g, n, 0), &rope);
  if (!k) return json_null();
  moec_type_info t = moec_ty(k, moec_out(k, rope, 0));
  bool spelt_out = moec_op_of(k, rope) != MOEC_OP_ROPE; /* its root is one of two halves */
  json_t *o = moec_report_object();
  moec_report_set(o, "size",
                  moec_report_size(r, moec_dim_mul(r->m, t.dims[t.rank - 1], moec_dim_const(r->m, spelt_out ? 2 : 1))));
  moec_report_set(o, "interleaved", json_boolean(spelt_out ? takes_pairs(k) : MOEC_ATTRS(k, rope, ROPE)->pairs_in));
  return o;
}

static json_t *mask_json(const report *r, const moec_graph *g, moec_node n) {
  moec_value v = moec_in(g, n, 3);
  const moec_attrs_ATTENTION *a = MOEC_ATTRS(g, n, ATTENTION);
  json_t *o = moec_report_object();
  report_mask mask = {.text = ""};
  moec_dim offset = moec_dim_sub(r->m, moec_ty(g, moec_in(g, n, 1)).dims[1], moec_ty(g, moec_in(g, n, 0)).dims[1]);
  if (v.i) moec_report_mask(r, g, v, offset, &mask);
  bool expression = v.i && moec_def(g, v).i && g->n_inputs;
  const char *kind = !v.i ? "none" : expression ? "expression" : moec_ty(g, v).dtype == MOEC_BOOL ? "bool" : "additive";
  moec_report_set(o, "kind", moec_report_str(kind));
  moec_report_set(o, "text", moec_report_str(mask.text));
  moec_report_set(o, "causal", json_boolean(a->causal || mask.causal));
  moec_report_set_int(o, "window", mask.window);
  moec_report_set_int(o, "reads", __builtin_popcount(mask.reads));
  return o;
}

json_t *moec_report_attention(const report *r, const report_fn *f, const report_region *reg) {
  const moec_graph *g = moec_report_kernel(r, f, reg);
  moec_node n = g ? moec_report_find(g, MOEC_OP_ATTENTION) : reg->node;
  if (!g) g = f->g;
  const moec_attrs_ATTENTION *a = MOEC_ATTRS(g, n, ATTENTION);
  moec_type_info q = moec_ty(g, moec_in(g, n, 0)), k = moec_ty(g, moec_in(g, n, 1)), v = moec_ty(g, moec_in(g, n, 2));
  json_t *o = moec_report_object();
  moec_report_set(o, "heads", moec_report_size(r, q.dims[2]));
  moec_report_set(o, "kv_heads", moec_report_size(r, k.dims[2]));
  moec_report_set(o, "head_size", moec_report_size(r, q.dims[3]));
  moec_report_set(o, "value_size", moec_report_size(r, v.dims[3]));
  moec_report_set(o, "queries", moec_report_size(r, q.dims[1]));
  moec_report_set(o, "keys", moec_report_size(r, k.dims[1]));
  moec_report_set(o, "scale", json_real(a->scale));
  moec_report_set(o, "softcap", json_real(a->softcap));
  moec_report_set(o, "sinks", json_boolean(moec_in(g, n, 4).i != 0));
  moec_report_set(o, "mask", mask_json(r, g, n));
  moec_report_set(o, "rope", rope_json(r, f, reg, g, n));
  return o;
}
