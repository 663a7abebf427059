/* Reading the text form. Functions may be called before they stand in the text, so names are
 * collected first and bodies read in an order in which callees come before callers is not needed:
 * types of results are taken from the text, and the verifier checks them afterwards. */
#include <string.h>

#include "ir/ir_internal.h"
#include "ir/lex.h"

typedef struct scope {
  moec_graph *g;
  moec_value *values; /* by printed number */
  size_t n, cap;
} scope;

/* ---- module header ------------------------------------------------------------------------ */

static void read_numbers(moec_lexer *l, const char *name, uint32_t rank, int64_t *out) {
  moec_lex_expect(l, name);
  moec_lex_expect(l, "=");
  moec_ints list = moec_lex_ints(l);
  if (!l->error && list.n != rank) moec_lex_fail(l, "expected %u entries of %s", rank, name);
  for (uint32_t i = 0; !l->error && i < rank; i++) out[i] = list.v[i];
}

static void key(moec_lexer *l, const char *name) {
  moec_lex_expect(l, name);
  moec_lex_expect(l, "=");
}

static moec_piece read_piece(moec_lexer *l, uint32_t rank) {
  moec_piece p = {.file = UINT32_MAX, .rank = rank};
  int64_t perm[MOEC_MAX_RANK] = {0};
  moec_lex_expect(l, "{");
  key(l, "name");
  p.name = moec_sym_make(l->m, moec_lex_string(l));
  moec_lex_expect(l, ",");
  key(l, "file");
  if (!moec_lex_take(l, "none")) {
    p.file = moec_lex_u32(l);
    if (!l->error && p.file >= l->m->n_files) moec_lex_fail(l, "expected a file number below %zu", l->m->n_files);
  }
  moec_lex_expect(l, ",");
  key(l, "offset");
  int64_t offset = moec_lex_int(l);
  if (offset < 0) moec_lex_fail(l, "expected an offset of at least 0");
  p.offset = (uint64_t)offset;
  moec_lex_expect(l, ",");
  key(l, "dtype");
  p.dtype = moec_lex_dtype(l);
  moec_lex_expect(l, ",");
  read_numbers(l, "shape", rank, p.shape);
  moec_lex_expect(l, ",");
  read_numbers(l, "perm", rank, perm);
  moec_lex_expect(l, ",");
  read_numbers(l, "start", rank, p.start);
  moec_lex_expect(l, "}");
  for (uint32_t i = 0; i < rank; i++) {
    if (!l->error && (perm[i] < 0 || perm[i] >= rank)) moec_lex_fail(l, "expected perm entries below %u", rank);
    p.perm[i] = (uint32_t)perm[i];
  }
  return p;
}

static void read_param(moec_lexer *l) {
  moec_param_info p = {0};
  moec_piece *pieces = NULL;
  size_t n = 0, cap = 0;
  moec_lex_expect(l, "@");
  p.name = moec_sym_make(l->m, moec_lex_string(l));
  moec_lex_expect(l, ":");
  p.type = moec_lex_type(l);
  moec_lex_expect(l, "{");
  key(l, "trainable");
  p.trainable = moec_lex_bool(l);
  moec_lex_expect(l, ",");
  key(l, "group");
  if (moec_lex_take(l, "expert")) p.group = MOEC_GROUP_EXPERT;
  else moec_lex_expect(l, "dense");
  moec_lex_expect(l, ",");
  key(l, "shard_axis");
  p.shard_axis = (int32_t)moec_lex_int(l);
  moec_lex_expect(l, ",");
  key(l, "tie");
  p.tie = moec_lex_u32(l);
  moec_dtype *const dtypes[] = {&p.storage, &p.compute, &p.master};
  static const char *const names[] = {"storage", "compute", "master"};
  for (int i = 0; i < 3; i++) {
    moec_lex_expect(l, ",");
    key(l, names[i]);
    *dtypes[i] = moec_lex_dtype(l);
  }
  moec_lex_expect(l, ",");
  key(l, "pieces");
  moec_lex_expect(l, "[");
  if (!l->error && !p.type.i) moec_lex_fail(l, "expected a parameter type");
  while (!l->error && !moec_lex_take(l, "]")) {
    if (n) moec_lex_expect(l, ",");
    MOEC_PUSH(l->m->arena, pieces, n, cap, read_piece(l, moec_type_get(l->m, p.type).rank));
  }
  moec_lex_expect(l, "}");
  p.pieces = pieces, p.n_pieces = (uint32_t)n;
  if (!l->error) moec_param_add(l->m, &p);
}

static void read_constraint(moec_lexer *l) {
  moec_constraint c;
  c.a = moec_lex_dim(l);
  moec_lex_expect(l, "==");
  c.b = moec_lex_dim(l);
  moec_lex_expect(l, "at");
  c.where = moec_sym_make(l->m, moec_lex_string(l));
  moec_lex_expect(l, ":");
  c.what = moec_sym_make(l->m, moec_lex_string(l));
  if (!l->error) MOEC_PUSH(l->m->arena, l->m->constraints, l->m->n_constraints, l->m->cap_constraints, c);
}

