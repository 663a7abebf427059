/* The part of the report on training: programs and their planned memory, what is trained, and for each function what
 * its forward saves and what its backward computes again. */
#include <string.h>

#include "base/size.h"
#include "codegen/plan_tables.h"
#include "codegen/report_internal.h"

typedef struct builder {
  report r;
  const moec_plan_tables *t;
  const moec_graph *train; /* the entry */
  int64_t saved;           /* bytes, all calls of one run together; -1: unknown */
} builder;

static const struct { const char *name, *entry; moec_schedule at; } programs[] = {
    {"forward", "main", MOEC_AT_STEP}, {"train", "train", MOEC_AT_TRAIN}, {"vjp", "vjp", MOEC_AT_VJP}};

/* a + n * b of sizes that may be unknown, which is -1. */
static int64_t plus(int64_t a, int64_t n, int64_t b) {
  return a >= 0 && b >= 0 && moec_mul_i64(n, b, &b) && moec_add_i64(a, b, &a) ? a : -1;
}

/* ---- programs ------------------------------------------------------------------------------- */

static json_t *programs_json(const builder *b, int64_t *train_peak) {
  json_t *list = moec_report_array();
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    moec_plan_cost c = moec_plan_cost_of(b->t, programs[i].at, b->r.symbols);
    json_t *o = moec_report_object();
    if (programs[i].at == MOEC_AT_TRAIN) *train_peak = c.peak;
    moec_report_set(o, "name", moec_report_str(programs[i].name));
    moec_report_set(o, "entry", moec_report_str(programs[i].entry));
    moec_report_set_int(o, "steps", c.steps);
    moec_report_set_int(o, "kernels", c.kernels);
    moec_report_set_int(o, "flops", c.flops);
    moec_report_set_int(o, "peak", c.peak);
    moec_report_add(list, o);
  }
  return list;
}

/* This mode of recompute, and the other one where its report is there; none comes first. */
static json_t *modes_json(const builder *b, int64_t peak) {
  const moec_report_training *in = b->r.in->training;
  json_t *list = moec_report_array(), *o = moec_report_object();
  json_t *other = json_array_get(json_object_get(json_object_get(in->other, "training"), "modes"), 0);
  moec_report_set(o, "recompute", moec_report_str(in->recompute));
  moec_report_set_int(o, "peak", peak);
  moec_report_set_int(o, "saved", b->saved);
  moec_report_add(list, o);
  if (!other) return list;
  bool first = strcmp(in->recompute, "none") != 0;
  if (json_array_insert(list, first ? 0 : 1, other)) moec_die_out_of_memory();
  return list;
}

/* ---- parameters ----------------------------------------------------------------------------- */

static int64_t elements_of(const builder *b, moec_type type) {
  int64_t n = 0;
  return moec_dim_is_const(b->r.m, moec_type_numel(b->r.m, type), &n) ? n : 0;
}

/* By parameter of the module: it has a gradient. */
static bool *find_gradients(const builder *b) {
  const moec_plan_tables *t = b->t;
  bool *has = MOEC_NEW_ARRAY(b->r.arena, bool, b->r.m->n_params);
  for (uint32_t i = 1; i < b->r.m->n_params; i++) {
    uint32_t sym = b->r.m->params[i].name.i;
    for (size_t k = 0; sym < t->n_str_of_sym && k < t->n_params && !has[i]; k++)
      has[i] = t->params[k].grad != MOEC_NONE && t->params[k].name == t->str_of_sym[sym];
  }
  return has;
}

/* A parameter that shares storage with an earlier one that also has (or has not) a gradient: counted there. */
static bool counted(const moec_module *m, const bool *has, uint32_t i) {
  for (uint32_t k = 1; m->params[i].tie && k < i; k++)
    if (m->params[k].tie == m->params[i].tie && m->params[k].trainable && has[k] == has[i]) return true;
  return false;
}

/* A parameter without a gradient follows one that it shares storage with. */
static bool follows(const moec_module *m, const bool *has, uint32_t i) {
  for (uint32_t k = 1; m->params[i].tie && k < m->n_params; k++)
    if (m->params[k].tie == m->params[i].tie && has[k]) return true;
  return false;
}

