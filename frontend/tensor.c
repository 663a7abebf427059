/* TensorProto: type, shape and bytes, checked. */
#include <string.h>

#include "base/fresh.h"
#include "frontend/import_internal.h"

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

static moec_status *shape_of(const Onnx__TensorProto *t, moec_tensor *out) {
  out->dtype = moec_dtype_from_onnx(t->data_type);
  if (!out->dtype) return moec_error(MOEC_UNSUPPORTED, "element type %d is unknown or not supported", t->data_type);
  if (t->n_dims > MOEC_MAX_RANK) return BAD("expected rank at most %d, got %zu", MOEC_MAX_RANK, t->n_dims);
  out->rank = (uint32_t)t->n_dims;
  for (uint32_t i = 0; i < out->rank; i++) {
    out->dims[i] = t->dims[i];
    if (t->dims[i] < 0) return BAD("size of axis %u is negative: %lld", i, (long long)t->dims[i]);
  }
  return NULL;
}

/* ---- typed fields ------------------------------------------------------------------------- */

typedef enum field { FLOAT_DATA, INT32_DATA, INT64_DATA, DOUBLE_DATA, UINT64_DATA, STRING_DATA, N_FIELDS } field;
static const char *const field_names[N_FIELDS] = {"float_data",  "int32_data",  "int64_data",
                                                  "double_data", "uint64_data", "string_data"};

static field field_of(moec_dtype t) {
  switch (t) {
    case MOEC_F32: return FLOAT_DATA;
    case MOEC_F64: return DOUBLE_DATA;
    case MOEC_I64: return INT64_DATA;
    case MOEC_U64:
    case MOEC_U32: return UINT64_DATA;
    default: return INT32_DATA;
  }
}

static void typed_store(const Onnx__TensorProto *t, moec_dtype dtype, void *out, size_t i) {
  uint16_t bits;
  switch (dtype) {
    case MOEC_F32: moec_store_f64(dtype, out, i, (double)t->float_data[i]); break;
    case MOEC_F64: moec_store_f64(dtype, out, i, t->double_data[i]); break;
    case MOEC_I64: moec_store_i64(dtype, out, i, t->int64_data[i]); break;
    case MOEC_U64:
    case MOEC_U32: moec_store_i64(dtype, out, i, (int64_t)t->uint64_data[i]); break;
    case MOEC_F16:
    case MOEC_BF16: /* the bit pattern in the low half */
      bits = (uint16_t)t->int32_data[i];
      memcpy((char *)out + 2 * i, &bits, 2);
      break;
    default: moec_store_i64(dtype, out, i, t->int32_data[i]); break;
  }
}

/* Which of the places that may hold data are used: one, or none where there are no elements. */
static moec_status *check_fields(const Onnx__TensorProto *t, moec_dtype dtype, bool external) {
  const size_t counts[N_FIELDS] = {t->n_float_data,  t->n_int32_data,  t->n_int64_data,
                                   t->n_double_data, t->n_uint64_data, t->n_string_data};
  field expected = field_of(dtype);
  bool taken = external || (t->has_raw_data && t->raw_data.len);
  for (int i = 0; i < N_FIELDS; i++) {
    if (!counts[i]) continue;
    if (taken) return BAD("expected one data field, got several");
    if (i != (int)expected)
      return BAD("expected %s elements in %s, got %s", moec_dtype_get(dtype)->text, field_names[expected],
                 field_names[i]);
    taken = true;
  }
  return external && t->has_raw_data && t->raw_data.len ? BAD("raw data and external data") : NULL;
}

/* ---- bytes -------------------------------------------------------------------------------- */

static moec_status *check_kind(const Onnx__TensorProto *t, bool *external) {
  *external = t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
  if (t->segment) return moec_error(MOEC_UNSUPPORTED, "a segment of a tensor");
  if (t->has_data_location && !*external && t->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT)
    return BAD("unknown data_location %d", (int)t->data_location);
  return NULL;
}

/* Bools are 0 or 1 inside moec, whatever a file says. */
static const void *clean_bools(moec_module *m, const void *data, size_t n) {
  uint8_t *out = moec_arena_copy(m->arena, data, n);
  for (size_t i = 0; i < n; i++) out[i] = out[i] != 0;
  return out;
}

static moec_status *read_tensor(moec_import *x, const Onnx__TensorProto *t, moec_tensor *out, moec_place *place) {
  size_t bytes;
  bool external;
  MOEC_TRY(shape_of(t, out));
  MOEC_TRY(moec_shape_bytes(out->dtype, out->rank, out->dims, &bytes));
  MOEC_TRY(check_kind(t, &external));
  MOEC_TRY(check_fields(t, out->dtype, external));
  const field typed = field_of(out->dtype);
  const size_t counts[N_FIELDS] = {t->n_float_data,  t->n_int32_data,  t->n_int64_data,
                                   t->n_double_data, t->n_uint64_data, 0};
  size_t count = bytes / moec_dtype_get(out->dtype)->bytes;
  const void *data;
  if (external) {
    MOEC_TRY(moec_external_data(x, t, bytes, &place->file, &place->offset));
    data = x->m->files[place->file].map.data; /* NULL: there is no file */
    data = bytes && data ? (const uint8_t *)data + place->offset : (const uint8_t *)"";
  } else if (t->has_raw_data && t->raw_data.len) {
    if (t->raw_data.len != bytes) return BAD("expected %zu bytes of raw data, got %zu", bytes, t->raw_data.len);
    data = t->raw_data.data;
  } else {
    if (counts[typed] != count) return BAD("expected %zu elements, got %zu", count, counts[typed]);
    data = moec_arena_alloc(x->m->arena, bytes + 1);
    for (size_t i = 0; i < count; i++) typed_store(t, out->dtype, (void *)(uintptr_t)data, i);
  }
  if (out->dtype == MOEC_BOOL) data = clean_bools(x->m, data, bytes);
  out->data = (void *)(uintptr_t)data; /* read only */
  return NULL;
}

moec_status *moec_onnx_tensor(moec_import *x, const Onnx__TensorProto *t, moec_tensor *out, moec_place *place) {
  moec_place unused;
  *out = (moec_tensor){0};
  bool is_read = !place; /* and not only referred to */
  if (is_read) place = &unused;
  *place = (moec_place){UINT32_MAX, 0};
  moec_status *s = read_tensor(x, t, out, place);
  if (!s && is_read && moec_is_made(x->m, place))
    s = moec_error(MOEC_UNSUPPORTED, "expected the weights of a layer where they are made from a seed, got a constant");
  return moec_context(s, "tensor \"%s\"", t->name && *t->name ? t->name : "(no name)");
}

bool moec_is_made(const moec_module *m, const moec_place *at) {
  return at->file != UINT32_MAX && moec_fresh_is(moec_sym_str(m, m->files[at->file].name));
}

moec_value moec_onnx_const(moec_onnx *n, const Onnx__TensorProto *t) {
  moec_tensor x;
  moec_dim dims[MOEC_MAX_RANK];
  moec_b_fail(n->b, moec_onnx_tensor(n->x, t, &x, NULL));
  if (n->b->error) return (moec_value){0};
  for (uint32_t i = 0; i < x.rank; i++) dims[i] = moec_dim_const(n->m, x.dims[i]);
  return moec_b_const(n->b, moec_type_make(n->m, x.dtype, x.rank, dims), x.data, moec_tensor_bytes(&x));
}
