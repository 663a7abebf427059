/* Router losses, added to the loss of `train`.
 *
 *   load balancing   coefficient * E * sum over experts e of f_e P_e, as transformers has it: over the tokens of all
 *                    layers together, f_e is the share of tokens that chose e (a choice each slot) and P_e the mean of
 *                    softmax(logits)_e. Tokens that attention_mask hides do not count.
 *   z-loss           coefficient * sum over layers of the mean of logsumexp(logits)^2 (ST-MoE, arXiv 2202.08906, eq. 5)
 *
 * The logits lie inside the functions of the layers: a function with a router gets them as further results. */
#include "passes/loss.h"

typedef moec_builder B;
typedef moec_value V;

/* ---- where the logits are ------------------------------------------------------------------- */

/* What a router's choice is made from, below the last softmax or sigmoid: the result of its linear layer. */
static V logits_of(const moec_graph *g, moec_node select) {
  V at = moec_in(g, select, 0), logits = at;
  while (moec_def(g, at).i) {
    moec_node n = moec_def(g, at);
    moec_op op = moec_op_of(g, n);
    if (op == MOEC_OP_DOT || op == MOEC_OP_PARAM || op == MOEC_OP_CONST) break;
    at = moec_in(g, n, op == MOEC_OP_SELECT ? 1 : 0);
    if (op == MOEC_OP_SOFTMAX || op == MOEC_OP_SIGMOID) logits = at;
    if (!at.i) break;
  }
  return logits;
}

/* One router of the model: its logits in the train graph, how many experts a token gets. */
typedef struct router {
  V logits;
  int64_t k;
} router;

typedef struct routers {
  moec_module *m;
  moec_graph *g; /* train */
  router *v;
  size_t n, cap;
  moec_fn *plain, *tapped; /* functions by their number: what they became; both {0} where not seen */
  size_t n_tapped, cap_plain, cap_tapped;
} routers;

/* |f| with the logits of its routers behind its results. */
static moec_fn tap(routers *r, moec_fn f) {
  for (size_t i = 0; i < r->n_tapped; i++)
    if (r->plain[i].i == f.i) return r->tapped[i];
  moec_fn t = moec_fn_add(r->m, "");
  moec_graph *g = moec_fn_get(r->m, t);
  moec_graph_copy(g, moec_fn_get(r->m, f));
  for (uint32_t n = 1; n < g->n_nodes; n++)
    if (g->nodes[n].op == MOEC_OP_MOE_SELECT) moec_add_output(g, "router_logits", logits_of(g, (moec_node){n}));
  size_t n = r->n_tapped;
  MOEC_PUSH(r->m->arena, r->plain, n, r->cap_plain, f);
  MOEC_PUSH(r->m->arena, r->tapped, r->n_tapped, r->cap_tapped, t);
  return t;
}

static bool has_router(const moec_graph *g) {
  for (uint32_t n = 1; n < g->n_nodes; n++)
    if (g->nodes[n].op == MOEC_OP_MOE_SELECT) return true;
  return false;
}

static void add_router(routers *r, V logits, int64_t k) {
  MOEC_PUSH(r->m->arena, r->v, r->n, r->cap, ((router){logits, k}));
}

/* A call of a function with routers becomes one of its tapped form. */
static moec_status *tap_call(routers *r, moec_node n) {
  const moec_node_info p = *moec_node_get(r->g, n);
  moec_fn f = MOEC_ATTRS(r->g, n, CALL)->fn;
  const moec_graph *plain = moec_fn_get(r->m, f);
  if (!has_router(plain)) return NULL;
  moec_attrs_CALL a = {.fn = tap(r, f)};
  plain = moec_fn_get(r->m, f);
  uint32_t n_out = (uint32_t)moec_fn_get(r->m, a.fn)->n_outputs, at = p.n_out;
  V *in = MOEC_NEW_ARRAY(r->m->arena, V, p.n_in + 1);
  moec_node call;
  for (uint32_t i = 0; i < p.n_in; i++) in[i] = moec_in(r->g, n, i);
  r->g->loc = p.loc;
  MOEC_TRY(moec_add_node(r->g, MOEC_OP_CALL, &a, p.n_in, in, n_out, &call));
  for (uint32_t i = 0; i < p.n_out; i++) moec_replace_uses(r->g, moec_out(r->g, n, i), moec_out(r->g, call, i));
  for (uint32_t i = 1; i < plain->n_nodes; i++)
    if (plain->nodes[i].op == MOEC_OP_MOE_SELECT)
      add_router(r, moec_out(r->g, call, at++), MOEC_ATTRS(plain, ((moec_node){i}), MOE_SELECT)->k);
  return NULL;
}

