/* Movement: every op is a strided copy of 8-byte elements, whatever they hold. */
#include <string.h>

#include "base/size.h"
#include "ir/interp_internal.h"

void moec_dense_strides(uint32_t rank, const int64_t *dims, int64_t *strides) {
  int64_t n = 1;
  for (uint32_t i = rank; i-- > 0; n *= dims[i]) strides[i] = n;
}

bool moec_next_index(uint32_t rank, const int64_t *dims, int64_t *index) {
  for (uint32_t i = rank; i-- > 0;) {
    if (++index[i] < dims[i]) return true;
    index[i] = 0;
  }
  return false;
}

/* Elements move by memcpy, which carries doubles and integers alike. */
static void copy_run(int64_t n, char *dst, int64_t dst_stride, const char *src,
                     int64_t src_stride) {
  if (dst_stride == 1 && src_stride == 1) {
    memcpy(dst, src, (size_t)n * 8);
    return;
  }
  for (int64_t i = 0; i < n; i++) memcpy(dst + i * dst_stride * 8, src + i * src_stride * 8, 8);
}

void moec_strided_copy(uint32_t rank, const int64_t *dims, void *dst, const int64_t *dst_stride,
                       const void *src, const int64_t *src_stride) {
  if (rank == 0) {
    memcpy(dst, src, 8);
    return;
  }
  if (moec_span(dims, 0, rank) == 0) return;
  const uint32_t outer = rank - 1;
  int64_t index[MOEC_MAX_RANK] = {0};
  do {
    int64_t d = 0, s = 0;
    for (uint32_t i = 0; i < outer; i++) {
      d += index[i] * dst_stride[i];
      s += index[i] * src_stride[i];
    }
    copy_run(dims[outer], (char *)dst + d * 8, dst_stride[outer], (const char *)src + s * 8,
             src_stride[outer]);
  } while (moec_next_index(outer, dims, index));
}

/* out[0] = in[0] read from element |base| on with |stride|. */
static void read_strided(moec_step *s, int64_t base, const int64_t *stride) {
  const moec_tensor *y = &s->out[0];
  int64_t dense[MOEC_MAX_RANK];
  moec_dense_strides(y->rank, y->dims, dense);
  if (moec_tensor_numel(y) == 0) return;
  moec_strided_copy(y->rank, y->dims, y->data, dense, (const char *)s->in[0]->data + base * 8,
                    stride);
}

MOEC_KERNEL(reshape) {
  int64_t n = moec_tensor_numel(s->in[0]), want = moec_tensor_numel(&s->out[0]);
  if (n != want)
    return MOEC_RUN_ERROR("expected equal element counts, got %lld to %lld", (long long)n,
                          (long long)want);
  memcpy(s->out[0].data, s->in[0]->data, (size_t)n * 8);
  return NULL;
}

MOEC_KERNEL(transpose) {
  const moec_attrs_TRANSPOSE *a = s->attrs;
  int64_t dense[MOEC_MAX_RANK], stride[MOEC_MAX_RANK];
  moec_dense_strides(s->in[0]->rank, s->in[0]->dims, dense);
  for (uint32_t i = 0; i < a->perm.n; i++) stride[i] = dense[a->perm.v[i]];
  read_strided(s, 0, stride);
  return NULL;
}

MOEC_KERNEL(broadcast) {
  const moec_attrs_BROADCAST *a = s->attrs;
  const moec_tensor *x = s->in[0], *y = &s->out[0];
  int64_t dense[MOEC_MAX_RANK], stride[MOEC_MAX_RANK] = {0};
  moec_dense_strides(x->rank, x->dims, dense);
  for (uint32_t i = 0; i < x->rank; i++) {
    int64_t axis = a->map.v[i];
    if (x->dims[i] == 1) continue;
    if (x->dims[i] != y->dims[axis])
      return MOEC_RUN_ERROR("operand axis %u is %lld, expected 1 or %lld", i, (long long)x->dims[i],
                            (long long)y->dims[axis]);
    stride[axis] = dense[i];
  }
  read_strided(s, 0, stride);
  return NULL;
}

