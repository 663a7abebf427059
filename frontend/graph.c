/* The main graph: its names, inputs and outputs. */
#include <ctype.h>
#include <string.h>

#include "frontend/import_internal.h"

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

/* ---- graph inputs and outputs ------------------------------------------------------------- */

/* Any text may name a size. Words that are no expression ("batch size", "encoder/seq") are one symbol, spelled
 * with the characters a symbol may have. */
static moec_status *named_dim(moec_import *x, const char *text, moec_dim *out) {
  static const char words[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_ .:/";
  char name[101];
  moec_status *s = moec_dim_parse(x->m, text, out);
  size_t n = strlen(text);
  if (!s || n >= sizeof name || text[strspn(text, words)]) return s;
  moec_status_free(s);
  for (size_t i = 0; i < n; i++) name[i] = (char)(isalnum((unsigned char)text[i]) || text[i] == '.' ? text[i] : '_');
  name[n] = '\0';
  if (isdigit((unsigned char)name[0]) || name[0] == '.') name[0] = '_';
  *out = moec_dim_symbol(x->m, name);
  return out->i ? NULL : BAD("expected fewer sizes without a value");
}

static moec_status *input_dim(moec_import *x, const char *name, size_t axis, const Onnx__TensorShapeProto__Dimension *d,
                              moec_dim *out) {
  if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
    if (d->dim_value < 0)
      return BAD("input \"%s\": size of axis %zu is negative: %lld", name, axis, (long long)d->dim_value);
    *out = moec_dim_const(x->m, d->dim_value);
    return NULL;
  }
  if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && d->dim_param && *d->dim_param)
    return moec_context(named_dim(x, d->dim_param, out), "input \"%s\": axis %zu", name, axis);
  *out = moec_dim_fresh(x->m, "dim");
  return out->i ? NULL
                : BAD("input \"%s\": expected fewer sizes without a value, got %u and one more", name,
                      moec_dim_symbol_count(x->m));
}

/* Makes the symbols that the model names, so that none made up for a size without a name is one of them. */
static moec_status *note_symbols(moec_import *x, const Onnx__ValueInfoProto *v) {
  const Onnx__TypeProto *t = v->type;
  bool tensor = t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && t->tensor_type && t->tensor_type->shape;
  moec_dim unused;
  for (size_t i = 0; tensor && i < t->tensor_type->shape->n_dim; i++) {
    const Onnx__TensorShapeProto__Dimension *d = t->tensor_type->shape->dim[i];
    bool named = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && d->dim_param && *d->dim_param;
    if (named) MOEC_TRY(input_dim(x, v->name, i, d, &unused));
  }
  return NULL;
}

/* Sizes given on the command line take the place of their symbols. */
static moec_dim fix_dims(moec_import *x, moec_dim d) {
  if (!x->options->n_dims) return d;
  moec_dim *map = MOEC_NEW_ARRAY(x->m->arena, moec_dim, moec_dim_symbol_count(x->m) + 1);
  for (uint32_t i = 0; i < moec_dim_symbol_count(x->m); i++)
    for (size_t k = 0; k < x->options->n_dims; k++)
      if (strcmp(moec_dim_symbol_name(x->m, i), x->options->dims[k].name) == 0)
        map[i] = moec_dim_const(x->m, x->options->dims[k].value);
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
  if (shape->n_dim > MOEC_MAX_RANK)
    return BAD("input \"%s\": expected rank at most %d, got %zu", v->name, MOEC_MAX_RANK, shape->n_dim);
  moec_dim dims[MOEC_MAX_RANK];
  for (size_t i = 0; i < shape->n_dim; i++) {
    MOEC_TRY(input_dim(x, v->name, i, shape->dim[i], &dims[i]));
    dims[i] = fix_dims(x, dims[i]);
  }
  moec_entry *e = moec_scope_add(x->scope, x->m->arena, v->name);
  moec_type type = moec_type_make(x->m, dtype, (uint32_t)shape->n_dim, dims);
  if (!e) return BAD("the name \"%s\" is defined twice", v->name);
  MOEC_TRY(moec_context(moec_check_countable(x->m, type), "input \"%s\"", v->name));
  e->v = moec_add_input(x->b.g, v->name, type);
  return NULL;
}

/* Which initializers torch calls parameters. */
static void note_kinds(moec_import *x, size_t n, Onnx__ValueInfoProto **values) {
  for (size_t i = 0; i < n; i++) {
    moec_entry *e = moec_scope_find(x->scope, values[i]->name);
    moec_torch_kind kind = e && e->tensor ? moec_torch_kind_of(values[i]) : MOEC_TORCH_UNKNOWN;
    if (kind) e->torch = kind;
  }
}

