/* A fused function that holds one attention or the gradient of one: its operands become functions that fetch a row or a
 * block of keys, by the same evaluation as in any kernel, so movement costs nothing and a computed mask is never
 * stored. */
#include "codegen/kernel_attention.h"

#include <math.h>

#include "codegen/kernel_build.h"

typedef struct builder {
  moec_arena *arena;
  moec_module *m;
  const moec_graph *fn;
  moec_node node;
  moec_kattention *att;
} builder;

/* ---- what operands may be ------------------------------------------------------------------- */

typedef struct contents {
  bool reduces, computes;
} contents;

static void look(const moec_kpool *p, moec_kx e, bool *seen, contents *c) {
  const moec_kx_node *n = moec_kx_get(p, e);
  if (seen[e.i]) return;
  seen[e.i] = true;
  moec_op_class cls = n->kind == MOEC_KX_APPLY ? moec_op_cls(n->op) : MOEC_CLASS_MOVE;
  c->reduces = c->reduces || n->kind == MOEC_KX_REDUCE;
  c->computes = c->computes || cls == MOEC_CLASS_UNARY || cls == MOEC_CLASS_BINARY;
  if (n->kind == MOEC_KX_APPLY && n->dtype == MOEC_BOOL)
    return; /* conditions of pads and concats */
  for (uint32_t i = 0; i < n->n_args && n->kind != MOEC_KX_LOAD; i++) look(p, n->args[i], seen, c);
}

static moec_status *check(const builder *b, const moec_kpool *p, moec_kx e, moec_koperand o) {
  static const char *const names[] = {"q", "k", "v", "mask", "sink", "y", "lse", "dy"};
  contents c = {0};
  look(p, e, MOEC_NEW_ARRAY(b->arena, bool, p->n), &c);
  if (c.reduces)
    return moec_error(MOEC_UNSUPPORTED,
                      "attention: %s holds a reduction; it has to be computed before", names[o]);
  if (c.computes && o != MOEC_KOPERAND_MASK)
    return moec_error(MOEC_UNSUPPORTED,
                      "attention: %s needs more than movement; it has to be computed before",
                      names[o]);
  return NULL;
}

/* ---- one operand ---------------------------------------------------------------------------- */

static moec_kx param(moec_kpool *p, moec_kparam which, moec_dim n) {
  return moec_kx_var(p, MOEC_KVAR_PARAM, moec_dim_const(p->m, 0), n, which);
}

/* An expression pool and an empty kernel whose only output is the local array. */
static moec_kernel *begin(const builder *b, moec_kpool *p, moec_keval *ev) {
  moec_kernel *k = MOEC_NEW(b->arena, moec_kernel);
  *k = (moec_kernel){.m = b->m, .n_in = (uint32_t)b->fn->n_inputs, .n_out = 1, .what = ""};
  for (uint32_t i = 0; i <= k->n_in; i++) {
    moec_kbuf buf = {.dtype = MOEC_F32, .output = true, .local = true};
    if (i < k->n_in) buf = (moec_kbuf){.dtype = moec_ty(b->fn, b->fn->inputs[i]).dtype, .arg = i};
    MOEC_PUSH(b->arena, k->bufs, k->n_bufs, k->cap_bufs, buf);
  }
  moec_kpool_init(p, b->arena, b->m);
  moec_keval_init(ev, p, k, b->fn);
  return k;
}

static moec_status *end(const builder *b, moec_kpool *p, moec_kernel *k, moec_koperand o,
                        moec_knest *nest, moec_kx index, moec_kx value) {
  moec_kstore store = {.buffer = k->n_in, .index = index, .value = value};
  if (p->error) return p->error;
  MOEC_TRY(check(b, p, value, o));
  nest->stores = &store, nest->n_stores = 1;
  moec_kschedule(p, k, (moec_kx){0}, nest, 1);
  if (p->error) return p->error;
  if (!moec_dim_is(b->m, k->scratch, 0))
    return moec_error(MOEC_UNSUPPORTED, "attention: an operand needs row temporaries");
  k->nodes = p->nodes, k->n_nodes = p->n, k->vars = p->vars, k->n_vars = p->n_vars;
  b->att->operands[o] = k;
  return NULL;
}

static void loop_over(moec_kpool *p, moec_knest *nest, moec_kx var) {
  nest->vars[nest->n_vars++] = moec_kx_get(p, var)->id;
}

static bool has_keys(moec_koperand o) { return o == MOEC_KOPERAND_K || o == MOEC_KOPERAND_V; }