MOEC_KERNEL(slice) {
  const moec_attrs_SLICE *a = s->attrs;
  const moec_tensor *x = s->in[0], *y = &s->out[0];
  int64_t stride[MOEC_MAX_RANK], base = 0;
  moec_dense_strides(x->rank, x->dims, stride);
  bool empty = moec_tensor_numel(y) == 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    int64_t start, last;
    MOEC_TRY(moec_interp_dim(s->ip, a->start.v[i], &start));
    bool fits = y->dims[i] == 0 || (moec_mul_i64(y->dims[i] - 1, a->step.v[i], &last) &&
                                    moec_add_i64(start, last, &last) && last < x->dims[i]);
    if (start < 0 || !fits)
      return MOEC_RUN_ERROR(
          "axis %u has %lld elements, expected %lld from %lld on by steps of %lld", i,
          (long long)x->dims[i], (long long)y->dims[i], (long long)start, (long long)a->step.v[i]);
    if (empty) continue; /* |start| may be far away */
    base += start * stride[i];
    stride[i] *= a->step.v[i];
  }
  read_strided(s, base, stride);
  return NULL;
}

MOEC_KERNEL(pad) {
  const moec_attrs_PAD *a = s->attrs;
  const moec_tensor *x = s->in[0], *y = &s->out[0];
  char *out = y->data;
  int64_t n = moec_tensor_numel(y), dense[MOEC_MAX_RANK], stride[MOEC_MAX_RANK], base = 0;
  moec_dense_strides(x->rank, x->dims, dense);
  moec_dense_strides(y->rank, y->dims, stride);
  for (uint32_t i = 0; i < x->rank; i++) {
    int64_t lo, hi;
    MOEC_TRY(moec_interp_dim(s->ip, a->lo.v[i], &lo));
    MOEC_TRY(moec_interp_dim(s->ip, a->hi.v[i], &hi));
    if (lo < 0 || hi < 0)
      return MOEC_RUN_ERROR("axis %u: expected lo and hi of at least 0, got %lld and %lld", i,
                            (long long)lo, (long long)hi);
    base += lo * stride[i];
  }
  for (int64_t i = 0; i < n; i++) memcpy(out + i * 8, s->in[1]->data, 8);
  if (moec_tensor_numel(x) != 0)
    moec_strided_copy(x->rank, x->dims, out + base * 8, stride, x->data, dense);
  return NULL;
}

MOEC_KERNEL(concat) {
  uint32_t axis = (uint32_t)((const moec_attrs_CONCAT *)s->attrs)->axis;
  const moec_tensor *y = &s->out[0];
  int64_t outer = moec_span(y->dims, 0, axis), inner = moec_span(y->dims, axis + 1, y->rank);
  int64_t at = 0, row = y->dims[axis] * inner;
  for (uint32_t k = 0; k < s->n_in; k++) {
    const moec_tensor *x = s->in[k];
    for (uint32_t i = 0; i < y->rank; i++)
      if (i != axis && x->dims[i] != y->dims[i])
        return MOEC_RUN_ERROR("axis %u of operand %u is %lld, expected %lld", i, k,
                              (long long)x->dims[i], (long long)y->dims[i]);
    int64_t run = x->dims[axis] * inner, dims[2] = {outer, run};
    moec_strided_copy(2, dims, (char *)y->data + at * 8, (int64_t[]){row, 1}, x->data,
                      (int64_t[]){run, 1});
    at += run;
  }
  return NULL;
}

MOEC_KERNEL(reverse) {
  const moec_attrs_REVERSE *a = s->attrs;
  const moec_tensor *x = s->in[0];
  int64_t stride[MOEC_MAX_RANK], base = 0;
  moec_dense_strides(x->rank, x->dims, stride);
  for (uint32_t i = 0; i < a->axes.n; i++) {
    int64_t axis = a->axes.v[i];
    base += (x->dims[axis] - 1) * stride[axis];
    stride[axis] = -stride[axis];
  }
  read_strided(s, base, stride);
  return NULL;
}
