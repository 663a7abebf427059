/* ONNX models of one node as text, imported and run in the interpreter:
 *
 *     Softmax@11(f32[1,2,2] 0 0 0 0) axis=1 -> f32[1,2,2] .25 .25 .25 .25
 *     ms.FastGelu(f32[1] 0; f32[1] 0) -> f32[1] 0
 *     ReduceSum(f32[2] 1 2; =i64[1] 0) keepdims=0 -> f32[] 3
 *     Gelu(f32[1] 0) approximate='exp' ! expected none or tanh
 *
 * '@' names the opset, "ms." the domain com.microsoft. Operands and results are separated by ';', '=' makes an
 * initializer, '_' is absent. Attributes: 1 an integer, 1.0 a float, [1,2] integers, 'x' a string. '!' expects an
 * error whose message holds the text. Every case runs twice, with known and with symbolic input sizes; '#' before
 * it: once, since it needs known ones. */
#ifndef MOEC_TESTS_ONNXCASE_H
#define MOEC_TESTS_ONNXCASE_H

#include "frontend/frontend.h"
#include "onnx.pb-c.h"
#include "tests/unit/opcase.h"

enum { ONNXCASE_MAX = 12, ONNXCASE_OPSET = 28 };

typedef struct onnxcase {
  const char *text;
  moec_arena *arena;
  char name[64];
  bool static_only, ms, constant[ONNXCASE_MAX];
  int64_t opset;
  uint32_t n_in, n_out, n_attrs;
  moec_tensor in[ONNXCASE_MAX], want[ONNXCASE_MAX]; /* dtype NONE: absent */
  Onnx__AttributeProto *attrs[ONNXCASE_MAX];
  const char *error;
} onnxcase;

/* ---- reading ------------------------------------------------------------------------------ */

static inline void onnxcase_tensors(const char **p, char end, moec_tensor *out, bool *constant,
                                    uint32_t *n) {
  for (*p = opcase_blank(*p); **p && **p != end; *p = opcase_blank(*p + (**p == ';'))) {
    ck_assert_uint_lt(*n, ONNXCASE_MAX);
    if (**p == '=') constant[*n] = true, ++*p;
    if (**p == '_')
      *p = opcase_blank(*p + 1);
    else
      opcase_tensor(p, &out[*n]);
    ++*n;
  }
}

static inline void onnxcase_attr(onnxcase *c, const char **p) {
  char name[64];
  int64_t list[32];
  const char *at = strchr(*p, '=');
  ck_assert_ptr_nonnull(at);
  snprintf(name, sizeof name, "%.*s", (int)(at++ - *p), *p);
  size_t n = *at == '\'' ? strcspn(at + 1, "'") + 2 : strcspn(at, " ");
  char *value = moec_arena_printf(c->arena, "%.*s", (int)n, at);
  Onnx__AttributeProto *a = c->attrs[c->n_attrs++] = MOEC_NEW(c->arena, Onnx__AttributeProto);
  onnx__attribute_proto__init(a);
  a->name = moec_arena_strdup(c->arena, name), a->has_type = 1;
  if (*value == '\'') {
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, a->has_s = 1;
    a->s = (ProtobufCBinaryData){n - 2, (uint8_t *)value + 1};
  } else if (*value == '[') {
    value[n - 1] = 0;
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, a->n_ints = opcase_list(value + 1, list);
    a->ints = moec_arena_copy(c->arena, list, sizeof list);
  } else if (strpbrk(value, ".in")) {
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, a->has_f = 1,
    a->f = strtof(value, NULL);
  } else {
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, a->has_i = 1,
    a->i = strtoll(value, NULL, 10);
  }
  *p = opcase_blank(at + n);
}

static inline void onnxcase_parse(onnxcase *c) {
  const char *p = c->text;
  bool none[ONNXCASE_MAX];
  if ((c->static_only = *p == '#')) p++;
  if ((c->ms = strncmp(p, "ms.", 3) == 0)) p += 3;
  size_t n = strcspn(p, "@(");
  snprintf(c->name, sizeof c->name, "%.*s", (int)n, p);
  p += n;
  c->opset = c->ms ? 1 : ONNXCASE_OPSET;
  if (*p == '@') c->opset = strtoll(p + 1, (char **)&p, 10);
  ck_assert_int_eq(*p++, '(');
  onnxcase_tensors(&p, ')', c->in, c->constant, &c->n_in);
  p = opcase_blank(p + 1);
  while (*p && *p != '!' && *p != '-') onnxcase_attr(c, &p);
  if (*p == '!') {
    c->error = opcase_blank(p + 1), c->n_out = 1, c->want[0].dtype = MOEC_F32;
    return;
  }
  p += 2;
  onnxcase_tensors(&p, '\n', c->want, none, &c->n_out);
}

