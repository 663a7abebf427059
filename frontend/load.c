/* Opening a model: mapped, pre-scanned, unpacked into a limited arena, checked, imported. */
#include <stdlib.h>
#include <string.h>

#include "frontend/import_internal.h"

enum { MAX_IR_VERSION = 14, MAX_OPSET = 28, MAX_FUNCTIONS = 10000 };
#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

/* ---- unpacking ---------------------------------------------------------------------------- */

/* protobuf-c's memory: an arena with a limit, freed as a whole. */
typedef struct limited {
  moec_arena *arena;
  size_t left;
} limited;

static void *limited_alloc(void *user, size_t size) {
  limited *l = user;
  if (size > l->left) return NULL;
  l->left -= size;
  return moec_arena_alloc(l->arena, size ? size : 1);
}

static void limited_free(void *user, void *p) { (void)user, (void)p; }

/* Unset strings are NULL in protobuf-c; "" everywhere is simpler. The arena owns both. */
static char nothing[1];

static void fill(char **s) {
  if (!*s) *s = nothing;
}

static moec_status *tidy_nodes(size_t n, Onnx__NodeProto **nodes) {
  for (size_t i = 0; i < n; i++) {
    Onnx__NodeProto *p = nodes[i];
    fill(&p->name), fill(&p->op_type), fill(&p->domain);
    if (!*p->op_type) return BAD("node %zu \"%s\" has no operator", i, p->name);
    if (p->n_input == 0 && p->n_output == 0) return BAD("node %zu \"%s\" (%s) has neither operands nor results", i, p->name, p->op_type);
    for (size_t k = 0; k < p->n_attribute; k++) {
      fill(&p->attribute[k]->name);
      for (size_t j = 0; j < k; j++)
        if (strcmp(p->attribute[j]->name, p->attribute[k]->name) == 0)
          return BAD("node %zu \"%s\" (%s): attribute \"%s\" stands twice", i, p->name, p->op_type, p->attribute[k]->name);
      if (p->attribute[k]->t) fill(&p->attribute[k]->t->name);
    }
  }
  return NULL;
}

static moec_status *tidy(Onnx__ModelProto *model) {
  for (size_t i = 0; i < model->n_functions; i++) {
    fill(&model->functions[i]->name), fill(&model->functions[i]->domain);
    MOEC_TRY(tidy_nodes(model->functions[i]->n_node, model->functions[i]->node));
  }
  Onnx__GraphProto *g = model->graph;
  fill(&g->name);
  for (size_t i = 0; i < g->n_initializer; i++) fill(&g->initializer[i]->name);
  for (size_t i = 0; i < g->n_input; i++) fill(&g->input[i]->name);
  for (size_t i = 0; i < g->n_output; i++) fill(&g->output[i]->name);
  return tidy_nodes(g->n_node, g->node);
}

/* ---- checks of the model ------------------------------------------------------------------ */

static moec_status *check_model(const Onnx__ModelProto *p) {
  if (!p->graph) return BAD("expected a model with a graph");
  if (!p->has_ir_version || p->ir_version < 3 || p->ir_version > MAX_IR_VERSION)
    return BAD("expected ir_version 3..%d, got %lld", MAX_IR_VERSION, p->has_ir_version ? (long long)p->ir_version : 0);
  if (p->n_opset_import == 0) return BAD("expected an opset_import");
  if (p->n_functions > MAX_FUNCTIONS) return BAD("more than %d local functions", MAX_FUNCTIONS);
  for (size_t i = 0; i < p->n_opset_import; i++) {
    const Onnx__OperatorSetIdProto *o = p->opset_import[i];
    const char *domain = o->domain ? o->domain : "";
    if ((!*domain || strcmp(domain, "ai.onnx") == 0) && (o->version < 1 || o->version > MAX_OPSET))
      return moec_error(MOEC_UNSUPPORTED, "expected opset 1..%d, got %lld", MAX_OPSET, (long long)o->version);
    for (size_t k = 0; k < i; k++)
      if (strcmp(p->opset_import[k]->domain ? p->opset_import[k]->domain : "", domain) == 0)
        return BAD("opset_import names the domain \"%s\" twice", domain);
  }
  if (p->graph->n_sparse_initializer) return moec_error(MOEC_UNSUPPORTED, "sparse initializers");
  return NULL;
}