static json_t *parameters_json(const builder *b) {
  const moec_module *m = b->r.m;
  const bool *has = find_gradients(b);
  int64_t count = 0, elements = 0, gradients = 0, moments = 0;
  json_t *o = moec_report_object(), *without = moec_report_array();
  for (uint32_t i = 1; i < m->n_params; i++) {
    const moec_param_info *p = &m->params[i];
    if (!p->trainable) continue;
    int64_t n = elements_of(b, p->type);
    bool follower = !has[i] && follows(m, has, i), again = follower || counted(m, has, i);
    count++;
    if (!again) elements = plus(elements, 1, n);
    if (has[i]) gradients = plus(gradients, (int64_t)sizeof(float), n);
    if (has[i] && !again) moments = plus(moments, 2 * (int64_t)sizeof(float), n);
    if (!has[i] && !follower) moec_report_add(without, moec_report_str(moec_sym_str(m, p->name)));
  }
  moec_report_set_int(o, "trainable", count);
  moec_report_set_int(o, "frozen", (int64_t)m->n_params - 1 - count);
  moec_report_set_int(o, "elements", elements);
  moec_report_set(o, "without_gradient", without);
  moec_report_set_int(o, "gradient_bytes", gradients);
  moec_report_set_int(o, "adamw_bytes", moments);
  return o;
}

/* ---- functions ------------------------------------------------------------------------------ */

static int64_t calls_of(const builder *b, const moec_graph *f) {
  int64_t n = 0;
  for (uint32_t i = 1; i < b->train->n_nodes; i++)
    n += b->train->nodes[i].op == MOEC_OP_CALL &&
         moec_fn_get(b->r.m, MOEC_ATTRS(b->train, (moec_node){i}, CALL)->fn) == f;
  return n;
}

/* What gives |v|, views aside: an op, or what a kernel computes. */
static const char *source_of(const builder *b, const moec_graph *g, moec_value v) {
  while (moec_def(g, v).i && moec_op_cls(moec_def_op(g, v)) == MOEC_CLASS_MOVE) v = moec_in(g, moec_def(g, v), 0);
  moec_node n = moec_def(g, v);
  if (!n.i) return "input";
  const char *what = NULL;
  if (moec_op_of(g, n) == MOEC_OP_FUSED && b->r.in->kernel_what)
    what = b->r.in->kernel_what[MOEC_ATTRS(g, n, FUSED)->fn.i];
  return what ? what : moec_op_get(moec_op_of(g, n))->text;
}

/* Values that the forward function returns for the backward one, and their bytes together. */
static json_t *saved_json(builder *b, const moec_graph *g, moec_dim *sum) {
  json_t *list = moec_report_array();
  *sum = moec_dim_const(b->r.m, 0);
  for (size_t i = 0; i < g->n_outputs; i++) {
    if (strncmp(moec_sym_str(g->m, g->output_names[i]), "saved", 5) != 0) continue;
    moec_type type = moec_value_get(g, g->outputs[i])->type;
    moec_dim bytes = moec_plan_bytes(b->r.m, type);
    json_t *o = moec_report_object();
    moec_report_set(o, "from", moec_report_str(source_of(b, g, g->outputs[i])));
    moec_report_set(o, "type", moec_report_type(&b->r, type));
    moec_report_set(o, "bytes", moec_report_size(&b->r, bytes));
    moec_report_add(list, o);
    *sum = moec_dim_add(b->r.m, *sum, bytes);
  }
  return list;
}

static json_t *work_json(const moec_replay *k) {
  json_t *list = moec_report_array();
  for (size_t i = 0; i < k->n_work; i++) {
    json_t *o = moec_report_object();
    moec_report_set(o, "what", moec_report_str(k->work[i].what));
    moec_report_set_int(o, "saved", k->work[i].saved);
    moec_report_set_int(o, "again", k->work[i].again);
    moec_report_set_int(o, "left_out", k->work[i].left_out);
    moec_report_add(list, o);
  }
  return list;
}

/* The number of function |name| among those of forward; -1: it is called there no more. */
static int64_t index_of(const json_t *functions, const char *name) {
  for (size_t i = 0; i < json_array_size(functions); i++)
    if (strcmp(moec_report_text(json_array_get(functions, i), "name"), name) == 0) return (int64_t)i;
  return -1;
}

