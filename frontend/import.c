/* Importing nodes: operands in, results out, errors with their place. */
#include <stdio.h>
#include <string.h>

#include "frontend/import_internal.h"

enum { MAX_UNSUPPORTED = 50, MAX_INLINED = 300000 };

/* ---- operands and results ----------------------------------------------------------------- */

uint32_t moec_onnx_n_in(const moec_onnx *n) { return (uint32_t)n->p->n_input; }

moec_entry *moec_onnx_entry(const moec_onnx *n, uint32_t i) {
  if (i >= n->p->n_input || !n->p->input[i][0]) return NULL;
  moec_entry *e = moec_scope_find(n->x->scope, n->p->input[i]);
  return e && e->absent ? NULL : e;
}

bool moec_onnx_has(const moec_onnx *n, uint32_t i) { return moec_onnx_entry(n, i); }

/* A content as nodes: sizes, joined. */
static moec_value make_content(moec_onnx *n, const moec_entry *e) {
  moec_value parts[64];
  int64_t v;
  bool constant = true;
  for (uint32_t i = 0; i < e->n; i++) constant = constant && moec_dim_is_const(n->m, e->content[i], NULL);
  moec_dim shape = moec_dim_const(n->m, e->n);
  if (constant) {
    uint8_t *bytes = moec_arena_alloc(n->m->arena, 8 * (size_t)e->n + 8);
    for (uint32_t i = 0; i < e->n; i++) {
      moec_dim_is_const(n->m, e->content[i], &v);
      moec_store_i64(e->dtype, bytes, i, v);
    }
    moec_type t = moec_type_make(n->m, e->dtype, e->rank, &shape);
    return moec_b_const(n->b, t, bytes, e->n * moec_dtype_get(e->dtype)->bytes);
  }
  if (e->n > 64) {
    moec_b_fail(n->b, moec_error(MOEC_UNSUPPORTED, "%s: a list of %u sizes is used as data", n->what, e->n));
    return (moec_value){0};
  }
  for (uint32_t i = 0; i < e->n; i++) {
    parts[i] = moec_b_cast(n->b, moec_b_size(n->b, e->content[i]), e->dtype);
    if (e->rank == 1) parts[i] = moec_b_unsqueeze(n->b, parts[i], 0);
  }
  return e->rank == 0 ? parts[0] : moec_b_concat(n->b, e->n, parts, 0);
}

moec_value moec_onnx_in(moec_onnx *n, uint32_t i) {
  moec_entry *e = moec_onnx_entry(n, i);
  if (n->b->error) return (moec_value){0};
  if (!e && i < n->p->n_input && n->p->input[i][0] && !moec_scope_find(n->x->scope, n->p->input[i]))
    moec_b_fail(n->b, moec_error(MOEC_UNSUPPORTED, "operand %u \"%s\" is a result that moec does not compute", i,
                                 n->p->input[i]));
  if (!e) return (moec_value){0};
  if (e->v.i) return e->v;
  if (e->tensor) {
    moec_sym loc = n->b->g->loc;
    moec_b_fail(n->b, moec_make_initializer(n->x, e));
    n->b->g->loc = loc;
  } else if (e->known) {
    e->v = make_content(n, e);
  } else if (e->sequence) {
    moec_b_fail(n->b, moec_error(MOEC_UNSUPPORTED, "%s: operand %u is a sequence", n->what, i));
  } else {
    moec_b_fail(n->b, moec_error(MOEC_INVALID_MODEL, "%s: operand %u \"%s\" has no value", n->what, i, e->name));
  }
  return e->v;
}

moec_dtype moec_onnx_dtype(moec_onnx *n, uint32_t i) {
  const moec_entry *e = moec_onnx_entry(n, i);
  if (!e) return MOEC_DTYPE_NONE;
  if (e->v.i) return moec_ty(n->b->g, e->v).dtype;
  return e->tensor ? moec_dtype_from_onnx(e->tensor->data_type) : e->dtype;
}