/* ---- graph inputs and outputs ------------------------------------------------------------- */

static moec_status *input_dim(moec_import *x, const char *name, size_t axis, const Onnx__TensorShapeProto__Dimension *d, moec_dim *out) {
  if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
    if (d->dim_value < 0) return BAD("input \"%s\": size of axis %zu is negative: %lld", name, axis, (long long)d->dim_value);
    *out = moec_dim_const(x->m, d->dim_value);
    return NULL;
  }
  if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && d->dim_param && *d->dim_param)
    return moec_context(moec_dim_parse(x->m, d->dim_param, out), "input \"%s\": axis %zu", name, axis);
  *out = moec_dim_fresh(x->m, "dim");
  return NULL;
}

/* Sizes given on the command line take the place of their symbols. */
static moec_dim fix_dims(moec_import *x, moec_dim d) {
  moec_dim *map = MOEC_NEW_ARRAY(x->m->arena, moec_dim, moec_dim_symbol_count(x->m) + 1);
  for (uint32_t i = 0; i < moec_dim_symbol_count(x->m); i++)
    for (size_t k = 0; k < x->options->n_dims; k++)
      if (strcmp(moec_dim_symbol_name(x->m, i), x->options->dims[k].name) == 0) map[i] = moec_dim_const(x->m, x->options->dims[k].value);
  return moec_dim_subst(x->m, d, map);
}

static moec_status *add_input(moec_import *x, const Onnx__ValueInfoProto *v) {
  if (!*v->name) return BAD("an input has no name");
  const Onnx__TypeProto *t = v->type;
  if (!t || t->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !t->tensor_type)
    return moec_error(MOEC_UNSUPPORTED, "input \"%s\": expected a tensor", v->name);
  moec_dtype dtype = moec_dtype_from_onnx(t->tensor_type->elem_type);
  if (!dtype) return moec_error(MOEC_UNSUPPORTED, "input \"%s\": element type %d", v->name, t->tensor_type->elem_type);
  const Onnx__TensorShapeProto *shape = t->tensor_type->shape;
  if (!shape) return moec_error(MOEC_UNSUPPORTED, "input \"%s\" has no shape: its rank must be known", v->name);
  if (shape->n_dim > MOEC_MAX_RANK) return BAD("input \"%s\": expected rank at most %d, got %zu", v->name, MOEC_MAX_RANK, shape->n_dim);
  moec_dim dims[MOEC_MAX_RANK];
  for (size_t i = 0; i < shape->n_dim; i++) {
    MOEC_TRY(input_dim(x, v->name, i, shape->dim[i], &dims[i]));
    dims[i] = fix_dims(x, dims[i]);
  }
  moec_entry *e = moec_scope_add(x->scope, x->m->arena, v->name);
  if (!e) return BAD("the name \"%s\" is defined twice", v->name);
  e->v = moec_add_input(x->b.g, v->name, moec_type_make(x->m, dtype, (uint32_t)shape->n_dim, dims));
  return NULL;
}

static moec_status *add_names(moec_import *x, const Onnx__GraphProto *g) {
  for (size_t i = 0; i < g->n_initializer; i++) {
    if (!*g->initializer[i]->name) return BAD("initializer %zu has no name", i);
    moec_entry *e = moec_scope_add(x->scope, x->m->arena, g->initializer[i]->name);
    if (!e) return BAD("the initializer name \"%s\" stands twice", g->initializer[i]->name);
    e->tensor = g->initializer[i];
    e->initializer = i + 1;
  }
  for (size_t i = 0; i < g->n_input; i++) {
    for (size_t k = 0; k < i; k++)
      if (strcmp(g->input[k]->name, g->input[i]->name) == 0) return BAD("the input name \"%s\" stands twice", g->input[i]->name);
    const moec_entry *e = moec_scope_find(x->scope, g->input[i]->name);
    if (!e || !e->tensor) MOEC_TRY(add_input(x, g->input[i])); /* else an initializer listed as an input, as IR 3 wants */
  }
  return NULL;
}