/* q[b, i, h, :] and the like, or k and v of keys j0 .. j1 of key head h, rows of |stride|. */
static moec_status *vectors(const builder *b, moec_koperand o, int64_t size, int64_t stride) {
  moec_kpool p;
  moec_keval ev;
  moec_knest nest = {0};
  const moec_kattention *t = b->att;
  moec_kernel *k = begin(b, &p, &ev);
  bool keys = has_keys(o);
  moec_dim zero = moec_dim_const(b->m, 0);
  moec_kx batch = param(&p, MOEC_KPARAM_BATCH, t->b),
          head = param(&p, MOEC_KPARAM_HEAD, keys ? t->g : t->h);
  moec_kx row =
      keys ? moec_kx_var(&p, MOEC_KVAR_KEY, zero, t->t, 0) : param(&p, MOEC_KPARAM_QUERY, t->s);
  moec_kx d = moec_kx_var(&p, MOEC_KVAR_LOOP, zero, moec_dim_const(b->m, size), 0), at = d;
  if (keys) {
    loop_over(&p, &nest, row);
    moec_kx first = param(&p, MOEC_KPARAM_FIRST_KEY, t->t);
    at = moec_kx_add(&p, d,
                     moec_kx_scale(&p, moec_kx_sub(&p, row, first), moec_dim_const(b->m, stride)));
  }
  loop_over(&p, &nest, d);
  moec_kcoord index[4] = {{batch, {0}}, {row, {0}}, {head, {0}}, {d, {0}}};
  moec_kx value = moec_keval_at(&ev, moec_in(b->fn, b->node, (uint32_t)o), index);
  moec_kattention_view(b->att, &p, k, o, value, (moec_kx[3]){batch, row, head}, d);
  return end(b, &p, k, o, &nest, at, value);
}

/* One number: sink[h] or lse[b, i, h]. */
static moec_status *number(const builder *b, moec_koperand o) {
  moec_kpool p;
  moec_keval ev;
  moec_knest nest = {0};
  const moec_kattention *t = b->att;
  moec_kernel *k = begin(b, &p, &ev);
  moec_kcoord index[3] = {{param(&p, MOEC_KPARAM_HEAD, t->h), {0}}};
  if (o == MOEC_KOPERAND_LSE) {
    index[2] = index[0];
    index[0].e = param(&p, MOEC_KPARAM_BATCH, t->b);
    index[1].e = param(&p, MOEC_KPARAM_QUERY, t->s);
  }
  moec_kx value = moec_keval_at(&ev, moec_in(b->fn, b->node, (uint32_t)o), index);
  if (o == MOEC_KOPERAND_LSE)
    moec_kattention_view(b->att, &p, k, o, value, (moec_kx[3]){index[0].e, index[1].e, index[2].e}, (moec_kx){0});
  return end(b, &p, k, o, &nest, moec_kx_i64(&p, 0), value);
}

/* mask[b, h, i, j0 .. j1] as floats: a hidden key of a bool mask is -inf, a visible one 0. */
static moec_status *mask(const builder *b) {
  moec_kpool p;
  moec_keval ev;
  moec_knest nest = {0};
  moec_kattention *t = b->att;
  moec_value v = moec_in(b->fn, b->node, 3);
  moec_type_info type = moec_ty(b->fn, v);
  moec_kernel *k = begin(b, &p, &ev);
  moec_kx j = moec_kx_var(&p, MOEC_KVAR_KEY, moec_dim_const(b->m, 0), t->t, 0);
  moec_kx head = param(&p, MOEC_KPARAM_HEAD, t->h), query = param(&p, MOEC_KPARAM_QUERY, t->s);
  moec_kcoord index[4] = {
      {param(&p, MOEC_KPARAM_BATCH, t->b), {0}}, {head, {0}}, {query, {0}}, {j, {0}}};
  for (int i = 0; i < 4; i++)
    if (moec_dim_is(b->m, type.dims[i], 1)) index[i].e = moec_kx_i64(&p, 0);
  moec_kx value = moec_keval_at(&ev, v, index);
  if (type.dtype == MOEC_BOOL) {
    moec_kx args[3] = {value, moec_kx_num(&p, MOEC_F32, 0), moec_kx_num(&p, MOEC_F32, -HUGE_VAL)};
    value = moec_kx_apply(&p, MOEC_OP_SELECT, MOEC_F32, 3, args);
    t->mask_bool = true;
  }
  uint64_t vars = moec_kx_get(&p, value)->vars;
  t->mask_by_head = (vars & moec_kx_get(&p, head)->vars) != 0;
  t->mask_by_row = (vars & moec_kx_get(&p, query)->vars) != 0;
  moec_kattention_mask(t, &p, k, value, query, j);
  loop_over(&p, &nest, j);
  return end(b, &p, k, MOEC_KOPERAND_MASK, &nest,
             moec_kx_sub(&p, j, param(&p, MOEC_KPARAM_FIRST_KEY, t->t)), value);
}