static json_t *function_json(builder *b, const moec_replay *k, const json_t *functions) {
  const moec_module *m = b->r.m;
  const char *name = moec_sym_str(m, k->fn);
  int64_t calls = calls_of(b, k->forward), index = index_of(functions, name), bytes;
  moec_dim sum;
  json_t *o = moec_report_object(), *saved = saved_json(b, k->forward, &sum), *size = moec_report_size(&b->r, sum);
  moec_report_set(o, "name", moec_report_str(name));
  if (index >= 0) moec_report_set_int(o, "function", index);
  moec_report_set(o, "forward", moec_report_str(moec_sym_str(m, k->forward->name)));
  moec_report_set(o, "backward", moec_report_str(moec_sym_str(m, k->backward->name)));
  moec_report_set_int(o, "calls", calls);
  moec_report_set_int(o, "backward_calls", calls_of(b, k->backward));
  moec_report_set(o, "saved", saved);
  moec_report_set(o, "saved_bytes", size);
  moec_report_set(o, "work", work_json(k));
  moec_report_set(o, "reader", k->reader ? moec_report_str(k->reader) : json_null());
  bytes = moec_report_value(o, "saved_bytes");
  b->saved = plus(b->saved, calls, bytes);
  return o;
}

/* Those that the program for training calls, in the order of their first calls. */
static json_t *functions_json(builder *b, const json_t *functions) {
  const moec_module *m = b->r.m;
  bool *seen = MOEC_NEW_ARRAY(b->r.arena, bool, m->n_fns);
  json_t *list = moec_report_array();
  for (uint32_t i = 1; i < b->train->n_nodes; i++) {
    if (b->train->nodes[i].op != MOEC_OP_CALL) continue;
    moec_fn fn = MOEC_ATTRS(b->train, (moec_node){i}, CALL)->fn;
    for (size_t k = 0; k < m->n_replays && !seen[fn.i]; k++)
      if (m->replays[k].forward == moec_fn_get(m, fn))
        moec_report_add(list, function_json(b, &m->replays[k], functions));
    seen[fn.i] = true;
  }
  return list;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Tokens whose logits are in memory at a time; "": all of them, or there are none. */
static json_t *loss_chunk(const builder *b) {
  moec_buf text = {0};
  for (uint32_t n = 1; n < b->train->n_nodes; n++)
    if (b->train->nodes[n].op == MOEC_OP_LINEAR_CROSS_ENTROPY)
      moec_dim_print(&text, b->r.m, MOEC_ATTRS(b->train, ((moec_node){n}), LINEAR_CROSS_ENTROPY)->chunk);
  json_t *o = moec_report_str(moec_buf_str(&text));
  moec_buf_fini(&text);
  return o;
}

static json_t *loss_json(const builder *b) {
  const moec_report_training *in = b->r.in->training;
  json_t *o = moec_report_object();
  moec_report_set(o, "name", moec_report_str(in->loss));
  moec_report_set(o, "aux", json_real(in->aux_loss));
  moec_report_set(o, "z", json_real(in->z_loss));
  moec_report_set(o, "chunk", loss_chunk(b));
  return o;
}

static void build(builder *b, json_t *out) {
  const moec_report_training *in = b->r.in->training;
  json_t *o = moec_report_object();
  int64_t peak = -1;
  moec_report_set(o, "loss", loss_json(b));
  moec_report_set(o, "recompute", moec_report_str(in->recompute));
  moec_report_set(o, "skip_combine", moec_report_str(in->skip_combine));
  moec_report_set(o, "parameters", parameters_json(b));
  moec_report_set(o, "functions", functions_json(b, json_object_get(out, "functions")));
  moec_report_set(o, "programs", programs_json(b, &peak));
  moec_report_set(o, "modes", modes_json(b, peak));
  moec_report_set(out, "training", o);
}

moec_status *moec_report_add_training(moec_module *m, const moec_report_input *in, const moec_plan_tables *t,
                                      json_t *out) {
  builder b = {.r = {.m = m, .in = in}, .t = t};
  for (size_t i = 2; i < m->n_fns && !b.train; i++)
    if (m->fns[i]->entry && strcmp(moec_sym_str(m, m->fns[i]->name), "train") == 0) b.train = m->fns[i];
  if (!b.train) return MOEC_BUG("a report on training of a module without the entry @\"train\"");
  b.r.arena = moec_arena_create();
  moec_status *s = moec_report_symbols(&b.r);
  if (!s) build(&b, out);
  moec_arena_destroy(b.r.arena);
  return s;
}