static void read_header(moec_lexer *l) {
  moec_lex_expect(l, "module");
  l->m->name = moec_sym_make(l->m, moec_lex_string(l));
  moec_lex_expect(l, "{");
  while (!l->error && !moec_lex_take(l, "}")) {
    if (moec_lex_take(l, "symbols")) {
      do moec_dim_symbol(l->m, moec_lex_word(l));
      while (moec_lex_take(l, ","));
    } else if (moec_lex_take(l, "constraint")) {
      read_constraint(l);
    } else if (moec_lex_take(l, "file")) {
      moec_file f = {.name = moec_sym_make(l->m, moec_lex_string(l))};
      MOEC_PUSH(l->m->arena, l->m->files, l->m->n_files, l->m->cap_files, f);
    } else if (moec_lex_take(l, "param")) {
      read_param(l);
    } else {
      moec_lex_fail(l, "expected symbols, constraint, file, param or '}'");
    }
  }
}

/* ---- attributes --------------------------------------------------------------------------- */

static moec_fn find_fn(moec_lexer *l, const char *name) {
  for (uint32_t i = 1; i < l->m->n_fns; i++)
    if (strcmp(moec_sym_str(l->m, l->m->fns[i]->name), name) == 0) return (moec_fn){i};
  moec_lex_fail(l, "there is no function @\"%s\"", name);
  return (moec_fn){0};
}

static moec_param find_param(moec_lexer *l, const char *name) {
  moec_sym s = moec_sym_make(l->m, name);
  for (uint32_t i = 1; i < l->m->n_params; i++)
    if (l->m->params[i].name.i == s.i) return (moec_param){i};
  moec_lex_fail(l, "there is no parameter @\"%s\"", name);
  return (moec_param){0};
}

static void read_attr(moec_lexer *l, moec_attr_kind kind, void *at) {
  switch (kind) {
    case MOEC_ATTR_I: *(int64_t *)at = moec_lex_int(l); break;
    case MOEC_ATTR_F: *(double *)at = moec_lex_float(l); break;
    case MOEC_ATTR_B: *(bool *)at = moec_lex_bool(l); break;
    case MOEC_ATTR_E: *(moec_dtype *)at = moec_lex_dtype(l); break;
    case MOEC_ATTR_S: *(moec_sym *)at = moec_sym_make(l->m, moec_lex_string(l)); break;
    case MOEC_ATTR_INTS: *(moec_ints *)at = moec_lex_ints(l); break;
    case MOEC_ATTR_DIMS: *(moec_dims *)at = moec_lex_dims(l); break;
    case MOEC_ATTR_DIM: *(moec_dim *)at = moec_lex_dim(l); break;
    case MOEC_ATTR_FN:
      moec_lex_expect(l, "@");
      *(moec_fn *)at = find_fn(l, moec_lex_string(l));
      break;
    case MOEC_ATTR_PARAM:
      moec_lex_expect(l, "@");
      *(moec_param *)at = find_param(l, moec_lex_string(l));
      break;
    case MOEC_ATTR_DATA: *(const moec_const **)at = moec_lex_const(l); break;
  }
}

static void *read_attrs(moec_lexer *l, moec_op op) {
  const moec_op_info *info = moec_op_get(op);
  char *attrs = moec_arena_alloc(l->m->arena, info->attrs_size);
  moec_attrs_default(op, attrs);
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    moec_lex_expect(l, i ? "," : "{");
    key(l, info->attrs[i].name);
    if (!l->error) read_attr(l, info->attrs[i].kind, attrs + info->attrs[i].offset);
  }
  if (info->n_attrs) moec_lex_expect(l, "}");
  return attrs;
}

/* ---- functions ---------------------------------------------------------------------------- */

static moec_value read_value(moec_lexer *l, const scope *s) {
  if (moec_lex_take(l, "_")) return (moec_value){0};
  moec_lex_expect(l, "%");
  uint32_t n = moec_lex_u32(l);
  if (!l->error && (n == 0 || n > s->n)) moec_lex_fail(l, "value %%%u is not defined above", n);
  return l->error ? (moec_value){0} : s->values[n - 1];
}

/* The next value must be numbered in order. */
static void define(moec_lexer *l, scope *s, moec_value v) { MOEC_PUSH(l->m->arena, s->values, s->n, s->cap, v); }

static void expect_number(moec_lexer *l, size_t number) {
  moec_lex_expect(l, "%");
  uint32_t n = moec_lex_u32(l);
  if (!l->error && n != number) moec_lex_fail(l, "expected %%%zu, got %%%u", number, n);
}