/* ---- the model ---------------------------------------------------------------------------- */

static inline Onnx__TensorProto *onnxcase_initializer(onnxcase *c, const moec_tensor *t,
                                                      char *name) {
  Onnx__TensorProto *p = MOEC_NEW(c->arena, Onnx__TensorProto);
  onnx__tensor_proto__init(p);
  p->name = name, p->has_data_type = 1, p->data_type = moec_dtype_get(t->dtype)->onnx;
  p->n_dims = t->rank, p->dims = moec_arena_copy(c->arena, t->dims, sizeof t->dims);
  p->has_raw_data = 1, p->raw_data = (ProtobufCBinaryData){moec_tensor_bytes(t), t->data};
  return p;
}

/* Axes of equal size get the same symbol; 1 stays 1, since that is what broadcasts. */
static inline Onnx__TensorShapeProto *onnxcase_shape(onnxcase *c, const moec_tensor *t,
                                                     bool symbolic) {
  Onnx__TensorShapeProto *shape = MOEC_NEW(c->arena, Onnx__TensorShapeProto);
  onnx__tensor_shape_proto__init(shape);
  shape->n_dim = t->rank,
  shape->dim = MOEC_NEW_ARRAY(c->arena, Onnx__TensorShapeProto__Dimension *, t->rank + 1);
  for (uint32_t i = 0; i < t->rank; i++) {
    Onnx__TensorShapeProto__Dimension *d = shape->dim[i] =
        MOEC_NEW(c->arena, Onnx__TensorShapeProto__Dimension);
    onnx__tensor_shape_proto__dimension__init(d);
    bool named = symbolic && t->dims[i] != 1;
    d->value_case = named ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                          : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    if (named)
      d->dim_param = moec_arena_printf(c->arena, "n%lld", (long long)t->dims[i]);
    else
      d->dim_value = t->dims[i];
  }
  return shape;
}

static inline Onnx__ValueInfoProto *onnxcase_value(onnxcase *c, const moec_tensor *t, char *name,
                                                   Onnx__TensorShapeProto *shape) {
  Onnx__ValueInfoProto *v = MOEC_NEW(c->arena, Onnx__ValueInfoProto);
  Onnx__TypeProto *type = MOEC_NEW(c->arena, Onnx__TypeProto);
  Onnx__TypeProto__Tensor *tensor = MOEC_NEW(c->arena, Onnx__TypeProto__Tensor);
  onnx__value_info_proto__init(v), onnx__type_proto__init(type),
      onnx__type_proto__tensor__init(tensor);
  tensor->has_elem_type = 1, tensor->elem_type = moec_dtype_get(t->dtype)->onnx,
  tensor->shape = shape;
  type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE, type->tensor_type = tensor;
  v->name = name, v->type = type;
  return v;
}

/* The node and what it reads and writes. */
static inline void onnxcase_fill(onnxcase *c, bool symbolic, Onnx__GraphProto *g,
                                 Onnx__NodeProto *node) {
  moec_arena *a = c->arena;
  node->op_type = c->name, node->domain = c->ms ? "com.microsoft" : "", node->name = "node";
  node->n_attribute = c->n_attrs, node->attribute = c->attrs;
  node->n_input = c->n_in, node->input = MOEC_NEW_ARRAY(a, char *, ONNXCASE_MAX);
  node->n_output = c->n_out, node->output = MOEC_NEW_ARRAY(a, char *, ONNXCASE_MAX);
  g->input = MOEC_NEW_ARRAY(a, Onnx__ValueInfoProto *, ONNXCASE_MAX);
  g->output = MOEC_NEW_ARRAY(a, Onnx__ValueInfoProto *, ONNXCASE_MAX);
  g->initializer = MOEC_NEW_ARRAY(a, Onnx__TensorProto *, ONNXCASE_MAX);
  for (uint32_t i = 0; i < c->n_in; i++) {
    moec_tensor *t = &c->in[i];
    node->input[i] = t->dtype ? moec_arena_printf(a, "x%u", i) : "";
    if (t->dtype && c->constant[i])
      g->initializer[g->n_initializer++] = onnxcase_initializer(c, t, node->input[i]);
    else if (t->dtype)
      g->input[g->n_input++] = onnxcase_value(c, t, node->input[i], onnxcase_shape(c, t, symbolic));
  }
  for (uint32_t i = 0; i < c->n_out; i++) {
    node->output[i] = c->want[i].dtype ? moec_arena_printf(a, "y%u", i) : "";
    if (c->want[i].dtype)
      g->output[g->n_output++] = onnxcase_value(c, &c->want[i], node->output[i], NULL);
  }
}

