/* Parameters: their pieces fill them, and every parameter, constant and input buffer has
 * exactly one source. */
#include <inttypes.h>

#include "base/size.h"
#include "runtime/plan_read.h"
#include "runtime/sizes.h"

/* |x| lies inside the parameter of tensor |t|; adds its elements to *elements. */
static moec_status *check_place(const moec_rt_record *r, const moec_plan_piece *x,
                                const moec_plan_tensor *t, uint64_t *elements) {
  const moec_rt_plan *p = r->p;
  if (x->rank != t->rank) {
    return moec_rt_bad(r, "expected pieces of rank %u, got %u", t->rank, x->rank);
  }
  uint64_t n = 1;
  for (uint32_t a = 0; a < x->rank; a++) {
    int64_t dim = p->static_values[p->pool[t->dims + a]], size = x->shape[x->perm[a]];
    if (x->start[a] > dim || size > dim - x->start[a]) {
      return moec_rt_bad(
          r, "axis %u: expected a piece inside %" PRId64 ", got %" PRId64 " starting at %" PRId64,
          a, dim, size, x->start[a]);
    }
    n *= (uint64_t)size; /* at most the parameter's own count, which is checked */
  }
  *elements += n;
  return NULL;
}

/* Gradients have the type and shape of the compute copy. */
static moec_status *check_grad(const moec_rt_record *r, const moec_plan_param *x) {
  const moec_rt_plan *p = r->p;
  MOEC_TRY(moec_rt_check_index(r, "grad", x->grad, p->n_tensors));
  const moec_plan_tensor *t = &p->tensors[x->tensor], *g = &p->tensors[x->grad];
  uint32_t kind = p->buffers[g->buffer].kind;
  if (kind != MOEC_BUFFER_GRAD)
    return moec_rt_bad(r, "grad: expected a buffer of a gradient, got one of kind %u", kind);
  if (t->dtype != MOEC_F32 && t->dtype != MOEC_BF16 && t->dtype != MOEC_F16) {
    return moec_rt_bad(r, "grad: expected a parameter of f32, bf16 or f16, got %s",
                       moec_dtype_get((moec_dtype)t->dtype)->text);
  }
  int64_t bytes = (int64_t)moec_dtype_get((moec_dtype)t->dtype)->bytes;
  bool same = g->dtype == t->dtype && g->rank == t->rank;
  for (uint32_t a = 0; same && a < t->rank; a++) {
    int64_t dim = p->static_values[p->pool[g->dims + a]];
    same = dim == p->static_values[p->pool[t->dims + a]] && moec_mul_i64(bytes, dim, &bytes);
  }
  if (same && p->static_values[p->buffers[g->buffer].bytes] == bytes) return NULL;
  return moec_rt_bad(r, "grad: expected %s of the parameter's shape, got %s or another shape",
                     moec_dtype_get((moec_dtype)t->dtype)->text, moec_dtype_get((moec_dtype)g->dtype)->text);
}

