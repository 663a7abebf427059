/* Gather and scatter. */
#include <string.h>

#include "ir/interp_internal.h"

/* An index as a position on an axis of |size|: negative ones count from the end. */
static moec_status *position(int64_t index, int64_t size, uint32_t axis, int64_t *out) {
  *out = index < 0 ? index + size : index;
  if (*out >= 0 && *out < size) return NULL;
  return MOEC_RUN_ERROR("index %lld is out of range for axis %u of size %lld", (long long)index,
                        axis, (long long)size);
}

MOEC_KERNEL(gather) {
  uint32_t axis = (uint32_t)((const moec_attrs_GATHER *)s->attrs)->axis;
  const moec_tensor *x = s->in[0], *i = s->in[1];
  const int64_t *index = i->data;
  int64_t outer = moec_span(x->dims, 0, axis), inner = moec_span(x->dims, axis + 1, x->rank);
  int64_t n = moec_tensor_numel(i), size = x->dims[axis];
  char *y = s->out[0].data;
  for (int64_t j = 0; j < n; j++) {
    int64_t at;
    MOEC_TRY(position(index[j], size, axis, &at));
    for (int64_t o = 0; o < outer; o++)
      memcpy(y + (o * n + j) * inner * 8, (const char *)x->data + (o * size + at) * inner * 8,
             (size_t)inner * 8);
  }
  return NULL;
}

/* Walks |shape| (of indices) and calls |visit| with the number of each index and the element of a
 * tensor of dims |dims| it means: the same position but for |axis|. */
typedef void (*element_visitor)(const void *user, int64_t number, int64_t element);

static moec_status *each_element(const moec_tensor *index, const moec_tensor *x, uint32_t axis,
                                 element_visitor visit, const void *user) {
  int64_t strides[MOEC_MAX_RANK], at[MOEC_MAX_RANK] = {0}, number = 0;
  for (uint32_t i = 0; i < x->rank; i++)
    if (i != axis && index->dims[i] > x->dims[i])
      return MOEC_RUN_ERROR("axis %u of the indices is %lld, expected at most %lld", i,
                            (long long)index->dims[i], (long long)x->dims[i]);
  if (moec_tensor_numel(index) == 0) return NULL;
  moec_dense_strides(x->rank, x->dims, strides);
  do {
    int64_t element = 0, p;
    MOEC_TRY(position(((const int64_t *)index->data)[number], x->dims[axis], axis, &p));
    for (uint32_t i = 0; i < x->rank; i++) element += (i == axis ? p : at[i]) * strides[i];
    visit(user, number++, element);
  } while (moec_next_index(x->rank, index->dims, at));
  return NULL;
}

static void gather_one(const void *user, int64_t number, int64_t element) {
  const moec_step *s = user;
  memcpy((char *)s->out[0].data + number * 8, (const char *)s->in[0]->data + element * 8, 8);
}

MOEC_KERNEL(gather_elements) {
  uint32_t axis = (uint32_t)((const moec_attrs_GATHER_ELEMENTS *)s->attrs)->axis;
  return each_element(s->in[1], s->in[0], axis, gather_one, s);
}

/* ---- index tuples ------------------------------------------------------------------------- */

/* Tuple |index| of length q into axes first .. first+q of |x|, as a number of slices. */
static moec_status *tuple_position(const int64_t *index, int64_t q, const moec_tensor *x,
                                   uint32_t first, int64_t *out) {
  *out = 0;
  for (uint32_t i = 0; i < (uint32_t)q; i++) {
    int64_t p;
    MOEC_TRY(position(index[i], x->dims[first + i], first + i, &p));
    *out = *out * x->dims[first + i] + p;
  }
  return NULL;
}