moec_status *moec_onnx_content(moec_onnx *n, uint32_t i, moec_dims *out) {
  moec_entry *e = moec_onnx_entry(n, i);
  *out = (moec_dims){0, NULL};
  if (!e) return moec_onnx_bad(n, "operand %u is missing", i);
  if (!e->known && e->tensor) MOEC_TRY(moec_initializer_content(n->x, e));
  if (!e->known)
    return moec_onnx_unsupported(n, "operand %u \"%s\" must be known from sizes and constants, it depends on data", i,
                                 e->name);
  *out = (moec_dims){e->n, e->content};
  return NULL;
}

moec_status *moec_onnx_ints(moec_onnx *n, uint32_t i, moec_ints *out) {
  moec_dims d;
  MOEC_TRY(moec_onnx_content(n, i, &d));
  int64_t *v = MOEC_NEW_ARRAY(n->m->arena, int64_t, d.n + 1);
  for (uint32_t k = 0; k < d.n; k++)
    if (!moec_dim_is_const(n->m, d.v[k], &v[k])) return moec_onnx_unsupported(n, "operand %u must be constant", i);
  *out = (moec_ints){d.n, v};
  return NULL;
}

moec_entry *moec_out_entry(moec_onnx *n, uint32_t i) {
  if (i >= n->p->n_output || !n->p->output[i][0]) return NULL;
  moec_entry *e = moec_scope_find(n->x->scope, n->p->output[i]);
  return e ? e : moec_scope_add(n->x->scope, n->m->arena, n->p->output[i]);
}

void moec_onnx_out(moec_onnx *n, uint32_t i, moec_value v) {
  moec_entry *e = moec_out_entry(n, i);
  if (!e || !v.i) return;
  e->v = v;
  if (!moec_value_get(n->b->g, v)->name.i) moec_value_get(n->b->g, v)->name = moec_sym_make(n->m, e->name);
}

void moec_onnx_out_content(moec_onnx *n, uint32_t i, moec_dtype t, uint32_t rank, uint32_t count,
                           const moec_dim *content) {
  moec_entry *e = moec_out_entry(n, i);
  if (!e) return;
  e->known = true, e->rank = rank, e->n = count, e->dtype = t;
  e->content = count ? moec_arena_copy(n->m->arena, content, count * sizeof *content) : NULL;
}

moec_entry *moec_scope_of(const moec_onnx *n, const char *name) { return moec_scope_find(n->x->scope, name); }

moec_status *moec_onnx_result(moec_onnx *n, moec_value v) {
  MOEC_TRY(moec_builder_end(n->b));
  moec_onnx_out(n, 0, v);
  return NULL;
}

static moec_status *MOEC_PRINTF(3, 0) node_error(moec_onnx *n, moec_code code, const char *fmt, va_list args) {
  moec_status_free(moec_builder_end(n->b));
  return moec_errorv(code, fmt, args);
}

moec_status *moec_onnx_unsupported(moec_onnx *n, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = node_error(n, MOEC_UNSUPPORTED, fmt, args);
  va_end(args);
  return s;
}

moec_status *moec_onnx_bad(moec_onnx *n, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = node_error(n, MOEC_INVALID_MODEL, fmt, args);
  va_end(args);
  return s;
}

/* ---- attributes --------------------------------------------------------------------------- */

const Onnx__AttributeProto *moec_onnx_attr(const moec_onnx *n, const char *name) {
  for (size_t i = 0; i < n->p->n_attribute; i++)
    if (strcmp(n->p->attribute[i]->name, name) == 0) {
      if (n->read) n->read[i] = true;
      return n->p->attribute[i];
    }
  return NULL;
}

/* Attribute |name| if it is there; one of another type than the operator's is an error. */
static const Onnx__AttributeProto *attr_of_type(const moec_onnx *n, const char *name,
                                                Onnx__AttributeProto__AttributeType type) {
  const Onnx__AttributeProto *a = moec_onnx_attr(n, name);
  if (!a || a->type == type) return a;
  moec_b_fail(n->b, moec_error(MOEC_INVALID_MODEL, "attribute \"%s\": expected type %d, got type %d", name, (int)type,
                               (int)a->type));
  return NULL;
}

