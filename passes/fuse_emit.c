/* Kernels of a plan become functions and `fused` calls; equal ones are one function. */
#include <string.h>

#include "base/file.h"
#include "passes/fuse.h"

/* One kernel on its way into a function. */
typedef struct emitter {
  moec_fuse_plan *p;
  uint32_t kernel;
  moec_graph *f;
  moec_value *map;     /* by value of p->g: value of f; reset after each kernel */
  uint32_t *touched;   /* entries of map to reset */
  size_t n_touched, cap_touched;
  moec_value *args;    /* values of p->g passed, parallel to f's inputs */
  size_t n_args, cap_args;
  moec_value *becomes; /* by value of p->g: the result of the fused call */
  size_t n_becomes;
} emitter;

static void set(emitter *e, moec_value v, moec_value to) {
  e->map[v.i] = to;
  MOEC_PUSH(e->p->m->arena, e->touched, e->n_touched, e->cap_touched, v.i);
}

/* Whether the kernel gets |v| passed: its bytes are made elsewhere. */
static bool is_passed(const emitter *e, moec_value v) {
  const moec_fuse_plan *p = e->p;
  moec_value source = moec_fuse_source(p->g, v);
  if (p->place[source.i] == MOEC_PLACE_OUTSIDE) return true;
  return p->place[source.i] == MOEC_PLACE_STORED && moec_fuse_kernel(p, source) != e->kernel;
}

static moec_value pass_in(emitter *e, moec_value v) {
  set(e, v, moec_add_input(e->f, "", moec_value_get(e->p->g, v)->type));
  MOEC_PUSH(e->p->m->arena, e->args, e->n_args, e->cap_args, v);
  return e->map[v.i];
}

/* Copies the computation of |v|; as deep as a kernel has nodes. */
static moec_status *copy(emitter *e, moec_value v) {
  moec_fuse_plan *p = e->p;
  if (!v.i || e->map[v.i].i) return NULL;
  if (is_passed(e, v)) {
    pass_in(e, v);
    return NULL;
  }
  moec_node n = moec_def(p->g, v);
  moec_node_info d = *moec_node_get(p->g, n);
  moec_value *in = MOEC_NEW_ARRAY(p->m->arena, moec_value, d.n_in + 1);
  for (uint32_t i = 0; i < d.n_in; i++) MOEC_TRY(copy(e, p->g->edges[d.in + i]));
  for (uint32_t i = 0; i < d.n_in; i++) in[i] = e->map[p->g->edges[d.in + i].i];
  e->f->loc = d.loc;
  moec_node made;
  MOEC_TRY(moec_add_node(e->f, d.op, d.attrs, d.n_in, in, d.n_out, &made));
  for (uint32_t i = 0; i < d.n_out; i++) set(e, moec_out(p->g, n, i), moec_out(e->f, made, i));
  return NULL;
}

/* A root that only its own kernel reads needs no store. */
static bool is_result(const emitter *e, moec_value root) {
  const moec_fuse_plan *p = e->p;
  if (p->must[root.i] || p->kernels[e->kernel].n_roots == 1) return true;
  uint32_t k;
  for (const moec_reads *r = p->reads[root.i]; r; r = r->next) {
    for (k = r->kernel; p->kernels[k].into;) k = p->kernels[k].into;
    if (k != e->kernel) return true;
  }
  return false;
}

/* ---- sharing --------------------------------------------------------------------------------------- */

static bool graphs_equal(const moec_graph *a, const moec_graph *b) {
  if (a->n_nodes != b->n_nodes || a->n_values != b->n_values || a->n_inputs != b->n_inputs ||
      a->n_outputs != b->n_outputs || a->n_edges != b->n_edges)
    return false;
  for (size_t i = 1; i < a->n_values; i++)
    if (a->values[i].type.i != b->values[i].type.i) return false;
  if (a->n_edges && memcmp(a->edges, b->edges, a->n_edges * sizeof *a->edges) != 0) return false;
  for (size_t i = 1; i < a->n_nodes; i++) {
    const moec_node_info *x = &a->nodes[i], *y = &b->nodes[i];
    if (x->op != y->op || x->n_in != y->n_in || x->n_out != y->n_out || !moec_attrs_equal(x->op, x->attrs, y->attrs))
      return false;
  }
  return memcmp(a->outputs, b->outputs, a->n_outputs * sizeof *a->outputs) == 0;
}