MOEC_KERNEL(gather_nd) {
  uint32_t b = (uint32_t)((const moec_attrs_GATHER_ND *)s->attrs)->batch_dims;
  const moec_tensor *x = s->in[0], *i = s->in[1];
  int64_t q = i->dims[i->rank - 1], batches = moec_span(i->dims, 0, b);
  int64_t tuples = moec_span(i->dims, b, i->rank - 1);
  int64_t slices = moec_span(x->dims, b, b + (uint32_t)q);
  int64_t inner = moec_span(x->dims, b + (uint32_t)q, x->rank);
  for (uint32_t k = 0; k < b; k++)
    if (i->dims[k] != x->dims[k])
      return MOEC_RUN_ERROR("batch axis %u is %lld in the operand and %lld in the indices", k,
                            (long long)x->dims[k], (long long)i->dims[k]);
  for (int64_t j = 0; j < batches * tuples; j++) {
    int64_t at;
    MOEC_TRY(tuple_position((const int64_t *)i->data + j * q, q, x, b, &at));
    memcpy((char *)s->out[0].data + j * inner * 8,
           (const char *)x->data + (j / tuples * slices + at) * inner * 8, (size_t)inner * 8);
  }
  return NULL;
}

/* ---- scatter ------------------------------------------------------------------------------ */

/* The attribute's values 1 .. 4; 0 assigns. */
static const moec_op reductions[] = {MOEC_OP_NONE, MOEC_OP_ADD, MOEC_OP_MUL, MOEC_OP_MAX,
                                     MOEC_OP_MIN};

typedef struct scatter {
  moec_tensor *y;
  const moec_tensor *updates;
  moec_op by;
  moec_scalar2 fn;
  moec_dtype dtype;
} scatter;

/* Copies the operand to the result; updates come on top. */
static scatter begin_scatter(moec_step *s, int64_t reduction) {
  scatter c = {.y = &s->out[0],
               .updates = s->in[2],
               .by = reductions[reduction],
               .dtype = moec_step_dtype(s, 0)};
  c.fn = moec_scalar_binary(c.by);
  memcpy(c.y->data, s->in[0]->data, moec_tensor_bytes(c.y));
  return c;
}

static void update_one(const void *user, int64_t number, int64_t element) {
  const scatter *c = user;
  if (c->by == MOEC_OP_NONE) {
    memcpy((char *)c->y->data + element * 8, (const char *)c->updates->data + number * 8, 8);
  } else if (moec_is_f64(c->y)) {
    double *y = c->y->data;
    y[element] = c->fn.f(y[element], ((const double *)c->updates->data)[number]);
  } else {
    int64_t *y = c->y->data, u = ((const int64_t *)c->updates->data)[number];
    int64_t (*f)(int64_t, int64_t) = c->dtype == MOEC_U64 && c->fn.u ? c->fn.u : c->fn.i;
    y[element] = f(y[element], u);
  }
}

MOEC_KERNEL(scatter_elements) {
  const moec_attrs_SCATTER_ELEMENTS *a = s->attrs;
  scatter c = begin_scatter(s, a->reduction);
  return each_element(s->in[1], s->in[0], (uint32_t)a->axis, update_one, &c);
}

MOEC_KERNEL(scatter_nd) {
  const moec_tensor *x = s->in[0], *i = s->in[1];
  scatter c = begin_scatter(s, ((const moec_attrs_SCATTER_ND *)s->attrs)->reduction);
  int64_t q = i->dims[i->rank - 1], tuples = moec_span(i->dims, 0, i->rank - 1);
  int64_t inner = moec_span(x->dims, (uint32_t)q, x->rank);
  if (moec_tensor_numel(c.updates) != tuples * inner)
    return MOEC_RUN_ERROR("expected %lld updates, got %lld", (long long)(tuples * inner),
                          (long long)moec_tensor_numel(c.updates));
  for (int64_t j = 0; j < tuples; j++) {
    int64_t at;
    MOEC_TRY(tuple_position((const int64_t *)i->data + j * q, q, x, 0, &at));
    for (int64_t k = 0; k < inner; k++) update_one(&c, j * inner + k, at * inner + k);
  }
  return NULL;
}