static moec_status *add_outputs(moec_import *x, const Onnx__GraphProto *g) {
  if (g->n_output == 0) return BAD("the graph has no output");
  for (size_t i = 0; i < g->n_output; i++) {
    char *name = g->output[i]->name, *outputs[1] = {nothing};
    if (!moec_scope_find(x->scope, name)) return BAD("output \"%s\": nobody defines it", name);
    Onnx__NodeProto reader = {.n_input = 1, .input = &name, .n_output = 1, .output = outputs, .op_type = nothing, .name = nothing, .domain = nothing};
    moec_onnx n = {.x = x, .p = &reader, .b = &x->b, .m = x->m, .what = moec_arena_printf(x->m->arena, "output \"%s\"", name)};
    moec_value v = moec_onnx_in(&n, 0);
    MOEC_TRY(moec_builder_end(&x->b));
    moec_add_output(x->b.g, name, v);
  }
  return NULL;
}

/* ---- import ------------------------------------------------------------------------------- */

static moec_status *import_graph(moec_import *x) {
  const Onnx__GraphProto *g = x->model->graph;
  moec_scope scope;
  moec_scope_init(&scope, x->m->arena);
  x->scope = &scope;
  x->b = moec_builder_on(moec_fn_get(x->m, moec_fn_add(x->m, "main")));
  MOEC_TRY(add_names(x, g));
  MOEC_TRY(moec_import_nodes(x, g->n_node, g->node));
  if (x->n_unsupported)
    return moec_error(MOEC_UNSUPPORTED, "%zu unsupported node%s: %s", x->n_unsupported, x->n_unsupported == 1 ? "" : "s",
                      moec_buf_str(&x->unsupported));
  MOEC_TRY(add_outputs(x, g));
  moec_compact_all(x->m);
  return moec_verify(x->m);
}

static moec_status *unpack_and_import(moec_import *x, const uint8_t *data, size_t size) {
  if (size == 0) return BAD("expected an ONNX model, got an empty file");
  MOEC_TRY(moec_prescan_wire(x->m->arena, &onnx__model_proto__descriptor, data, size, &x->scan));
  /* fields are unpacked to at most a few times their bytes; messages to a fixed size */
  limited l = {moec_arena_create(), 4 * size + 400 * x->scan.n_messages + (1u << 20)};
  ProtobufCAllocator allocator = {limited_alloc, limited_free, &l};
  Onnx__ModelProto *model = onnx__model_proto__unpack(&allocator, size, data);
  moec_status *s = model ? check_model(model) : BAD("not an ONNX model, or damaged: protobuf cannot read it");
  if (!s) s = tidy(model);
  x->model = model;
  if (!s) s = import_graph(x);
  moec_arena_destroy(l.arena);
  return s;
}

static moec_status *import_data(const uint8_t *data, size_t size, const char *dir, const moec_import_options *options,
                                moec_module *m) {
  moec_import x = {.m = m, .options = options, .dir = dir};
  moec_file self = {.map = {data, size}}; /* no name: inline data; the caller says who unmaps it */
  x.model_file = (uint32_t)m->n_files;
  MOEC_PUSH(m->arena, m->files, m->n_files, m->cap_files, self);
  moec_status *s = unpack_and_import(&x, data, size);
  moec_status_free(moec_builder_end(&x.b));
  moec_buf_fini(&x.unsupported);
  return s;
}

moec_status *moec_import_onnx_memory(const void *data, size_t size, moec_module **out) {
  const moec_import_options options = {0};
  moec_module *m = moec_module_create();
  *out = NULL;
  moec_status *s = import_data(data, size, NULL, &options, m);
  if (s) moec_module_destroy(m);
  else *out = m;
  return s;
}

moec_status *moec_import_onnx(const char *path, const moec_import_options *options, moec_module **out) {
  moec_map map;
  *out = NULL;
  MOEC_TRY(moec_map_user_file(path, &map));
  moec_module *m = moec_module_create();
  const char *slash = strrchr(path, '/'), *dir = options->weights_dir;
  m->name = moec_sym_make(m, slash ? slash + 1 : path);
  if (!dir) dir = slash ? moec_arena_printf(m->arena, "%.*s", (int)(slash - path + (slash == path)), path) : ".";
  moec_status *s = import_data(map.data, map.size, dir, options, m);
  if (m->n_files) m->files[0].owned = true;
  if (!m->n_files) moec_unmap(&map);
  if (s) moec_module_destroy(m);
  else *out = m;
  return moec_context(s, "%s", path);
}