/* ---- the kernel ----------------------------------------------------------------------------- */

/* Which result of the op an output is; reshapes keep the order of elements. */
static moec_status *results(const builder *b) {
  moec_kattention *t = b->att;
  for (int i = 0; i < 4; i++) t->results[i] = MOEC_NO_BUFFER;
  for (uint32_t i = 0; i < b->fn->n_outputs; i++) {
    moec_value v = b->fn->outputs[i];
    while (moec_def_op(b->fn, v) == MOEC_OP_RESHAPE) v = moec_in(b->fn, moec_def(b->fn, v), 0);
    uint32_t *result = &t->results[moec_value_get(b->fn, v)->slot];
    if (moec_def(b->fn, v).i != b->node.i || *result != MOEC_NO_BUFFER)
      return moec_error(MOEC_UNSUPPORTED,
                        "attention: expected its results, each once, as results of the function");
    *result = (uint32_t)b->fn->n_inputs + i;
  }
  if (!t->grad && t->results[0] == MOEC_NO_BUFFER)
    return moec_error(MOEC_UNSUPPORTED,
                      "attention: expected its first result as a result of the function");
  return NULL;
}

static const char *describe(const builder *b) {
  const moec_kattention *t = b->att;
  moec_buf text = {0};
  moec_buf_puts(&text, t->grad ? "attention_grad " : "attention ");
  moec_type_print(&text, b->m, moec_value_get(b->fn, moec_in(b->fn, b->node, 0))->type);
  moec_buf_puts(&text, " x ");
  moec_type_print(&text, b->m, moec_value_get(b->fn, moec_in(b->fn, b->node, 1))->type);
  if (t->causal) moec_buf_puts(&text, ", causal");
  if (t->operands[MOEC_KOPERAND_MASK])
    moec_buf_puts(&text, t->mask_bool ? ", bool mask" : ", added mask");
  if (t->operands[MOEC_KOPERAND_SINK]) moec_buf_puts(&text, ", sink");
  if (t->softcap > 0) moec_buf_puts(&text, ", softcap");
  const char *s = moec_arena_strdup(b->arena, moec_buf_str(&text));
  moec_buf_fini(&text);
  return s;
}

static moec_status *sizes(builder *b) {
  moec_type_info q = moec_ty(b->fn, moec_in(b->fn, b->node, 0)),
                 k = moec_ty(b->fn, moec_in(b->fn, b->node, 1));
  moec_type_info v = moec_ty(b->fn, moec_in(b->fn, b->node, 2));
  moec_kattention *t = b->att;
  t->b = q.dims[0], t->s = q.dims[1], t->h = q.dims[2], t->t = k.dims[1], t->g = k.dims[2];
  t->dtype = q.dtype;
  if (q.dtype == MOEC_F64)
    return moec_error(MOEC_UNSUPPORTED, "attention: expected f32, f16 or bf16, got f64");
  if (!moec_dim_is_const(b->m, q.dims[3], &t->d) || !moec_dim_is_const(b->m, v.dims[3], &t->e) ||
      t->d < 1 || t->e < 1)
    return moec_error(MOEC_UNSUPPORTED, "attention: expected constant sizes D and E of at least 1");
  return NULL;
}

static int64_t row_of(int64_t size) { return (size + 7) / 8 * 8; }

/* Bytes of the work struct of codegen/kernels/attention.c. */
static moec_dim scratch(moec_module *m, const moec_kattention *t) {
  int64_t most = t->d > t->e ? t->d : t->e,
          keys = most <= 64    ? 64
                 : most <= 128 ? 32
                               : 16;
  int64_t e = row_of(t->e), floats = 32 * t->d + 64 * keys + keys * (t->d + e) + 32 * e + most + keys;
  return moec_dim_const(m, 4 * floats + 64);
}

