/* Parameters: what they hold, where they are used, and how much of them one token touches. */
#include "codegen/plan_tables.h"
#include "codegen/report_internal.h"

typedef struct sums { int64_t count, elements, bytes, active; } sums;

static int64_t elements_of(const report *r, const moec_param_info *p) {
  int64_t n = 0;
  return moec_dim_is_const(r->m, moec_type_numel(r->m, p->type), &n) ? n : 0;
}

static int64_t bytes_of(const report *r, const moec_param_info *p) {
  return elements_of(r, p) * (int64_t)moec_dtype_get(p->storage)->bytes;
}

/* The expert region of |f| that reads |v| as the weight or bias of a grouped GEMM; NULL: none. */
static const report_region *expert_reader(const report_fn *f, moec_value v) {
  for (size_t i = 0; i < f->n_edges; i++) {
    const report_edge *e = &f->edges[i];
    if (e->v.i == v.i && e->to != REPORT_NONE && moec_op_of(f->g, e->reader) == MOEC_OP_MOE_GROUPED_DOT &&
        (e->slot == 1 || e->slot == 3))
      return &f->regions[e->to];
  }
  return NULL;
}

/* Elements that one token reads: k of E experts. */
static int64_t active_of(const report *r, const report_fn *f, const report_region *experts, int64_t elements) {
  if (!experts) return elements;
  int64_t k = 0, e = MOEC_ATTRS(f->g, experts->node, MOE_PLAN)->experts;
  moec_dim_is_const(r->m, moec_ty(f->g, moec_in(f->g, experts->node, 0)).dims[1], &k);
  return e > 0 && k < e ? elements / e * k : elements;
}

static void add(sums *s, int64_t elements, int64_t bytes, int64_t active) {
  s->count++, s->elements += elements, s->bytes += bytes, s->active += active;
}

static json_t *sums_json(const sums *s) {
  json_t *o = moec_report_object();
  moec_report_set_int(o, "count", s->count);
  moec_report_set_int(o, "elements", s->elements);
  moec_report_set_int(o, "bytes", s->bytes);
  moec_report_set_int(o, "active", s->active);
  return o;
}

/* Of one call, the first: what functions are shared for is that the others differ in values only. */
json_t *moec_report_param_sums(const report *r, const report_fn *f) {
  sums s = {0};
  for (size_t i = 0; f->caller && i < f->g->n_inputs; i++) {
    moec_param p = moec_report_param_at(f, f->g->inputs[i], f->caller, f->call);
    if (!p.i) continue;
    int64_t n = elements_of(r, moec_param_get(r->m, p));
    add(&s, n, bytes_of(r, moec_param_get(r->m, p)), active_of(r, f, expert_reader(f, f->g->inputs[i]), n));
  }
  for (uint32_t n = 1; n < f->g->n_nodes; n++) {
    if (f->g->nodes[n].op != MOEC_OP_PARAM) continue;
    const moec_param_info *p = moec_param_get(r->m, MOEC_ATTRS(f->g, (moec_node){n}, PARAM)->param);
    moec_node reader = moec_report_only_reader(f->g, moec_out(f->g, (moec_node){n}, 0));
    if (moec_op_of(f->g, reader) == MOEC_OP_CALL) continue; /* the function's */
    int64_t k = elements_of(r, p);
    add(&s, k, bytes_of(r, p), active_of(r, f, expert_reader(f, moec_out(f->g, (moec_node){n}, 0)), k));
  }
  return sums_json(&s);
}

/* ---- the list ----------------------------------------------------------------------------- */

typedef struct lister {
  const report *r;
  bool *seen;        /* by parameter */
  uint32_t *tie_seen;/* tie sets whose bytes are counted */
  size_t n_ties, cap_ties;
  sums all, dense, expert, unused;
  json_t *list;
} lister;

/* Tied parameters share storage: the first of a set counts. */
static bool counts(lister *l, const moec_param_info *p) {
  if (!p->tie) return true;
  for (size_t i = 0; i < l->n_ties; i++)
    if (l->tie_seen[i] == p->tie) return false;
  MOEC_PUSH(l->r->arena, l->tie_seen, l->n_ties, l->cap_ties, p->tie);
  return true;
}

static void list_param(lister *l, moec_param id, uint32_t fn, const report_region *experts) {
  const report *r = l->r;
  const moec_param_info *p = moec_param_get(r->m, id);
  if (l->seen[id.i]) return;
  l->seen[id.i] = true;
  int64_t n = elements_of(r, p), bytes = bytes_of(r, p), active = active_of(r, &r->fns[fn], experts, n);
  bool expert = experts || p->group == MOEC_GROUP_EXPERT;
  if (counts(l, p)) add(&l->all, n, bytes, active), add(expert ? &l->expert : &l->dense, n, bytes, active);
  json_t *o = moec_report_object();
  moec_report_set(o, "name", moec_report_str(moec_sym_str(r->m, p->name)));
  moec_report_set(o, "type", moec_report_type(r, p->type));
  moec_report_set(o, "storage", moec_report_str(moec_dtype_get(p->storage)->text));
  moec_report_set_int(o, "elements", n);
  moec_report_set_int(o, "bytes", bytes);
  moec_report_set_int(o, "active", active);
  moec_report_set(o, "group", moec_report_str(expert ? "expert" : "dense"));
  moec_report_set(o, "tied", json_boolean(p->tie != 0));
  moec_report_set_int(o, "function", fn);
  moec_report_add(l->list, o);
}

/* In the order in which the model reads them. */
static void list_used(lister *l) {
  const report *r = l->r;
  const report_fn *top = &r->fns[0];
  for (size_t i = 0; i < top->n_edges; i++) {
    const report_edge *e = &top->edges[i];
    moec_param id = moec_report_param_of(top->g, e->v);
    if (!id.i) continue;
    if (e->to == REPORT_NONE || top->regions[e->to].kind != REPORT_CALL) {
      list_param(l, id, 0, expert_reader(top, e->v));
      continue;
    }
    uint32_t fn = r->index_of[MOEC_ATTRS(top->g, e->reader, CALL)->fn.i];
    list_param(l, id, fn, expert_reader(&r->fns[fn], r->fns[fn].g->inputs[e->slot]));
  }
}

json_t *moec_report_parameters(report *r) {
  lister l = {.r = r, .seen = MOEC_NEW_ARRAY(r->arena, bool, r->m->n_params), .list = moec_report_array()};
  list_used(&l);
  for (uint32_t i = 1; i < r->m->n_params; i++)
    if (!l.seen[i]) add(&l.unused, elements_of(r, &r->m->params[i]), bytes_of(r, &r->m->params[i]), 0);
  json_t *o = sums_json(&l.all);
  moec_report_set(o, "dense", sums_json(&l.dense));
  moec_report_set(o, "expert", sums_json(&l.expert));
  moec_report_set(o, "unused", sums_json(&l.unused));
  moec_report_set(o, "list", l.list);
  return o;
}