static moec_status *check_param(const moec_rt_record *r, const moec_plan_param *x) {
  const moec_rt_plan *p = r->p;
  MOEC_TRY(moec_rt_check_string(r, "name", x->name));
  MOEC_TRY(moec_rt_check_index(r, "tensor", x->tensor, p->n_tensors));
  MOEC_TRY(moec_rt_check_range(r, "pieces", x->pieces, x->n_pieces, p->n_pieces));
  if (x->storage == MOEC_DTYPE_NONE || x->storage >= MOEC_DTYPE_COUNT) {
    return moec_rt_bad(r, "storage: expected a type from 1 to %d, got %u",
                       (int)MOEC_DTYPE_COUNT - 1, x->storage);
  }
  const moec_plan_tensor *t = &p->tensors[x->tensor];
  uint32_t kind = p->buffers[t->buffer].kind;
  if (kind != MOEC_BUFFER_PARAM) return moec_rt_bad(r, "expected a buffer of a parameter, got one of kind %u", kind);
  int64_t bytes = (int64_t)moec_dtype_get((moec_dtype)t->dtype)->bytes, numel = 1;
  for (uint32_t a = 0; a < t->rank; a++) {
    int64_t dim = p->static_values[p->pool[t->dims + a]];
    if (dim < 0 || !moec_mul_i64(numel, dim, &numel)) {
      char text[MOEC_RT_EXPR_TEXT];
      moec_rt_expr_text(p, p->pool[t->dims + a], text, sizeof text);
      return moec_rt_bad(r, "axis %u: expected a size known at compile time, got %s", a, text);
    }
  }
  if (!moec_mul_i64(bytes, numel, &bytes) ||
      p->static_values[p->buffers[t->buffer].bytes] != bytes) {
    return moec_rt_bad(r, "expected a buffer of %" PRId64 " bytes, got %" PRId64, bytes,
                       p->static_values[p->buffers[t->buffer].bytes]);
  }
  if (x->grad != MOEC_NONE) MOEC_TRY(check_grad(r, x));
  uint64_t elements = 0;
  for (uint32_t i = 0; i < x->n_pieces; i++) {
    MOEC_TRY(check_place(r, &p->pieces[x->pieces + i], t, &elements));
  }
  if (elements != (uint64_t)numel) {
    return moec_rt_bad(r, "expected pieces of %" PRId64 " elements in all, got %" PRIu64, numel,
                       elements);
  }
  return NULL;
}

/* Marks the buffer of |tensor|; tied parameters may name one buffer several times. */
static moec_status *mark(const moec_rt_record *r, uint8_t *marks, uint32_t tensor, bool again) {
  uint32_t b = r->p->tensors[tensor].buffer;
  if (marks[b] && !again) return moec_rt_bad(r, "expected a buffer of its own, got %u", b);
  marks[b] = 1;
  return NULL;
}

static moec_status *check_sources(const moec_rt_plan *p, uint8_t *marks) {
  for (uint32_t i = 0; i < p->n_params; i++) {
    const moec_rt_record r = {p, "parameter", i};
    MOEC_TRY(check_param(&r, &p->params[i]));
    MOEC_TRY(mark(&r, marks, p->params[i].tensor, p->params[i].tie != 0));
    if (p->params[i].grad != MOEC_NONE)
      MOEC_TRY(mark(&r, marks, p->params[i].grad, p->params[i].tie != 0));
  }
  for (uint32_t i = 0; i < p->n_consts; i++) {
    const moec_rt_record r = {p, "constant", i};
    MOEC_TRY(mark(&r, marks, p->consts[i].tensor, false));
    const moec_plan_buffer *b = moec_rt_buffer_of(p, p->consts[i].tensor);
    if (p->static_values[b->bytes] < 0 ||
        (uint64_t)p->static_values[b->bytes] > p->consts[i].size) {
      return moec_rt_bad(&r, "expected %" PRId64 " bytes, got %" PRIu64, p->static_values[b->bytes],
                         p->consts[i].size);
    }
  }
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    const moec_rt_record r = {p, "input", i};
    MOEC_TRY(mark(&r, marks, p->inputs[i].tensor, false));
  }
  for (uint32_t i = 0; i < p->n_buffers; i++) {
    const moec_rt_record r = {p, "buffer", i};
    uint32_t kind = p->buffers[i].kind;
    bool outside = kind == MOEC_BUFFER_PARAM || kind == MOEC_BUFFER_CONST ||
                   kind == MOEC_BUFFER_INPUT || kind == MOEC_BUFFER_GRAD;
    if (outside && !marks[i]) return moec_rt_bad(&r, "expected a source of its bytes, got none");
  }
  return NULL;
}

moec_status *moec_rt_check_params(const moec_rt_plan *p) {
  uint8_t *marks;
  MOEC_TRY(MOEC_RT_NEW(p->mem, marks, p->n_buffers, "plan"));
  moec_status *s = check_sources(p, marks);
  moec_rt_free(p->mem, marks);
  return s;
}