moec_status *moec_add_initializers(moec_import *x, const Onnx__GraphProto *g) {
  for (size_t i = 0; i < g->n_initializer; i++) {
    const char *name = g->initializer[i]->name;
    if (!*name) return BAD("initializer %zu has no name", i);
    moec_entry *e = moec_scope_find(x->scope, name) ? NULL : moec_scope_add(x->scope, x->m->arena, name);
    if (!e) return BAD("the initializer name \"%s\" stands twice", name);
    e->tensor = g->initializer[i];
    e->initializer = g == x->model->graph ? i + 1 : 0;
  }
  return NULL;
}

static moec_status *add_names(moec_import *x, const Onnx__GraphProto *g) {
  MOEC_TRY(moec_add_initializers(x, g));
  for (size_t i = 0; i < g->n_input; i++)
    if (!moec_scope_find(x->scope, g->input[i]->name)) MOEC_TRY(note_symbols(x, g->input[i]));
  for (size_t i = 0; i < g->n_input; i++) {
    moec_entry *e = moec_scope_find(x->scope, g->input[i]->name);
    if (e && (!e->tensor || e->listed)) return BAD("the input name \"%s\" stands twice", g->input[i]->name);
    if (e) e->listed = true; /* an initializer listed as an input, as IR 3 wants */
    else MOEC_TRY(add_input(x, g->input[i]));
  }
  note_kinds(x, g->n_input, g->input);
  note_kinds(x, g->n_value_info, g->value_info);
  return moec_read_metadata(x);
}

moec_status *moec_value_of(moec_import *x, char *name, const char *what, moec_value *out) {
  static char nothing[1];
  char *outputs[1] = {nothing};
  if (!moec_scope_find(x->scope, name)) return BAD("%s: nobody defines it", what);
  Onnx__NodeProto reader = {
      .n_input = 1, .input = &name, .n_output = 1, .output = outputs, .op_type = nothing, .name = nothing,
          .domain = nothing};
  moec_onnx n = {.x = x, .p = &reader, .b = &x->b, .m = x->m, .what = what};
  *out = moec_onnx_in(&n, 0);
  return moec_builder_end(&x->b);
}

/* Sizes that an output declares are remarks of exporters, often with symbols of their own; its dtype is a promise. */
static moec_status *check_declared(moec_import *x, const Onnx__ValueInfoProto *output,
                                   moec_value v) {
  const Onnx__TypeProto *t = output->type;
  moec_dtype is = moec_ty(x->b.g, v).dtype;
  if (!t || t->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !t->tensor_type ||
      !t->tensor_type->elem_type)
    return NULL;
  moec_dtype want = moec_dtype_from_onnx(t->tensor_type->elem_type);
  if (want == is) return NULL;
  return BAD("output \"%s\": expected the declared %s, got %s", output->name,
             want ? moec_dtype_get(want)->text : "element type, which is unknown",
             moec_dtype_get(is)->text);
}

static moec_status *add_outputs(moec_import *x, const Onnx__GraphProto *g) {
  moec_scope seen;
  moec_scope_init(&seen, x->m->arena);
  if (g->n_output == 0) return BAD("the graph has no output");
  for (size_t i = 0; i < g->n_output; i++) {
    char *name = g->output[i]->name;
    moec_value v = {0};
    if (!moec_scope_add(&seen, x->m->arena, name)) return BAD("the output name \"%s\" stands twice", name);
    MOEC_TRY(moec_value_of(x, name, moec_arena_printf(x->m->arena, "output \"%s\"", name), &v));
    MOEC_TRY(check_declared(x, g->output[i], v));
    moec_add_output(x->b.g, name, v);
  }
  return NULL;
}

moec_status *moec_import_main(moec_import *x) {
  const Onnx__GraphProto *g = x->model->graph;
  moec_scope scope;
  moec_scope_init(&scope, x->m->arena);
  x->scope = &scope;
  x->n_opsets = x->model->n_opset_import, x->opsets = x->model->opset_import;
  x->b = moec_builder_on(moec_fn_get(x->m, moec_fn_add(x->m, "main")));
  MOEC_TRY(add_names(x, g));
  MOEC_TRY(moec_import_nodes(x, g->n_node, g->node));
  if (x->n_unsupported)
    return moec_error(MOEC_UNSUPPORTED, "%zu unsupported node%s: %s", x->n_unsupported,
                      x->n_unsupported == 1 ? "" : "s", moec_buf_str(&x->unsupported));
  MOEC_TRY(add_outputs(x, g));
  moec_compact_all(x->m);
  return moec_verify(x->m);
}
