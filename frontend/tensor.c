/* TensorProto: type, shape and bytes, checked. */
#include <string.h>

#include "frontend/import.h"

#define BAD(...) moec_error(MOEC_INVALID_MODEL, __VA_ARGS__)

static const char *tensor_name(const Onnx__TensorProto *t) { return t->name && *t->name ? t->name : "(no name)"; }

static moec_status *shape_of(const Onnx__TensorProto *t, moec_tensor *out) {
  out->dtype = moec_dtype_from_onnx(t->data_type);
  if (!out->dtype)
    return moec_error(MOEC_UNSUPPORTED, "tensor \"%s\": element type %d is unknown or not supported", tensor_name(t), t->data_type);
  if (t->n_dims > MOEC_MAX_RANK) return BAD("tensor \"%s\": expected rank at most %d, got %zu", tensor_name(t), MOEC_MAX_RANK, t->n_dims);
  out->rank = (uint32_t)t->n_dims;
  for (uint32_t i = 0; i < out->rank; i++) {
    out->dims[i] = t->dims[i];
    if (t->dims[i] < 0) return BAD("tensor \"%s\": size of axis %u is negative: %lld", tensor_name(t), i, (long long)t->dims[i]);
  }
  return NULL;
}

/* Elements given in one of the typed fields, as an array of int64 or double. */
static size_t typed_count(const Onnx__TensorProto *t, moec_dtype dtype) {
  switch (dtype) {
    case MOEC_F32: return t->n_float_data;
    case MOEC_F64: return t->n_double_data;
    case MOEC_I64: return t->n_int64_data;
    case MOEC_U64:
    case MOEC_U32: return t->n_uint64_data;
    default: return t->n_int32_data;
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

moec_status *moec_onnx_tensor(moec_module *m, const Onnx__TensorProto *t, moec_tensor *out) {
  size_t bytes;
  *out = (moec_tensor){0};
  MOEC_TRY(shape_of(t, out));
  MOEC_TRY(moec_context(moec_shape_bytes(out->dtype, out->rank, out->dims, &bytes), "tensor \"%s\"", tensor_name(t)));
  size_t count = bytes / moec_dtype_get(out->dtype)->bytes, typed = typed_count(t, out->dtype);
  if (t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
    return BAD("tensor \"%s\": external data is for initializers of the main graph only", tensor_name(t));
  if (t->has_raw_data && t->raw_data.len) {
    if (typed || t->n_string_data) return BAD("tensor \"%s\": expected one data field, got several", tensor_name(t));
    if (t->raw_data.len != bytes)
      return BAD("tensor \"%s\": expected %zu bytes of raw data, got %zu", tensor_name(t), bytes, t->raw_data.len);
    out->data = moec_arena_copy(m->arena, t->raw_data.data, bytes); /* aligned, and ours */
    return NULL;
  }
  if (typed != count) return BAD("tensor \"%s\": expected %zu elements, got %zu", tensor_name(t), count, typed);
  out->data = moec_arena_alloc(m->arena, bytes + 1);
  for (size_t i = 0; i < count; i++) typed_store(t, out->dtype, out->data, i);
  return NULL;
}

moec_value moec_onnx_const(moec_onnx *n, const Onnx__TensorProto *t) {
  moec_tensor x;
  moec_dim dims[MOEC_MAX_RANK];
  moec_b_fail(n->b, moec_onnx_tensor(n->m, t, &x));
  if (n->b->error) return (moec_value){0};
  for (uint32_t i = 0; i < x.rank; i++) dims[i] = moec_dim_const(n->m, x.dims[i]);
  return moec_b_const(n->b, moec_type_make(n->m, x.dtype, x.rank, dims), x.data, moec_tensor_bytes(&x));
}
