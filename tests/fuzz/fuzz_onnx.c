/* Arbitrary bytes as a model: what imports verifies, and its text gives the same text again. Bytes alone seldom make
 * another graph, so every second mutation changes the message: operators, operands, attributes, sizes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "frontend/prescan.h"
#include "ir/ir.h"
#include "onnx.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* ---- mutation ------------------------------------------------------------------------------- */

typedef struct mutator {
  uint64_t state;
  moec_arena *arena;
  Onnx__GraphProto *g;
  char **names; /* of values */
  size_t n_names, cap_names;
} mutator;

static size_t pick(mutator *k, size_t n) {
  k->state = k->state * 6364136223846793005ull + 1442695040888963407ull;
  return n ? (size_t)(k->state >> 33) % n : 0;
}

static int64_t number(mutator *k) {
  static const int64_t some[] = {0,
                                 1,
                                 2,
                                 3,
                                 4,
                                 8,
                                 -1,
                                 -2,
                                 7,
                                 12,
                                 13,
                                 255,
                                 256,
                                 65536,
                                 INT32_MAX,
                                 INT32_MIN,
                                 INT64_MAX,
                                 INT64_MIN,
                                 INT64_MIN + 1,
                                 (int64_t)1 << 32,
                                 (int64_t)1 << 62};
  return some[pick(k, pick(k, 3) ? 10 : sizeof some / sizeof *some)];
}

static char *operator(mutator *k) {
  static const char *const names[] = {
#define ONNX(domain, name, ...) #name,
#include "frontend/onnx_ops.def"
#undef ONNX
  };
  return moec_arena_strdup(k->arena, names[pick(k, sizeof names / sizeof *names)]);
}

static char *value_name(mutator *k) {
  return k->n_names ? k->names[pick(k, k->n_names)] : moec_arena_strdup(k->arena, "x");
}

static void mutate_shape(mutator *k, Onnx__ValueInfoProto *v) {
  Onnx__TypeProto__Tensor *t = v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE
                                   ? v->type->tensor_type
                                   : NULL;
  if (!t) return;
  if (!pick(k, 3)) t->has_elem_type = 1, t->elem_type = (int32_t)pick(k, 17);
  if (!t->shape || !t->shape->n_dim) return;
  Onnx__TensorShapeProto__Dimension *d = t->shape->dim[pick(k, t->shape->n_dim)];
  if (!pick(k, 8)) t->shape->n_dim--;
  static const char *const texts[] = {"b", "s", "2*s", "s//2", "b*s", "s + 1", "Max(1, s)", ""};
  d->value_case = pick(k, 2) ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                             : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
  if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM)
    d->dim_param = moec_arena_strdup(k->arena, texts[pick(k, 8)]);
  else
    d->dim_value = number(k);
}

static void mutate_tensor(mutator *k, Onnx__TensorProto *t) {
  size_t at = pick(k, 4);
  if (at == 0 && t->n_dims)
    t->dims[pick(k, t->n_dims)] = number(k);
  else if (at == 1)
    t->data_type = (int32_t)pick(k, 17);
  else if (at == 2 && t->n_int64_data)
    t->int64_data[pick(k, t->n_int64_data)] = number(k);
  else if (t->has_raw_data && t->raw_data.len >= 8 && t->raw_data.len % 8 == 0)
    memcpy(t->raw_data.data + 8 * pick(k, t->raw_data.len / 8), &(int64_t){number(k)}, 8);
}

static void mutate_attribute(mutator *k, Onnx__AttributeProto *a) {
  if (a->has_i) a->i = number(k);
  if (a->has_f) a->f = (float)number(k);
  if (a->n_ints && pick(k, 4))
    a->ints[pick(k, a->n_ints)] = number(k);
  else if (a->n_ints)
    a->n_ints--;
  if (a->t) mutate_tensor(k, a->t);
}

static void mutate_node(mutator *k, Onnx__NodeProto *p) {
  switch (pick(k, 6)) {
    case 0: p->op_type = operator(k); break;
    case 1:
    case 2:
      if (p->n_input)
        p->input[pick(k, p->n_input)] =
            pick(k, 8) ? value_name(k) : moec_arena_strdup(k->arena, "");
      break;
    case 3:
      if (p->n_input) p->n_input -= 1;
      break;
    case 4: { /* one operand more */
      char **in = MOEC_NEW_ARRAY(k->arena, char *, p->n_input + 1);
      if (p->n_input) memcpy(in, p->input, p->n_input * sizeof *in);
      in[p->n_input++] = value_name(k), p->input = in;
      break;
    }
    default:
      if (p->n_attribute) mutate_attribute(k, p->attribute[pick(k, p->n_attribute)]);
  }
}

