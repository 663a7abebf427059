/* Initializers: float tensors become parameter records that point into the file; the rest constants. */
#include <string.h>

#include "frontend/import_internal.h"

/* The whole tensor as one piece; bytes stay where they are when a file holds them raw. */
static moec_status *whole_piece(moec_import *x, const moec_entry *e, moec_piece *pc, moec_tensor *t) {
  moec_place at;
  MOEC_TRY(moec_onnx_tensor(x, e->tensor, t, &at));
  *pc = (moec_piece){.file = at.file, .offset = at.offset, .name = moec_sym_make(x->m, e->tensor->name)};
  bool raw = e->tensor->has_raw_data && e->tensor->raw_data.len;
  uint64_t offset =
      e->initializer && e->initializer <= x->scan.n_initializers ? x->scan.raw_offset[e->initializer - 1] : 0;
  if (raw && offset) /* protobuf's copy goes away after the import */
    pc->file = x->model_file, pc->offset = offset;
  else if (pc->file == UINT32_MAX)
    pc->inline_bytes = raw ? moec_arena_copy(x->m->arena, t->data, moec_tensor_bytes(t)) : t->data;
  pc->dtype = t->dtype;
  pc->rank = t->rank;
  for (uint32_t i = 0; i < t->rank; i++) pc->shape[i] = t->dims[i], pc->perm[i] = i;
  return NULL;
}

static moec_type type_of(moec_module *m, const moec_tensor *t) {
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t->rank; i++) dims[i] = moec_dim_const(m, t->dims[i]);
  return moec_type_make(m, t->dtype, t->rank, dims);
}

/* Trainable: what torch calls a parameter, or without its word everything; passes know better what is a table. */
static moec_status *make_param(moec_import *x, moec_entry *e) {
  moec_piece pc;
  moec_tensor t;
  MOEC_TRY(whole_piece(x, e, &pc, &t));
  moec_param_info p = {.name = pc.name, .type = type_of(x->m, &t), .trainable = e->torch != MOEC_TORCH_OTHER,
      .shard_axis = -1};
  p.storage = p.compute = t.dtype;
  p.n_pieces = 1, p.pieces = &pc;
  moec_attrs_PARAM a = {.param = moec_param_add(x->m, &p)};
  x->b.g->loc = p.name;
  e->v = moec_b_op(&x->b, MOEC_OP_PARAM, &a, 0, NULL, 1);
  return moec_builder_end(&x->b);
}

moec_status *moec_make_initializer(moec_import *x, moec_entry *e) {
  moec_tensor t;
  moec_place at;
  if (e->v.i || !e->tensor) return NULL;
  MOEC_TRY(moec_onnx_tensor(x, e->tensor, &t, &at));
  bool many = t.rank > 0 && moec_tensor_numel(&t) > 1;
  /* initializers of inner graphs are constants: a parameter's name must be the only one */
  if (e->initializer && moec_dtype_is_float(t.dtype) && (many || e->torch == MOEC_TORCH_PARAMETER))
    return make_param(x, e);
  if (moec_is_made(x->m, &at)) MOEC_TRY(moec_onnx_tensor(x, e->tensor, &t, NULL)); /* says why it cannot be */
  e->v = moec_b_const(&x->b, type_of(x->m, &t), t.data, moec_tensor_bytes(&t));
  return moec_builder_end(&x->b);
}

moec_status *moec_initializer_content(moec_import *x, moec_entry *e) {
  enum { MOST = 4096 };
  moec_tensor t;
  moec_dtype dtype = moec_dtype_from_onnx(e->tensor->data_type);
  if (e->known || moec_dtype_is_float(dtype) || !dtype || e->tensor->n_dims > 1) return NULL;
  if (e->tensor->n_dims == 1 && (e->tensor->dims[0] < 0 || e->tensor->dims[0] > MOST)) return NULL;
  MOEC_TRY(moec_onnx_tensor(x, e->tensor, &t, NULL));
  uint32_t n = (uint32_t)moec_tensor_numel(&t);
  moec_dim *content = MOEC_NEW_ARRAY(x->m->arena, moec_dim, n + 1);
  for (uint32_t i = 0; i < n; i++) content[i] = moec_dim_const(x->m, moec_load_i64(t.dtype, t.data, i));
  e->known = true, e->rank = t.rank, e->n = n, e->content = content, e->dtype = t.dtype;
  return NULL;
}