/* The model's bytes, in the arena. */
static inline void *onnxcase_model(onnxcase *c, bool symbolic, size_t *size) {
  Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
  Onnx__GraphProto g = ONNX__GRAPH_PROTO__INIT;
  Onnx__NodeProto node = ONNX__NODE_PROTO__INIT, *nodes[1] = {&node};
  Onnx__OperatorSetIdProto sets[2] = {ONNX__OPERATOR_SET_ID_PROTO__INIT,
                                      ONNX__OPERATOR_SET_ID_PROTO__INIT};
  Onnx__OperatorSetIdProto *set_list[2] = {&sets[0], &sets[1]};
  sets[0].domain = "", sets[1].domain = "com.microsoft";
  sets[0].has_version = sets[1].has_version = 1;
  sets[0].version = c->ms ? 17 : c->opset, sets[1].version = 1;
  model.has_ir_version = 1, model.ir_version = 10;
  model.n_opset_import = 2, model.opset_import = set_list;
  g.name = "case", g.n_node = 1, g.node = nodes;
  onnxcase_fill(c, symbolic, &g, &node);
  model.graph = &g;
  *size = onnx__model_proto__get_packed_size(&model);
  uint8_t *bytes = moec_arena_alloc(c->arena, *size + 1);
  onnx__model_proto__pack(&model, bytes);
  return bytes;
}

/* ---- running ------------------------------------------------------------------------------ */

static inline moec_status *onnxcase_run_model(onnxcase *c, bool symbolic, moec_tensor *got) {
  moec_tensor in[ONNXCASE_MAX];
  moec_module *m = NULL;
  size_t size, n_in = 0, n_out = 0;
  const void *bytes = onnxcase_model(c, symbolic, &size);
  for (uint32_t i = 0; i < c->n_in; i++)
    if (c->in[i].dtype && !c->constant[i]) in[n_in++] = c->in[i];
  for (uint32_t i = 0; i < c->n_out; i++) n_out += c->want[i].dtype != 0;
  moec_status *s = moec_import_onnx_memory(bytes, size, &m);
  if (!s) s = moec_verify(m);
  if (!s) s = moec_interp_run(m, (moec_fn){1}, in, n_in, got, n_out, NULL);
  moec_module_destroy(m);
  return s;
}

static inline void onnxcase_run_once(onnxcase *c, bool symbolic) {
  moec_tensor got[ONNXCASE_MAX] = {{0}};
  moec_status *s = onnxcase_run_model(c, symbolic, got);
  const char *how = symbolic ? "symbolic sizes" : "known sizes", *said = moec_status_message(s);
  if (c->error && (!s || !strstr(said, c->error)))
    ck_abort_msg("%s (%s): got '%s'", c->text, how, said);
  if (!c->error && s) ck_abort_msg("%s (%s): %s", c->text, how, said);
  for (uint32_t i = 0, k = 0; i < c->n_out && !c->error; i++) {
    if (!c->want[i].dtype) continue;
    opcase_compare(c->text, i, &got[k], &c->want[i], 2e-6);
    moec_tensor_fini(&got[k++]);
  }
  moec_status_free(s);
}

static inline void onnxcase_run(const char *text) {
  onnxcase c = {.text = text, .arena = moec_arena_create()};
  onnxcase_parse(&c);
  onnxcase_run_once(&c, false);
  if (!c.static_only) onnxcase_run_once(&c, true);
  for (uint32_t i = 0; i < ONNXCASE_MAX; i++)
    moec_tensor_fini(&c.in[i]), moec_tensor_fini(&c.want[i]);
  moec_arena_destroy(c.arena);
}

/* A test of a list of cases. */
#define ONNXCASE_TEST(name, ...)                                                      \
  START_TEST(name) {                                                                  \
    static const char *const cases[] = {__VA_ARGS__};                                 \
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) onnxcase_run(cases[i]); \
  }                                                                                   \
  END_TEST

#endif