/* A node as written: nothing is inferred, so a wrong type survives until the verifier names it. */
static void add_raw(moec_lexer *l, scope *s, moec_op op, const void *attrs, size_t n_in, const moec_value *in, size_t n_out,
                    moec_type **types, moec_sym loc) {
  moec_graph *g = s->g;
  moec_arena *a = l->m->arena;
  moec_node id = {(uint32_t)g->n_nodes};
  moec_node_info p = {op, (uint32_t)n_in, (uint32_t)n_out, (uint32_t)g->n_edges, (uint32_t)(g->n_edges + n_in), attrs, loc};
  for (size_t i = 0; i < n_in; i++) MOEC_PUSH(a, g->edges, g->n_edges, g->cap_edges, in[i]);
  for (size_t i = 0; i < n_out; i++) {
    moec_value v = moec_new_value(g, (*types)[i], id, (uint32_t)i);
    MOEC_PUSH(a, g->edges, g->n_edges, g->cap_edges, v);
    define(l, s, v);
  }
  MOEC_PUSH(a, g->nodes, g->n_nodes, g->cap_nodes, p);
}

static void read_node(moec_lexer *l, scope *s) {
  moec_arena *a = l->m->arena;
  moec_value *in = NULL;
  moec_type *types = NULL;
  size_t n_out = 0, n_in = 0, cap_in = 0, n_types = 0, cap_types = 0;
  if (!moec_lex_take(l, "loop")) { /* an op without results has no '=' */
    do expect_number(l, s->n + ++n_out);
    while (moec_lex_take(l, ","));
    moec_lex_expect(l, "=");
  }
  const char *name = n_out ? moec_lex_word(l) : "loop";
  moec_op op = moec_op_from_text(name);
  if (!op) moec_lex_fail(l, "there is no op '%s'", name);
  moec_lex_expect(l, "(");
  while (!l->error && !moec_lex_take(l, ")")) {
    if (n_in) moec_lex_expect(l, ",");
    MOEC_PUSH(a, in, n_in, cap_in, read_value(l, s));
  }
  if (l->error) return;
  const void *attrs = read_attrs(l, op);
  while (!l->error && n_types < n_out) {
    moec_lex_expect(l, n_types ? "," : ":");
    MOEC_PUSH(a, types, n_types, cap_types, moec_lex_type(l));
  }
  moec_sym loc = {0};
  if (moec_lex_take(l, "@")) loc = moec_sym_make(l->m, moec_lex_string(l));
  if (!l->error) add_raw(l, s, op, attrs, n_in, in, n_out, &types, loc);
}

typedef struct result {
  uint32_t number;
  const char *name;
} result;

static void read_fn(moec_lexer *l, moec_graph *g) {
  scope s = {.g = g};
  result *results = NULL;
  size_t n_results = 0, cap = 0;
  moec_lex_expect(l, "@");
  moec_lex_string(l);
  moec_lex_expect(l, "(");
  while (!l->error && !moec_lex_take(l, ")")) {
    if (g->n_inputs) moec_lex_expect(l, ",");
    expect_number(l, s.n + 1);
    const char *name = moec_lex_string(l);
    moec_lex_expect(l, ":");
    moec_type t = moec_lex_type(l);
    if (!l->error) define(l, &s, moec_add_input(g, name, t));
  }
  moec_lex_expect(l, "->");
  moec_lex_expect(l, "(");
  while (!l->error && !moec_lex_take(l, ")")) {
    if (n_results) moec_lex_expect(l, ",");
    moec_lex_expect(l, "%");
    result r = {.number = moec_lex_u32(l)};
    r.name = moec_lex_string(l);
    MOEC_PUSH(l->m->arena, results, n_results, cap, r);
  }
  moec_lex_expect(l, "{");
  while (!l->error && !moec_lex_take(l, "}")) read_node(l, &s);
  for (size_t i = 0; i < n_results && !l->error; i++) {
    if (results[i].number == 0 || results[i].number > s.n) moec_lex_fail(l, "result %%%u is not defined", results[i].number);
    else moec_add_output(g, results[i].name, s.values[results[i].number - 1]);
  }
}

/* Registers every function by name, so that calls may come before definitions. */
static void collect_functions(moec_lexer *l) {
  for (const char *p = l->text; p && !l->error; p = strchr(p, '\n')) {
    if (*p == '\n') p++;
    if (strncmp(p, "fn @\"", 5) != 0) continue;
    moec_lexer name = {.m = l->m, .text = l->text, .at = p + 4, .end = l->end};
    const char *s = moec_lex_string(&name);
    l->error = name.error;
    for (size_t i = 1; i < l->m->n_fns && !l->error; i++)
      if (strcmp(moec_sym_str(l->m, l->m->fns[i]->name), s) == 0) moec_lex_fail(l, "function @\"%s\" stands twice", s);
    if (!l->error) moec_fn_add(l->m, s);
  }
}

moec_status *moec_parse(const char *text, moec_module **out) {
  moec_module *m = moec_module_create();
  moec_lexer l = {.m = m, .text = text, .at = text, .end = text + strlen(text)};
  *out = NULL;
  read_header(&l);
  collect_functions(&l);
  for (size_t i = 1; !moec_lex_end(&l); i++) {
    moec_lex_expect(&l, "fn");
    if (i >= m->n_fns) moec_lex_fail(&l, "expected 'fn' at the start of a line");
    if (!l.error) read_fn(&l, m->fns[i]);
  }
  if (!l.error && m->n_fns < 2) moec_lex_fail(&l, "expected a function");
  if (l.error) {
    moec_module_destroy(m);
    return l.error;
  }
  *out = m;
  return NULL;
}