static moec_status *find_routers(routers *r) {
  size_t n_nodes = r->g->n_nodes;
  for (uint32_t n = 1; n < n_nodes; n++) {
    moec_op op = r->g->nodes[n].op;
    if (op == MOEC_OP_CALL) MOEC_TRY(tap_call(r, (moec_node){n}));
    if (op == MOEC_OP_MOE_SELECT)
      add_router(r, logits_of(r->g, (moec_node){n}), MOEC_ATTRS(r->g, ((moec_node){n}), MOE_SELECT)->k);
  }
  return NULL;
}

/* ---- the losses --------------------------------------------------------------------------- */

static V binary(B *b, moec_op op, V x, V y) {
  return moec_b_binary(b, op, x, y);
}
static V sum_all(B *b, V x) {
  int64_t axes[MOEC_MAX_RANK];
  uint32_t rank = moec_b_ty(b, x).rank;
  for (uint32_t i = 0; i < rank; i++) axes[i] = i;
  moec_attrs_REDUCE_SUM a = {.axes = {rank, axes}};
  return moec_b_op(b, MOEC_OP_REDUCE_SUM, &a, 1, &x, 1);
}

/* attention_mask as f32 [tokens]; {0}: the model has none. */
static V token_weights(B *b) {
  moec_graph *g = b->g;
  for (size_t i = 0; i < g->n_inputs; i++) {
    if (strcmp(moec_sym_str(g->m, moec_value_get(g, g->inputs[i])->name), "attention_mask") != 0) continue;
    if (moec_ty(g, g->inputs[i]).rank != 2) return (V){0};
    moec_dim tokens = moec_type_numel(g->m, moec_value_get(g, g->inputs[i])->type);
    return moec_b_cast(b, moec_b_reshape(b, g->inputs[i], 1, &tokens), MOEC_F32);
  }
  return (V){0};
}

/* x[T, E] summed over tokens, each with its weight. */
static V sum_tokens(B *b, V x, V weights) {
  if (weights.i) x = binary(b, MOEC_OP_MUL, x, moec_b_unsqueeze(b, weights, 1));
  return moec_b_reduce(b, MOEC_OP_REDUCE_SUM, x, 0, false);
}

/* How often each expert is among the k best of a token: f32 [T, E]. */
static V choices(B *b, V p, int64_t k) {
  moec_attrs_MOE_SELECT a = {.k = k};
  moec_dim experts = moec_b_dim(b, p, 1);
  V best = moec_b_op(b, MOEC_OP_MOE_SELECT, &a, 1, &p, 1);
  V hit = binary(b, MOEC_OP_EQ, moec_b_unsqueeze(b, best, 1),
                 moec_b_unsqueeze(b, moec_b_iota(b, MOEC_I64, 1, &experts, 0), 1));
  return moec_b_reduce(b, MOEC_OP_REDUCE_SUM, moec_b_cast(b, hit, MOEC_F32), 2, false);
}

static V added(B *b, V sum, V x) {
  return sum.i ? binary(b, MOEC_OP_ADD, sum, x) : x;
}

/* The number of tokens that count, in all layers. */
static V token_count(B *b, const routers *r, V weights) {
  V one_layer =
      weights.i ? sum_all(b, weights) : moec_b_cast(b, moec_b_size(b, moec_b_dim(b, r->v[0].logits, 0)), MOEC_F32);
  return moec_b_with(b, MOEC_OP_MAX, moec_b_with(b, MOEC_OP_MUL, one_layer, (double)r->n), 1);
}