static uint64_t graph_hash(const moec_graph *g) {
  uint64_t h = moec_hash(MOEC_HASH_SEED, &g->n_nodes, sizeof g->n_nodes);
  for (size_t i = 1; i < g->n_nodes; i++) {
    h = moec_hash(h, &g->nodes[i].op, sizeof g->nodes[i].op);
    h = moec_attrs_hash(h, g->nodes[i].op, g->nodes[i].attrs);
  }
  return g->n_edges ? moec_hash(h, g->edges, g->n_edges * sizeof *g->edges) : h;
}

/* An earlier kernel equal to |f|, else |f|. Kernels are told from other functions by a nonzero hash. */
static moec_fn share(moec_fuse_shared *s, moec_module *m, moec_fn f) {
  moec_graph *g = moec_fn_get(m, f);
  uint64_t h = graph_hash(g);
  for (size_t i = 0; i < s->n; i++)
    if (s->hash[i] == h && graphs_equal(moec_fn_get(m, s->fn[i]), g)) return s->fn[i];
  size_t n = s->n;
  MOEC_PUSH(m->arena, s->hash, n, s->cap_hash, h);
  MOEC_PUSH(m->arena, s->fn, s->n, s->cap, f);
  return f;
}

/* ---- one kernel -------------------------------------------------------------------------------------- */

static moec_status *emit_kernel(emitter *e, moec_fuse_shared *shared) {
  moec_fuse_plan *p = e->p;
  const moec_kernel *k = &p->kernels[e->kernel];
  moec_fn fn = moec_fn_add(p->m, "k");
  e->f = moec_fn_get(p->m, fn);
  e->n_args = 0;
  moec_value results[MOEC_MAX_ROOTS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->n_roots; i++)
    if (is_result(e, k->roots[i])) results[n++] = k->roots[i];
  for (uint32_t i = 0; i < n; i++) {
    MOEC_TRY(copy(e, results[i]));
    moec_add_output(e->f, "", e->map[results[i].i]);
  }
  for (size_t i = 0; i < e->n_touched; i++) e->map[e->touched[i]] = (moec_value){0};
  e->n_touched = 0;
  moec_compact(e->f);
  moec_attrs_FUSED a = {.fn = share(shared, p->m, fn), .rows = moec_fuse_rows(p, e->kernel)};
  moec_node call;
  p->g->loc = moec_node_get(p->g, moec_def(p->g, results[n - 1]))->loc;
  MOEC_TRY(moec_add_node(p->g, MOEC_OP_FUSED, &a, (uint32_t)e->n_args, e->args, n, &call));
  for (uint32_t i = 0; i < n; i++) {
    e->becomes[results[i].i] = moec_out(p->g, call, i);
    moec_value_get(p->g, moec_out(p->g, call, i))->name = moec_value_get(p->g, results[i])->name;
  }
  return NULL;
}

moec_status *moec_fuse_emit(moec_fuse_plan *p, moec_fuse_shared *shared) {
  moec_graph *g = p->g;
  size_t n_values = g->n_values;
  emitter e = {.p = p, .map = MOEC_NEW_ARRAY(p->m->arena, moec_value, n_values),
               .becomes = MOEC_NEW_ARRAY(p->m->arena, moec_value, n_values), .n_becomes = n_values};
  for (uint32_t k = 1; k < p->n_kernels; k++) {
    if (p->kernels[k].into) continue;
    e.kernel = k;
    MOEC_TRY(emit_kernel(&e, shared));
  }
  for (uint32_t n = 1; n < g->n_nodes; n++)
    for (uint32_t i = 0; i < g->nodes[n].n_in; i++) {
      moec_value v = moec_in(g, (moec_node){n}, i);
      if (v.i < e.n_becomes && e.becomes[v.i].i) moec_set_input(g, (moec_node){n}, i, e.becomes[v.i]);
    }
  for (size_t i = 0; i < g->n_outputs; i++) {
    moec_value v = g->outputs[i];
    if (v.i < e.n_becomes && e.becomes[v.i].i) g->outputs[i] = e.becomes[v.i];
  }
  moec_compact(g);
  return NULL;
}