int64_t moec_attr_int(const moec_onnx *n, const char *name, int64_t dflt) {
  const Onnx__AttributeProto *a = attr_of_type(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
  return a ? a->i : dflt;
}

double moec_attr_float(const moec_onnx *n, const char *name, double dflt) {
  const Onnx__AttributeProto *a = attr_of_type(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
  return a ? (double)a->f : dflt;
}

const char *moec_attr_string(const moec_onnx *n, const char *name, const char *dflt) {
  const Onnx__AttributeProto *a = attr_of_type(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
  if (!a) return dflt;
  return moec_arena_printf(n->m->arena, "%.*s", (int)(a->s.len < 4096 ? a->s.len : 4096),
                           a->s.data ? (const char *)a->s.data : "");
}

bool moec_attr_ints(const moec_onnx *n, const char *name, moec_ints *out) {
  const Onnx__AttributeProto *a = attr_of_type(n, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
  *out = (moec_ints){0, NULL};
  if (!a) return false;
  *out = (moec_ints){(uint32_t)a->n_ints, a->ints};
  return true;
}

moec_status *moec_onnx_axis(moec_onnx *n, int64_t axis, uint32_t rank, uint32_t *out) {
  int64_t at = axis < 0 ? axis + rank : axis;
  if (at < 0 || at >= rank)
    return moec_onnx_bad(n, "expected an axis in -%u..%d, got %lld", rank, (int)rank - 1, (long long)axis);
  *out = (uint32_t)at;
  return NULL;
}

moec_status *moec_onnx_axes(moec_onnx *n, const char *attr, uint32_t i, uint32_t rank, moec_ints *out, bool *given) {
  moec_ints raw;
  *given = moec_attr_ints(n, attr, &raw);
  if (!*given && moec_onnx_has(n, i)) {
    MOEC_TRY(moec_onnx_ints(n, i, &raw));
    *given = true;
  }
  uint32_t seen = 0, axis, count = 0;
  for (uint32_t k = 0; k < raw.n; k++) {
    MOEC_TRY(moec_onnx_axis(n, raw.v[k], rank, &axis));
    if (seen >> axis & 1) return moec_onnx_bad(n, "axis %lld stands twice", (long long)raw.v[k]);
    seen |= 1u << axis;
  }
  int64_t *v = MOEC_NEW_ARRAY(n->m->arena, int64_t, raw.n + 1);
  for (uint32_t k = 0; k < rank; k++)
    if (seen >> k & 1) v[count++] = k;
  *out = (moec_ints){count, v};
  return NULL;
}

/* ---- rules -------------------------------------------------------------------------------- */

static const moec_import_rule rules[] = {
#define MANY MOEC_MANY
#define ONNX(domain, name, since, until, max_in, max_out, fn, op) \
  {domain, #name, since, until, max_in, max_out, moec_import_##fn, MOEC_OP_##op},
#include "frontend/onnx_ops.def"
#undef ONNX
};

const moec_import_rule *moec_find_import_rule(const char *domain, const char *name, int64_t opset, bool *known_name) {
  *known_name = false;
  if (strcmp(domain, "ai.onnx") == 0) domain = "";
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    if (strcmp(rules[i].domain, domain) != 0 || strcmp(rules[i].name, name) != 0) continue;
    *known_name = true;
    if (opset >= rules[i].since && opset <= rules[i].until) return &rules[i];
  }
  return NULL;
}

/* ---- nodes -------------------------------------------------------------------------------- */

static int64_t opset_of(const moec_import *x, const char *domain) {
  for (size_t i = 0; i < x->n_opsets; i++)
    if (strcmp(moec_onnx_domain(x->opsets[i]->domain), domain) == 0) return x->opsets[i]->version;
  return 1; /* contrib domains are often not declared */
}

/* Gives the results of a node that was not imported the mark "nothing", so that others can be looked at. */
static void mark_results(moec_import *x, const moec_onnx *n) {
  for (size_t i = 0; i < n->p->n_output; i++)
    if (n->p->output[i][0] && !moec_scope_find(x->scope, n->p->output[i]))
      moec_scope_add(x->scope, x->m->arena, n->p->output[i]);
}

static void note_unsupported(moec_import *x, const moec_onnx *n, const char *why) {
  if (x->n_unsupported++ < MAX_UNSUPPORTED)
    moec_buf_printf(&x->unsupported, "%s%s: %s", x->n_unsupported > 1 ? "; " : "", n->what, why);
  mark_results(x, n);
}

/* Whether an operand came from an unsupported node: nothing can be said about this one. */
static bool poisoned(const moec_onnx *n) {
  for (uint32_t i = 0; i < n->p->n_input; i++) {
    const moec_entry *e = moec_onnx_entry(n, i);
    if (e && !e->v.i && !e->known && !e->tensor && !e->sequence) return true;
  }
  return false;
}

static moec_status *check_arity(moec_onnx *n, const moec_import_rule *rule) {
  size_t in = n->p->n_input, out = n->p->n_output;
  if (rule->max_in != MOEC_MANY && in > rule->max_in)
    return moec_onnx_bad(n, "expected at most %d operand%s, got %zu", rule->max_in, rule->max_in == 1 ? "" : "s", in);
  if (rule->max_out != MOEC_MANY && out > rule->max_out)
    return moec_onnx_bad(n, "expected at most %d result%s, got %zu", rule->max_out, rule->max_out == 1 ? "" : "s", out);
  return NULL;
}

moec_status *moec_check_countable(moec_module *m, moec_type t) {
  moec_type_info info = moec_type_get(m, t);
  moec_dim one = moec_dim_const(m, 1), bytes = moec_dim_const(m, (int64_t)moec_dtype_get(info.dtype)->bytes);
  for (uint32_t i = 0; i < info.rank; i++) /* a size of 0 must not hide an overflow of the others */
    bytes = moec_dim_mul(m, bytes, moec_dim_is(m, info.dims[i], 0) ? one : info.dims[i]);
  return bytes.i
             ? NULL
             : moec_error(MOEC_INVALID_MODEL, "expected a tensor of less than 2^63 bytes, and sizes of fewer terms");
}

/* Values and constraints that the node added, also on the way to its results. */
static moec_status *check_added(const moec_onnx *n, size_t first_value, size_t first_constraint) {
  const moec_graph *g = n->b->g;
  for (size_t i = first_value; i < g->n_values; i++) MOEC_TRY(moec_check_countable(n->m, g->values[i].type));
  for (size_t i = first_constraint; i < n->m->n_constraints; i++)
    if (!n->m->constraints[i].a.i || !n->m->constraints[i].b.i)
      return moec_error(MOEC_INVALID_MODEL, "%s: expected sizes below 2^63",
                        moec_sym_str(n->m, n->m->constraints[i].what));
  return NULL;
}

/* Attributes of known operators that change no result here, or only where an importer asks for them. */
static const struct {
  const char *op, *name;
} idle[] = {
    {"ReduceSum", "noop_with_empty_axes"},
    {"ReduceMean", "noop_with_empty_axes"},
    {"ReduceMax", "noop_with_empty_axes"},
    {"ReduceMin", "noop_with_empty_axes"},
    {"ReduceProd", "noop_with_empty_axes"},
    {"ReduceL1", "noop_with_empty_axes"},
    {"ReduceL2", "noop_with_empty_axes"},
    {"ReduceSumSquare", "noop_with_empty_axes"},
    {"ReduceLogSum", "noop_with_empty_axes"},
    {"ReduceLogSumExp", "noop_with_empty_axes"},
    {"Split", "num_outputs"},
    {"SplitToSequence", "keepdims"},
    {"Cast", "saturate"},
    {"CastLike", "saturate"}, /* of float8 */
    {"Dropout", "ratio"},
    {"Dropout", "seed"},                    /* of training */
    {"Attention", "qk_matmul_output_mode"}, /* of a result that is refused */
    {"Attention", "softmax_precision"},     /* f32 */
    {"GroupQueryAttention", "rotary_interleaved"},
    {"MoE", "activation_alpha"},
    {"MoE", "activation_beta"},
    {"MoE", "swiglu_limit"},
    {"MoE", "swiglu_fusion"},
    {"TopK", "sorted"}, /* sorted is one of the orders that 0 allows */
    {"LayerNormalization", "stash_type"},
    {"RMSNormalization", "stash_type"},
    {"SimplifiedLayerNormalization", "stash_type"}, /* f32 */
};

/* What nodes that compute sizes may have; their evaluation asks only for what matters to lists. */
static const char *const of_sizes[] = {"allowzero", "axes",     "axis", "fmod",
                                       "keepdims",  "saturate", "to",   "value"};

static void mark_read_by_sizes(moec_onnx *n) {
  for (size_t k = 0; k < sizeof of_sizes / sizeof *of_sizes; k++)
    (void)moec_onnx_attr(n, of_sizes[k]);
}

/* An attribute that nobody asked for is none of the operator's in this version, and may want another result. */
static moec_status *check_attributes(moec_onnx *n) {
  for (size_t i = 0; i < n->p->n_attribute; i++) {
    const char *name = n->p->attribute[i]->name;
    bool known = n->read[i];
    for (size_t k = 0; k < sizeof idle / sizeof *idle && !known; k++)
      known = strcmp(idle[k].op, n->p->op_type) == 0 && strcmp(idle[k].name, name) == 0;
    if (!known)
      return moec_onnx_bad(n, "expected attributes of %s-%lld, got \"%s\"", n->p->op_type,
                           (long long)n->opset, name);
  }
  return NULL;
}

static moec_status *dispatch(moec_onnx *n) {
  const Onnx__FunctionProto *f = moec_find_function(n->x, n->p);
  if (f) return moec_inline_function(n, f);
  bool known_name, done = false;
  const moec_import_rule *rule =
      moec_find_import_rule(moec_onnx_domain(n->p->domain), n->p->op_type, n->opset, &known_name);
  if (!rule) return moec_onnx_unsupported(n, known_name ? "not in this opset version" : "unknown operator");
  MOEC_TRY(check_arity(n, rule));
  n->op = rule->op;
  size_t first_value = n->b->g->n_values, first_constraint = n->m->n_constraints;
  MOEC_TRY(moec_import_content(n, &done));
  if (done)
    mark_read_by_sizes(n);
  else
    MOEC_TRY(rule->fn(n));
  MOEC_TRY(moec_builder_end(n->b)); /* attributes of a wrong type, say */
  MOEC_TRY(check_attributes(n));
  return check_added(n, first_value, first_constraint);
}

static moec_status *import_node(moec_import *x, size_t index, const Onnx__NodeProto *p) {
  const char *domain = moec_onnx_domain(p->domain);
  if ((x->depth || x->nesting) && ++x->n_inlined > MAX_INLINED)
    return moec_error(MOEC_INVALID_MODEL, "local functions and loops come to more than %d nodes", MAX_INLINED);
  moec_onnx n = {.x = x, .p = p, .b = &x->b, .m = x->m, .opset = opset_of(x, domain)};
  n.what = moec_arena_printf(x->m->arena, "node %zu \"%s\" (%s%s%s-%lld)", index, p->name, domain, *domain ? "::" : "",
                             p->op_type, (long long)n.opset);
  n.read = MOEC_NEW_ARRAY(x->m->arena, bool, p->n_attribute);
  x->b.g->loc = moec_sym_make(x->m, *p->name ? p->name : n.what);
  bool skip = x->n_unsupported && poisoned(&n);
  moec_status *s = skip ? NULL : dispatch(&n);
  if (skip) mark_results(x, &n);
  if (moec_status_code(s) != MOEC_UNSUPPORTED || x->depth) return moec_context(s, "%s", n.what);
  note_unsupported(x, &n, moec_status_message(s));
  moec_status_free(s);
  return NULL;
}

moec_status *moec_import_nodes(moec_import *x, size_t n, Onnx__NodeProto **nodes) {
  size_t *order = NULL;
  MOEC_TRY(moec_order_nodes(x, n, nodes, &order));
  for (size_t i = 0; i < n; i++) MOEC_TRY(import_node(x, order[i], nodes[order[i]]));
  return NULL;
}