static V load_balancing(B *b, const routers *r, V weights) {
  V chosen = {0}, mass = {0}, count = token_count(b, r, weights);
  for (size_t i = 0; i < r->n; i++) {
    moec_attrs_SOFTMAX a = {.axis = 1};
    V x = moec_b_cast(b, r->v[i].logits, MOEC_F32), p = moec_b_op(b, MOEC_OP_SOFTMAX, &a, 1, &x, 1);
    chosen = added(b, chosen, sum_tokens(b, choices(b, p, r->v[i].k), weights));
    mass = added(b, mass, sum_tokens(b, p, weights));
  }
  V product = binary(b, MOEC_OP_MUL, binary(b, MOEC_OP_DIV, chosen, count), binary(b, MOEC_OP_DIV, mass, count));
  V experts = moec_b_cast(b, moec_b_size(b, moec_b_dim(b, r->v[0].logits, 1)), MOEC_F32);
  return binary(b, MOEC_OP_MUL, sum_all(b, product), experts);
}

static V z_loss(B *b, const routers *r, V weights) {
  V sum = {0}, count = moec_b_with(b, MOEC_OP_DIV, token_count(b, r, weights), (double)r->n);
  for (size_t i = 0; i < r->n; i++) {
    V x = moec_b_cast(b, r->v[i].logits, MOEC_F32);
    moec_dim tokens = moec_b_dim(b, x, 0);
    moec_attrs_CROSS_ENTROPY a = {.ignore = -100};
    V in[2] = {x, moec_b_fill(b, moec_b_scalar_i(b, MOEC_I64, -100), 1, &tokens)};
    V nll = moec_b_op(b, MOEC_OP_CROSS_ENTROPY, &a, 2, in, 2); /* of no label: only the log-sum-exp is used */
    if (b->error) return sum;
    V lse = moec_out(b->g, moec_def(b->g, nll), 1), square = binary(b, MOEC_OP_MUL, lse, lse);
    if (weights.i) square = binary(b, MOEC_OP_MUL, square, weights);
    sum = added(b, sum, sum_all(b, square));
  }
  return binary(b, MOEC_OP_DIV, sum, count);
}

/* The routers must agree on the number of experts: the load is balanced over all layers together. */
static moec_status *check_routers(const routers *r) {
  if (!r->n)
    return moec_error(MOEC_INVALID_ARGUMENT,
                      "--aux-loss, --z-loss: the model has no router (no MoE layer was found)");
  for (size_t i = 1; i < r->n; i++)
    if (!moec_dim_eq(moec_ty(r->g, r->v[i].logits).dims[1], moec_ty(r->g, r->v[0].logits).dims[1]))
      return moec_error(MOEC_UNSUPPORTED, "--aux-loss: expected all MoE layers to have the same number of experts");
  return NULL;
}

moec_status *moec_loss_of_routers(moec_graph *g, double aux, double z) {
  routers r = {.m = g->m, .g = g};
  B b = moec_builder_on(g);
  if (aux == 0 && z == 0) return NULL;
  MOEC_TRY(find_routers(&r));
  MOEC_TRY(check_routers(&r));
  V weights = token_weights(&b), loss = g->outputs[0];
  if (aux != 0) {
    V part = load_balancing(&b, &r, weights);
    moec_add_output(g, "aux_loss", part);
    loss = binary(&b, MOEC_OP_ADD, loss, moec_b_with(&b, MOEC_OP_MUL, part, aux));
  }
  if (z != 0) {
    V part = z_loss(&b, &r, weights);
    moec_add_output(g, "z_loss", part);
    loss = binary(&b, MOEC_OP_ADD, loss, moec_b_with(&b, MOEC_OP_MUL, part, z));
  }
  g->outputs[0] = loss;
  return moec_builder_end(&b);
}