/* And of attention_grad.c, with a row for each key and 8 more. */
static moec_dim grad_scratch(moec_module *m, const moec_kattention *t) {
  int64_t d = row_of(t->d), e = row_of(t->e), keys = 0;
  if (t->results[1] != MOEC_NO_BUFFER) keys += 4 * d;
  if (t->results[2] != MOEC_NO_BUFFER) keys += 4 * e;
  int64_t fixed = 4 * (3 * 32 * (d + e) + 3 * 32 * 32 + 32 * d + 2 * 32 + e + 32) + 8 * 32 + 64;
  moec_dim rows = moec_dim_mul(m, moec_dim_add(m, t->t, moec_dim_const(m, 8)), moec_dim_const(m, keys));
  return moec_dim_add(m, rows, moec_dim_const(m, fixed));
}

/* The parallel index: blocks of 32 lines (query, head) of each batch and key head. */
static moec_dim tasks(moec_module *m, const moec_kattention *t) {
  moec_dim lines = moec_dim_mul(m, t->s, moec_dim_floordiv(m, t->h, t->g));
  return moec_dim_mul(m, moec_dim_mul(m, t->b, t->g), moec_dim_ceildiv(m, lines, moec_dim_const(m, 32)));
}

/* Each batch and key head, then dsink of each query head. */
static moec_dim grad_tasks(moec_module *m, const moec_kattention *t) {
  moec_dim n = moec_dim_const(m, 0);
  for (int i = 0; i < 3; i++)
    if (t->results[i] != MOEC_NO_BUFFER) n = moec_dim_mul(m, t->b, t->g);
  return t->results[3] != MOEC_NO_BUFFER ? moec_dim_add(m, n, t->h) : n;
}

/* Products of every query head with every key, and sums over d and e: two, or for the gradient two and one a result. */
static moec_dim flops(moec_module *m, const moec_kattention *t) {
  moec_dim pairs = moec_dim_mul(m, moec_dim_mul(m, t->b, t->h), moec_dim_mul(m, t->s, t->t));
  int64_t each = t->d + t->e;
  for (int i = 0; i < 3 && t->grad; i++)
    if (t->results[i] != MOEC_NO_BUFFER) each += i < 2 ? t->d : t->e;
  return moec_dim_mul(m, pairs, moec_dim_const(m, 2 * each));
}

static moec_status *operands(const builder *b) {
  const moec_kattention *t = b->att;
  MOEC_TRY(vectors(b, MOEC_KOPERAND_Q, t->d, 0));
  MOEC_TRY(vectors(b, MOEC_KOPERAND_K, t->d, t->grad ? row_of(t->d) : t->d));
  MOEC_TRY(vectors(b, MOEC_KOPERAND_V, t->e, row_of(t->e)));
  if (moec_in(b->fn, b->node, 3).i) MOEC_TRY(mask(b));
  if (moec_in(b->fn, b->node, 4).i) MOEC_TRY(number(b, MOEC_KOPERAND_SINK));
  if (!t->grad) return NULL;
  MOEC_TRY(vectors(b, MOEC_KOPERAND_Y, t->e, 0));
  MOEC_TRY(number(b, MOEC_KOPERAND_LSE));
  return vectors(b, MOEC_KOPERAND_DY, t->e, 0);
}

static void attributes(const builder *b) {
  moec_kattention *t = b->att;
  t->grad = moec_op_of(b->fn, b->node) == MOEC_OP_ATTENTION_GRAD;
  if (t->grad) {
    const moec_attrs_ATTENTION_GRAD *a = MOEC_ATTRS(b->fn, b->node, ATTENTION_GRAD);
    t->scale = (float)a->scale, t->softcap = (float)a->softcap, t->causal = a->causal;
  } else {
    const moec_attrs_ATTENTION *a = MOEC_ATTRS(b->fn, b->node, ATTENTION);
    t->scale = (float)a->scale, t->softcap = (float)a->softcap, t->causal = a->causal;
  }
}

moec_status *moec_kernel_build_attention(moec_arena *a, moec_module *m, const moec_graph *fn,
                                         moec_node n, moec_kernel **out) {
  moec_kattention *t = MOEC_NEW(a, moec_kattention);
  builder b = {a, m, fn, n, t};
  attributes(&b);
  MOEC_TRY(sizes(&b));
  MOEC_TRY(results(&b));
  MOEC_TRY(operands(&b));
  moec_kernel *k = MOEC_NEW(a, moec_kernel);
  *k = (moec_kernel){.m = m,
                     .n_in = (uint32_t)fn->n_inputs,
                     .n_out = (uint32_t)fn->n_outputs,
                     .attention = t,
                     .grain = 1};
  k->what = describe(&b);
  k->range = t->grad ? grad_tasks(m, t) : tasks(m, t);
  k->scratch = t->grad ? grad_scratch(m, t) : scratch(m, t);
  k->flops = flops(m, t);
  *out = k;
  return NULL;
}