/* A copy of a node, with another operator and a result of its own, which the graph gives too. */
static void add_node(mutator *k) {
  Onnx__GraphProto *g = k->g;
  Onnx__NodeProto *copy = moec_arena_copy(k->arena, g->node[pick(k, g->n_node)], sizeof *copy);
  Onnx__NodeProto **nodes = MOEC_NEW_ARRAY(k->arena, Onnx__NodeProto *, g->n_node + 1);
  Onnx__ValueInfoProto *v = MOEC_NEW(k->arena, Onnx__ValueInfoProto),
                       **outs = MOEC_NEW_ARRAY(k->arena, Onnx__ValueInfoProto *, g->n_output + 1);
  char **out = MOEC_NEW(k->arena, char *),
       *name = moec_arena_printf(k->arena, "n%zu", pick(k, 1000));
  memcpy(nodes, g->node, g->n_node * sizeof *nodes);
  if (g->n_output) memcpy(outs, g->output, g->n_output * sizeof *outs);
  onnx__value_info_proto__init(v);
  *out = v->name = name;
  copy->op_type = operator(k), copy->n_output = 1, copy->output = out;
  if (copy->n_input)
    copy->input = moec_arena_copy(k->arena, copy->input, copy->n_input * sizeof *copy->input),
    copy->input[0] = value_name(k);
  nodes[g->n_node++] = copy, g->node = nodes;
  outs[g->n_output++] = v, g->output = outs;
}

static void mutate(mutator *k) {
  Onnx__GraphProto *g = k->g;
  for (size_t i = 0; i < g->n_input; i++)
    MOEC_PUSH(k->arena, k->names, k->n_names, k->cap_names,
              g->input[i]->name ? g->input[i]->name : moec_arena_strdup(k->arena, ""));
  for (size_t i = 0; i < g->n_initializer; i++)
    MOEC_PUSH(k->arena, k->names, k->n_names, k->cap_names,
              g->initializer[i]->name ? g->initializer[i]->name : moec_arena_strdup(k->arena, ""));
  for (size_t i = 0; i < g->n_node; i++)
    for (size_t j = 0; j < g->node[i]->n_output; j++)
      MOEC_PUSH(k->arena, k->names, k->n_names, k->cap_names, g->node[i]->output[j]);
  for (size_t times = 1 + pick(k, 4); times; times--) {
    size_t at = pick(k, 8);
    if (at == 0 && g->n_input)
      mutate_shape(k, g->input[pick(k, g->n_input)]);
    else if (at == 1 && g->n_initializer)
      mutate_tensor(k, g->initializer[pick(k, g->n_initializer)]);
    else if (at == 2 && g->n_node)
      add_node(k);
    else if (g->n_node)
      mutate_node(k, g->node[pick(k, g->n_node)]);
  }
}

static void *arena_alloc(void *arena, size_t size) {
  return moec_arena_alloc(arena, size ? size : 1);
}
static void arena_free(void *arena, void *p) { (void)arena, (void)p; }

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
  mutator k = {.state = seed, .arena = moec_arena_create()};
  ProtobufCAllocator allocator = {arena_alloc, arena_free, k.arena};
  moec_prescan scan;
  Onnx__ModelProto *m = NULL;
  if (!pick(&k, 4))
    m = NULL; /* bytes */
  else if (size) {
    moec_status *s = moec_prescan_wire(k.arena, &onnx__model_proto__descriptor, data, size, &scan);
    if (!s) m = onnx__model_proto__unpack(&allocator, size, data);
    moec_status_free(s);
  }
  if (m && m->graph) {
    k.g = m->graph;
    mutate(&k);
    size_t need = onnx__model_proto__get_packed_size(m);
    if (need <= max_size) size = onnx__model_proto__pack(m, data);
  } else {
    size = LLVMFuzzerMutate(data, size, max_size);
  }
  moec_arena_destroy(k.arena);
  return size;
}

/* ---- the target ------------------------------------------------------------------------------- */

static void must(moec_status *s) {
  if (!s) return;
  fprintf(stderr, "%s\n", moec_status_message(s));
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  moec_module *m, *again;
  if (size > 1 << 18) return 0;
  moec_status *s = moec_import_onnx_memory(data, size, &m);
  if (s) { /* one line that says something */
    if (!*moec_status_message(s) || strchr(moec_status_message(s), '\n') ||
        moec_status_exit(s) != 2) {
      fprintf(stderr, "%d: '%s'\n", moec_status_exit(s), moec_status_message(s));
      abort();
    }
    moec_status_free(s);
    return 0;
  }
  must(moec_verify(m));
  moec_buf first = {0}, second = {0};
  moec_print(&first, m);
  must(moec_parse(moec_buf_str(&first), &again));
  must(moec_verify(again));
  moec_print(&second, again);
  if (strcmp(moec_buf_str(&first), moec_buf_str(&second)) != 0) {
    fprintf(stderr, "%s\n---\n%s\n", moec_buf_str(&first), moec_buf_str(&second));
    abort();
  }
  moec_buf_fini(&first), moec_buf_fini(&second);
  moec_module_destroy(m), moec_module_destroy(again);
  return 0;
}
