/* Reading the text form. Functions may be called before they stand in the text, and values read
 * before they are defined. Types of results are taken from the text: the verifier checks them. */
#include <string.h>

#include "ir/ir_internal.h"
#include "ir/lex.h"

/* Handles by name: by symbol number, 0 where there is none. */
typedef struct names {
  uint32_t *handles;
  size_t n;
} names;

typedef struct parser {
  moec_lexer lex;
  names fns, params;
} parser;

static uint32_t *handle_of(parser *p, names *k, moec_sym name) {
  k->handles = moec_arena_grow(p->lex.m->arena, k->handles, &k->n, (size_t)name.i + 1, sizeof *k->handles);
  return &k->handles[name.i];
}

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
  p.offset = moec_lex_u64(l);
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

static void read_param(parser *k) {
  moec_lexer *l = &k->lex;
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
  int64_t axis = moec_lex_int(l);
  if (axis < -1 || axis >= MOEC_MAX_RANK) moec_lex_fail(l, "expected an axis or -1");
  p.shard_axis = (int32_t)axis;
  moec_lex_expect(l, ",");
  key(l, "tie");
  p.tie = moec_lex_u32(l);
  moec_dtype *const dtypes[] = {&p.storage, &p.compute, &p.master};
  static const char *const keys[] = {"storage", "compute", "master"};
  for (int i = 0; i < 3; i++) {
    moec_lex_expect(l, ",");
    key(l, keys[i]);
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
  if (l->error) return;
  uint32_t handle = moec_param_add(l->m, &p).i, *first = handle_of(k, &k->params, p.name);
  if (!*first) *first = handle;
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

/* A name that dim expressions can hold: one that is read as that symbol. */
static void read_symbol(moec_lexer *l) {
  const char *start = l->at, *name = moec_lex_word(l);
  moec_dim d = {0};
  if (l->error) return;
  moec_status *s = moec_dim_parse(l->m, name, &d);
  moec_dim_term t = s || moec_dim_n_terms(l->m, d) != 1 ? (moec_dim_term){0} : moec_dim_get_term(l->m, d, 0);
  moec_status_free(s);
  if (t.n_atoms == 1) return; /* a word has no operators, so it can be no other expression */
  l->at = start;
  moec_lex_fail(l, "expected the name of a symbol, got '%.80s'", name);
}

static void read_header(parser *p) {
  moec_lexer *l = &p->lex;
  moec_lex_expect(l, "module");
  l->m->name = moec_sym_make(l->m, moec_lex_string(l));
  moec_lex_expect(l, "{");
  while (!l->error && !moec_lex_take(l, "}")) {
    if (moec_lex_take(l, "symbols")) {
      do read_symbol(l);
      while (moec_lex_take(l, ","));
    } else if (moec_lex_take(l, "constraint")) {
      read_constraint(l);
    } else if (moec_lex_take(l, "file")) {
      moec_file f = {.name = moec_sym_make(l->m, moec_lex_string(l))};
      MOEC_PUSH(l->m->arena, l->m->files, l->m->n_files, l->m->cap_files, f);
    } else if (moec_lex_take(l, "param")) {
      read_param(p);
    } else {
      moec_lex_fail(l, "expected symbols, constraint, file, param or '}'");
    }
  }
}

/* ---- attributes --------------------------------------------------------------------------- */

/* The function or parameter @"name", or @"name"#2 for the second of that name. */
static uint32_t read_handle(parser *p, names *k, const char *what) {
  moec_lexer *l = &p->lex;
  const moec_module *m = l->m;
  bool fn = k == &p->fns;
  moec_lex_expect(l, "@");
  const char *name = moec_lex_string(l);
  moec_sym s = moec_sym_make(l->m, name);
  uint32_t at = l->error ? 0 : *handle_of(p, k, s), which = moec_lex_take(l, "#") ? moec_lex_u32(l) : 1, seen = 1;
  while (at && seen < which) {
    if (++at == (fn ? m->n_fns : m->n_params)) at = 0;
    else seen += (fn ? m->fns[at]->name.i : m->params[at].name.i) == s.i;
  }
  if (!at || !which)
    moec_lex_fail(l, which > 1 ? "there is no %s @\"%s\"#%u" : "there is no %s @\"%s\"", what, name, which);
  return l->error ? 0 : at;
}

static void read_attr(parser *p, moec_attr_kind kind, void *at) {
  moec_lexer *l = &p->lex;
  switch (kind) {
    case MOEC_ATTR_I: *(int64_t *)at = moec_lex_int(l); break;
    case MOEC_ATTR_F: *(double *)at = moec_lex_float(l); break;
    case MOEC_ATTR_B: *(bool *)at = moec_lex_bool(l); break;
    case MOEC_ATTR_E: *(moec_dtype *)at = moec_lex_dtype(l); break;
    case MOEC_ATTR_S: *(moec_sym *)at = moec_sym_make(l->m, moec_lex_string(l)); break;
    case MOEC_ATTR_INTS: *(moec_ints *)at = moec_lex_ints(l); break;
    case MOEC_ATTR_DIMS: *(moec_dims *)at = moec_lex_dims(l); break;
    case MOEC_ATTR_DIM: *(moec_dim *)at = moec_lex_dim(l); break;
    case MOEC_ATTR_FN: ((moec_fn *)at)->i = read_handle(p, &p->fns, "function"); break;
    case MOEC_ATTR_PARAM: ((moec_param *)at)->i = read_handle(p, &p->params, "parameter"); break;
    case MOEC_ATTR_DATA: *(const moec_const **)at = moec_lex_const(l); break;
  }
}

static void *read_attrs(parser *p, moec_op op) {
  moec_lexer *l = &p->lex;
  const moec_op_info *info = moec_op_get(op);
  char *attrs = moec_arena_alloc(l->m->arena, info->attrs_size);
  moec_attrs_default(op, attrs);
  for (uint32_t i = 0; i < info->n_attrs; i++) {
    const char *at = attrs + info->attrs[i].offset;
    bool optional = info->attrs[i].kind == MOEC_ATTR_E && !*(const moec_dtype *)at; /* and last */
    if (optional && moec_lex_sees(l, '}')) continue;
    moec_lex_expect(l, i ? "," : "{");
    key(l, info->attrs[i].name);
    if (!l->error) read_attr(p, info->attrs[i].kind, attrs + info->attrs[i].offset);
  }
  if (info->n_attrs) moec_lex_expect(l, "}");
  return attrs;
}

/* ---- functions ---------------------------------------------------------------------------- */

/* Values are defined in the order of their numbers, so number n is handle n. */
typedef struct body {
  moec_graph *g;
  uint32_t greatest; /* number read so far, defined or not */
  const char *where; /* it stands there */
} body;

static moec_value read_value(moec_lexer *l, body *s) {
  const char *start = moec_lex_sees(l, '%') ? l->at : NULL;
  moec_lex_expect(l, "%");
  uint32_t n = moec_lex_u32(l);
  if (n == 0) moec_lex_fail(l, "expected a value from %%1 on");
  if (n > s->greatest) s->greatest = n, s->where = start;
  return (moec_value){n};
}

static void define_value(moec_lexer *l, size_t number) {
  moec_lex_expect(l, "%");
  uint32_t n = moec_lex_u32(l);
  if (!l->error && n != number) moec_lex_fail(l, "expected %%%zu, got %%%u", number, n);
}

/* A node as written: nothing is inferred, so a wrong type survives until the verifier names it. */
static void add_raw(moec_graph *g, moec_node_info p, const moec_value *in, const moec_type *types) {
  moec_arena *a = g->m->arena;
  moec_node id = {(uint32_t)g->n_nodes};
  p.in = (uint32_t)g->n_edges;
  p.out = p.in + p.n_in;
  for (uint32_t i = 0; i < p.n_in; i++) MOEC_PUSH(a, g->edges, g->n_edges, g->cap_edges, in[i]);
  for (uint32_t i = 0; i < p.n_out; i++) {
    moec_value v = moec_new_value(g, types[i], id, i);
    MOEC_PUSH(a, g->edges, g->n_edges, g->cap_edges, v);
  }
  MOEC_PUSH(a, g->nodes, g->n_nodes, g->cap_nodes, p);
}

static void read_node(parser *k, body *s) {
  moec_lexer *l = &k->lex;
  moec_arena *a = l->m->arena;
  moec_value *in = NULL;
  moec_type *types = NULL;
  size_t n_out = 0, n_in = 0, cap_in = 0, n_types = 0, cap_types = 0;
  if (moec_lex_sees(l, '%')) { /* an op without results has no '=' */
    do define_value(l, s->g->n_values + n_out++);
    while (moec_lex_take(l, ","));
    moec_lex_expect(l, "=");
  }
  const char *name = moec_lex_word(l);
  moec_op op = moec_op_from_text(name);
  if (!op) moec_lex_fail(l, "there is no op '%s'", name);
  moec_lex_expect(l, "(");
  while (!l->error && !moec_lex_take(l, ")")) {
    if (n_in) moec_lex_expect(l, ",");
    moec_value v = {0};
    if (!moec_lex_take(l, "_")) v = read_value(l, s);
    MOEC_PUSH(a, in, n_in, cap_in, v);
  }
  if (l->error) return;
  const void *attrs = read_attrs(k, op);
  while (!l->error && n_types < n_out) {
    moec_lex_expect(l, n_types ? "," : ":");
    MOEC_PUSH(a, types, n_types, cap_types, moec_lex_type(l));
  }
  moec_node_info p = {.op = op, .n_in = (uint32_t)n_in, .n_out = (uint32_t)n_out, .attrs = attrs};
  if (moec_lex_take(l, "@")) p.loc = moec_sym_make(l->m, moec_lex_string(l));
  if (!l->error) add_raw(s->g, p, in, types);
}

static void read_inputs(moec_lexer *l, moec_graph *g) {
  moec_lex_expect(l, "(");
  while (!l->error && !moec_lex_take(l, ")")) {
    if (g->n_inputs) moec_lex_expect(l, ",");
    define_value(l, g->n_values);
    const char *name = moec_lex_string(l);
    moec_lex_expect(l, ":");
    moec_type t = moec_lex_type(l);
    if (l->error) return;
    moec_value_info *v = moec_value_get(g, moec_add_input(g, name, t));
    v->has_default = moec_lex_take(l, "=");
    if (v->has_default) v->dflt = moec_lex_float(l);
  }
}

static void read_fn(parser *p, moec_graph *g) {
  moec_lexer *l = &p->lex;
  body s = {.g = g};
  moec_lex_expect(l, "@");
  const char *name = moec_lex_string(l);
  if (strcmp(name, moec_sym_str(l->m, g->name)) != 0) moec_lex_fail(l, "expected 'fn' at the start of a line");
  read_inputs(l, g);
  moec_lex_expect(l, "->");
  moec_lex_expect(l, "(");
  while (!l->error && !moec_lex_take(l, ")")) {
    if (g->n_outputs) moec_lex_expect(l, ",");
    moec_value v = read_value(l, &s);
    const char *output = moec_lex_string(l);
    if (!l->error) moec_add_output(g, output, v);
  }
  g->entry = moec_lex_take(l, "entry");
  moec_lex_expect(l, "{");
  while (!l->error && !moec_lex_take(l, "}")) read_node(p, &s);
  if (l->error || s.greatest < g->n_values) return;
  l->at = s.where;
  moec_lex_fail(l, "value %%%u is not defined", s.greatest);
}

/* Registers every function by name, so that calls may come before definitions. */
static void collect_functions(parser *p) {
  moec_lexer *l = &p->lex;
  for (const char *at = l->text; at && !l->error; at = memchr(at, '\n', (size_t)(l->end - at))) {
    if (*at == '\n') at++;
    if (strncmp(at, "fn @\"", 5) != 0) continue;
    moec_lexer ahead = *l;
    ahead.at = at + 4;
    const char *name = moec_lex_string(&ahead);
    l->error = ahead.error;
    if (l->error) return;
    uint32_t fn = moec_fn_add(l->m, name).i, *first = handle_of(p, &p->fns, l->m->fns[fn]->name);
    if (!*first) *first = fn;
  }
}

moec_status *moec_parse(const char *text, moec_module **out) {
  moec_module *m = moec_module_create();
  parser p = {.lex = {.m = m, .text = text, .at = text, .end = text + strlen(text)}};
  moec_lexer *l = &p.lex;
  *out = NULL;
  read_header(&p);
  collect_functions(&p);
  for (size_t i = 1; !moec_lex_end(l); i++) {
    moec_lex_expect(l, "fn");
    if (i >= m->n_fns) moec_lex_fail(l, "expected 'fn' at the start of a line");
    if (!l->error) read_fn(&p, m->fns[i]);
  }
  if (m->n_fns < 2) moec_lex_fail(l, "expected a function");
  if (!l->error) {
    *out = m;
    return NULL;
  }
  moec_status *s = l->error; /* the module's memory may go: the error has its own */
  moec_module_destroy(m);
  return s;
}
