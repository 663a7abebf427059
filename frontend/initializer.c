/* Initializers: float tensors become parameter records that point into the file; the rest constants. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/import_internal.h"

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

/* ---- external data ------------------------------------------------------------------------ */

static moec_status *read_u64(const char *name, const char *key, const char *text, uint64_t *out) {
  char *end;
  errno = 0;
  if (*text < '0' || *text > '9') return BAD("tensor \"%s\": %s: expected a number, got \"%s\"", name, key, text);
  unsigned long long v = strtoull(text, &end, 10);
  if (errno || *end) return BAD("tensor \"%s\": %s: expected a number of 64 bits, got \"%s\"", name, key, text);
  *out = v;
  return NULL;
}

/* The mapping of file |location|, opened once. */
static moec_status *find_file(moec_import *x, const char *location, uint32_t *out) {
  moec_module *m = x->m;
  moec_sym name = moec_sym_make(m, location);
  for (size_t i = 0; i < m->n_files; i++)
    if (m->files[i].name.i == name.i && name.i) {
      *out = (uint32_t)i;
      return NULL;
    }
  moec_file f = {.name = name, .owned = true};
  if (!x->dir) return BAD("external data in \"%s\": a model in memory has no folder", location);
  MOEC_TRY(moec_map_inner_file(x->dir, location, &f.map));
  *out = (uint32_t)m->n_files;
  MOEC_PUSH(m->arena, m->files, m->n_files, m->cap_files, f);
  return NULL;
}

static moec_status *external_piece(moec_import *x, const Onnx__TensorProto *t, size_t bytes, moec_piece *pc) {
  const char *location = NULL;
  uint64_t offset = 0, length = bytes;
  for (size_t i = 0; i < t->n_external_data; i++) {
    const char *key = t->external_data[i]->key ? t->external_data[i]->key : "";
    const char *value = t->external_data[i]->value ? t->external_data[i]->value : "";
    if (strcmp(key, "location") == 0) location = value;
    if (strcmp(key, "offset") == 0) MOEC_TRY(read_u64(t->name, key, value, &offset));
    if (strcmp(key, "length") == 0) MOEC_TRY(read_u64(t->name, key, value, &length));
  }
  if (!location || !*location) return BAD("tensor \"%s\": external data without a location", t->name);
  if (length != bytes)
    return BAD("tensor \"%s\": expected %zu bytes of external data, got %llu", t->name, bytes, (unsigned long long)length);
  MOEC_TRY(moec_context(find_file(x, location, &pc->file), "tensor \"%s\"", t->name));
  uint64_t size = x->m->files[pc->file].map.size;
  if (offset > size || bytes > size - offset)
    return BAD("tensor \"%s\": expected %zu bytes at offset %llu of \"%s\", which has %llu", t->name, bytes,
               (unsigned long long)offset, location, (unsigned long long)size);
  pc->offset = offset;
  return NULL;
}

static bool is_external(const Onnx__TensorProto *t) {
  return t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* ---- pieces ------------------------------------------------------------------------------- */

/* The whole tensor as one piece; bytes stay where they are when the file holds them raw. */
static moec_status *whole_piece(moec_import *x, const moec_entry *e, moec_piece *pc, moec_tensor *shape) {
  const Onnx__TensorProto *t = e->tensor;
  size_t bytes;
  *pc = (moec_piece){.file = UINT32_MAX, .name = moec_sym_make(x->m, t->name)};
  if (is_external(t)) {
    *shape = (moec_tensor){.dtype = moec_dtype_from_onnx(t->data_type), .rank = (uint32_t)t->n_dims};
    if (!shape->dtype) return moec_error(MOEC_UNSUPPORTED, "tensor \"%s\": element type %d is not supported", t->name, t->data_type);
    if (t->n_dims > MOEC_MAX_RANK) return BAD("tensor \"%s\": expected rank at most %d, got %zu", t->name, MOEC_MAX_RANK, t->n_dims);
    for (uint32_t i = 0; i < shape->rank; i++) shape->dims[i] = t->dims[i];
    MOEC_TRY(moec_context(moec_shape_bytes(shape->dtype, shape->rank, shape->dims, &bytes), "tensor \"%s\"", t->name));
    MOEC_TRY(external_piece(x, t, bytes, pc));
  } else {
    uint64_t raw = e->initializer && e->initializer <= x->scan.n_initializers ? x->scan.raw_offset[e->initializer - 1] : 0;
    MOEC_TRY(moec_onnx_tensor(x->m, t, shape));
    pc->inline_bytes = shape->data;
    if (t->has_raw_data && t->raw_data.len && raw) pc->file = x->model_file, pc->offset = raw, pc->inline_bytes = NULL;
  }
  pc->dtype = shape->dtype;
  pc->rank = shape->rank;
  for (uint32_t i = 0; i < shape->rank; i++) pc->shape[i] = shape->dims[i], pc->perm[i] = i;
  return NULL;
}

static moec_type type_of(moec_module *m, const moec_tensor *t) {
  moec_dim dims[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t->rank; i++) dims[i] = moec_dim_const(m, t->dims[i]);
  return moec_type_make(m, t->dtype, t->rank, dims);
}

static moec_status *make_param(moec_import *x, moec_entry *e, moec_piece *pc, const moec_tensor *shape) {
  moec_param_info p = {.name = pc->name, .type = type_of(x->m, shape), .trainable = true, .shard_axis = -1};
  p.storage = p.compute = shape->dtype;
  p.n_pieces = 1, p.pieces = pc;
  moec_attrs_PARAM a = {.param = moec_param_add(x->m, &p)};
  x->b.g->loc = p.name;
  e->v = moec_b_op(&x->b, MOEC_OP_PARAM, &a, 0, NULL, 1);
  return moec_builder_end(&x->b);
}

moec_status *moec_make_initializer(moec_import *x, moec_entry *e) {
  moec_piece pc;
  moec_tensor shape;
  if (e->v.i || !e->tensor) return NULL;
  MOEC_TRY(whole_piece(x, e, &pc, &shape));
  if (moec_dtype_is_float(shape.dtype) && shape.rank > 0 && moec_tensor_numel(&shape) > 1) return make_param(x, e, &pc, &shape);
  const void *bytes = pc.file == UINT32_MAX ? pc.inline_bytes : x->m->files[pc.file].map.data + pc.offset;
  e->v = moec_b_const(&x->b, type_of(x->m, &shape), bytes, moec_tensor_bytes(&shape));
  return moec_builder_end(&x->b);
}

moec_status *moec_initializer_content(moec_import *x, moec_entry *e) {
  moec_tensor t;
  moec_dtype dtype = moec_dtype_from_onnx(e->tensor->data_type);
  if (e->known || moec_dtype_is_float(dtype) || !dtype || e->tensor->n_dims > 1 || is_external(e->tensor)) return NULL;
  if (e->tensor->n_dims == 1 && (e->tensor->dims[0] < 0 || e->tensor->dims[0] > 4096)) return NULL;
  MOEC_TRY(moec_onnx_tensor(x->m, e->tensor, &t));
  uint32_t n = (uint32_t)moec_tensor_numel(&t);
  moec_dim *content = MOEC_NEW_ARRAY(x->m->arena, moec_dim, n + 1);
  for (uint32_t i = 0; i < n; i++) content[i] = moec_dim_const(x->m, moec_load_i64(t.dtype, t.data, i));
  e->known = true, e->rank = t.rank, e->n = n, e->content = content, e->dtype = t.dtype;
  return NULL;
}
