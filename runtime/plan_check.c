/* Every record by itself: its indices, strings, ranges and enumerations. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/fresh.h"
#include "runtime/plan_read.h"

moec_status *moec_rt_bad(const moec_rt_record *r, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  moec_status *s = moec_errorv(MOEC_INVALID_MODEL, fmt, args);
  va_end(args);
  return moec_context(s, "%s %u", r->section, r->i);
}

moec_status *moec_rt_check_index(const moec_rt_record *r, const char *field, uint32_t v,
                                 uint32_t n) {
  if (v < n) return NULL;
  return moec_rt_bad(r, "%s: expected an index below %u, got %u", field, n, v);
}

moec_status *moec_rt_check_optional(const moec_rt_record *r, const char *field, uint32_t v,
                                    uint32_t n) {
  return v == MOEC_NONE ? NULL : moec_rt_check_index(r, field, v, n);
}

moec_status *moec_rt_check_range(const moec_rt_record *r, const char *field, uint32_t first,
                                 uint64_t count, uint32_t n) {
  if (first <= n && count <= n - first) return NULL;
  return moec_rt_bad(r, "%s: expected a range inside %u records, got %" PRIu64 " at %u", field, n,
                     count, first);
}

moec_status *moec_rt_check_string(const moec_rt_record *r, const char *field, moec_str_ref s) {
  return moec_rt_check_index(r, field, s, r->p->n_strings); /* the last byte is a NUL */
}

static moec_status *check_exprs(const moec_rt_record *r, uint32_t i) {
  const moec_plan_expr *e = &r->p->exprs[i];
  MOEC_TRY(moec_rt_check_index(r, "op", e->op, MOEC_EXPR_OP_COUNT));
  if (e->op == MOEC_EXPR_CONST) {
    return e->imm == INT64_MIN ? moec_rt_bad(r, "expected a size, got %" PRId64, e->imm) : NULL;
  }
  if (e->op == MOEC_EXPR_SYMBOL) return moec_rt_check_index(r, "symbol", e->a, r->p->n_symbols);
  MOEC_TRY(moec_rt_check_index(r, "first operand", e->a, i));
  return moec_rt_check_index(r, "second operand", e->b, i);
}

static moec_status *check_symbols(const moec_rt_record *r, uint32_t i) {
  const moec_plan_symbol *s = &r->p->symbols[i];
  MOEC_TRY(moec_rt_check_string(r, "name", s->name));
  if (s->fixed >= -1) return NULL;
  return moec_rt_bad(r, "fixed: expected a size or -1, got %" PRId64, s->fixed);
}

/* A program: a schedule that reads inputs. */
static moec_status *check_program(const moec_rt_record *r, uint32_t schedule) {
  if (schedule >= MOEC_AT_STEP && schedule < MOEC_SCHEDULE_COUNT) return NULL;
  return moec_rt_bad(r, "schedule: expected a program, %d to %d, got %u", (int)MOEC_AT_STEP,
                     (int)MOEC_SCHEDULE_COUNT - 1, schedule);
}

static moec_status *check_buffers(const moec_rt_record *r, uint32_t i) {
  const moec_plan_buffer *b = &r->p->buffers[i];
  MOEC_TRY(moec_rt_check_index(r, "kind", b->kind, MOEC_BUFFER_KIND_COUNT));
  if (moec_rt_of_program(b->kind)) MOEC_TRY(check_program(r, b->schedule));
  return moec_rt_check_index(r, "bytes", b->bytes, r->p->n_exprs);
}

static moec_status *check_dtype(const moec_rt_record *r, const char *field, uint32_t dtype) {
  if (dtype != MOEC_DTYPE_NONE && dtype < MOEC_DTYPE_COUNT) return NULL;
  return moec_rt_bad(r, "%s: expected a type from 1 to %d, got %u", field,
                     (int)MOEC_DTYPE_COUNT - 1, dtype);
}

static moec_status *check_rank(const moec_rt_record *r, uint32_t rank) {
  if (rank <= MOEC_PLAN_MAX_RANK) return NULL;
  return moec_rt_bad(r, "rank: expected at most %d, got %u", MOEC_PLAN_MAX_RANK, rank);
}

static moec_status *check_tensors(const moec_rt_record *r, uint32_t i) {
  const moec_rt_plan *p = r->p;
  const moec_plan_tensor *t = &p->tensors[i];
  MOEC_TRY(moec_rt_check_index(r, "buffer", t->buffer, p->n_buffers));
  MOEC_TRY(check_dtype(r, "dtype", t->dtype));
  MOEC_TRY(check_rank(r, t->rank));
  MOEC_TRY(moec_rt_check_string(r, "name", t->name));
  MOEC_TRY(moec_rt_check_range(r, "dims", t->dims, t->rank, p->n_pool));
  for (uint32_t a = 0; a < t->rank; a++) {
    MOEC_TRY(moec_rt_check_index(r, "dim", p->pool[t->dims + a], p->n_exprs));
  }
  return NULL;
}

/* A file's name is joined to a folder that the user names: it must not lead out of it. */
static moec_status *check_files(const moec_rt_record *r, uint32_t i) {
  const moec_plan_file *f = &r->p->files[i];
  MOEC_TRY(moec_rt_check_string(r, "name", f->name));
  const char *name = moec_rt_str(r->p, f->name);
  if (moec_fresh_is(name)) {
    moec_fresh fresh;
    return moec_fresh_parse(name, &fresh);
  }
  if (*name && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..")) return NULL;
  return moec_rt_bad(r, "name: expected a file name without folder, got '%s'", name);
}

static moec_status *check_permutation(const moec_rt_record *r, const uint32_t *perm, uint32_t rank) {
  for (uint32_t axis = 0; axis < rank; axis++) {
    uint32_t a = 0;
    while (a < rank && perm[a] != axis) a++;
    if (a == rank) return moec_rt_bad(r, "perm: expected a permutation of %u axes, got one without %u", rank, axis);
  }
  return NULL;
}

/* Where the piece lies; its place in the parameter: plan_params.c. */
static moec_status *check_pieces(const moec_rt_record *r, uint32_t i) {
  const moec_rt_plan *p = r->p;
  const moec_plan_piece *x = &p->pieces[i];
  MOEC_TRY(moec_rt_check_optional(r, "file", x->file, p->n_files));
  MOEC_TRY(check_dtype(r, "dtype", x->dtype));
  MOEC_TRY(check_rank(r, x->rank));
  MOEC_TRY(moec_rt_check_string(r, "name", x->name));
  int64_t bytes = (int64_t)moec_dtype_get((moec_dtype)x->dtype)->bytes;
  for (uint32_t a = 0; a < x->rank; a++) {
    if (x->shape[a] < 0 || x->start[a] < 0 || !moec_mul_i64(bytes, x->shape[a], &bytes)) {
      return moec_rt_bad(r,
                         "axis %u: expected sizes of at least 0 whose product is a size, got "
                         "%" PRId64 " starting at %" PRId64,
                         a, x->shape[a], x->start[a]);
    }
  }
  MOEC_TRY(check_permutation(r, x->perm, x->rank));
  if (x->file != MOEC_NONE && moec_fresh_is(moec_rt_str(p, p->files[x->file].name))) {
    if (moec_dtype_is_float((moec_dtype)x->dtype)) return NULL;
    return moec_rt_bad(r, "dtype: expected floats where weights are made from a seed, got %s",
                       moec_dtype_get((moec_dtype)x->dtype)->text);
  }
  uint64_t total = x->file == MOEC_NONE ? p->footer.data_size : p->files[x->file].size;
  if (x->offset > total || (uint64_t)bytes > total - x->offset) {
    return moec_rt_bad(
        r, "expected bytes inside the %" PRIu64 " of its file, got %" PRId64 " at %" PRIu64, total,
        bytes, x->offset);
  }
  return NULL;
}

static moec_status *check_consts(const moec_rt_record *r, uint32_t i) {
  const moec_rt_plan *p = r->p;
  const moec_plan_const *c = &p->consts[i];
  MOEC_TRY(moec_rt_check_index(r, "tensor", c->tensor, p->n_tensors));
  uint32_t kind = moec_rt_buffer_of(p, c->tensor)->kind;
  if (kind != MOEC_BUFFER_CONST) return moec_rt_bad(r, "expected a buffer of constants, got one of kind %u", kind);
  uint64_t total = p->footer.data_size;
  if (c->offset % MOEC_RT_ALIGN || c->offset > total || c->size > total - c->offset) {
    return moec_rt_bad(r,
                       "expected bytes inside the %" PRIu64
                       " of data at a multiple of %u, got "
                       "%" PRIu64 " at %" PRIu64,
                       total, MOEC_RT_ALIGN, c->size, c->offset);
  }
  return NULL;
}

static moec_status *check_kernels(const moec_rt_record *r, uint32_t i) {
  const moec_rt_plan *p = r->p;
  const moec_plan_kernel *k = &p->kernels[i];
  MOEC_TRY(moec_rt_check_string(r, "name", k->name));
  MOEC_TRY(moec_rt_check_string(r, "what", k->what));
  MOEC_TRY(moec_rt_check_index(r, "rows", k->rows, p->n_exprs));
  MOEC_TRY(moec_rt_check_index(r, "scratch", k->scratch, p->n_exprs));
  MOEC_TRY(moec_rt_check_index(r, "flops", k->flops, p->n_exprs));
  if (!p->kernel_object) return moec_rt_bad(r, "expected a shared object with it, got none");
  return NULL;
}

/* The buffer of |tensor| is one of the program |schedule|, or of no program. */
static moec_status *check_same_program(const moec_rt_record *r, uint32_t tensor,
                                       uint32_t schedule) {
  const moec_plan_buffer *b = moec_rt_buffer_of(r->p, tensor);
  if (!moec_rt_of_program(b->kind) || b->schedule == schedule) return NULL;
  return moec_rt_bad(r, "expected a buffer of program %u, got one of program %u", schedule,
                     b->schedule);
}

static moec_status *check_io(const moec_rt_record *r, const moec_plan_io *io, const char *wanted,
                             bool (*kind_fits)(uint32_t kind)) {
  MOEC_TRY(moec_rt_check_string(r, "name", io->name));
  MOEC_TRY(moec_rt_check_index(r, "tensor", io->tensor, r->p->n_tensors));
  MOEC_TRY(check_program(r, io->schedule));
  uint32_t kind = moec_rt_buffer_of(r->p, io->tensor)->kind;
  if (!kind_fits(kind)) return moec_rt_bad(r, "expected a buffer %s, got one of kind %u", wanted, kind);
  return check_same_program(r, io->tensor, io->schedule);
}

static bool fits_input(uint32_t kind) { return kind == MOEC_BUFFER_INPUT; }
static bool fits_output(uint32_t kind) { return kind != MOEC_BUFFER_STEP; } /* it must last */

static moec_status *check_inputs(const moec_rt_record *r, uint32_t i) {
  const moec_plan_io *io = &r->p->inputs[i];
  uint64_t bytes = 0;
  MOEC_TRY(check_io(r, io, "of an input", fits_input));
  MOEC_TRY(moec_rt_check_index(r, "has_default", io->has_default, 2));
  moec_dtype t = (moec_dtype)r->p->tensors[io->tensor].dtype;
  moec_store_f64(t, &bytes, 0, io->dflt);
  if (!io->has_default || moec_load_f64(t, &bytes, 0) == io->dflt) return NULL;
  return moec_rt_bad(r, "default: expected a value of type %s, got %g", moec_dtype_get(t)->text,
                     io->dflt);
}
static moec_status *check_outputs(const moec_rt_record *r, uint32_t i) {
  return check_io(r, &r->p->outputs[i], "that lasts", fits_output);
}

static moec_status *check_constraints(const moec_rt_record *r, uint32_t i) {
  const moec_plan_constraint *c = &r->p->constraints[i];
  MOEC_TRY(moec_rt_check_index(r, "a", c->a, r->p->n_exprs));
  MOEC_TRY(moec_rt_check_index(r, "b", c->b, r->p->n_exprs));
  MOEC_TRY(moec_rt_check_string(r, "where", c->where));
  MOEC_TRY(moec_rt_check_string(r, "what", c->what));
  return moec_rt_check_string(r, "text", c->text);
}

static moec_status *check_moe_layers(const moec_rt_record *r, uint32_t i) {
  const moec_rt_plan *p = r->p;
  const moec_plan_moe *m = &p->moe_layers[i];
  const struct {
    const char *field;
    uint32_t tensor;
  } kept[] = {{"indices", m->indices}, {"weights", m->weights}, {"offsets", m->offsets}};
  MOEC_TRY(check_program(r, m->schedule));
  for (int k = 0; k < 3; k++) {
    MOEC_TRY(moec_rt_check_optional(r, kept[k].field, kept[k].tensor, p->n_tensors));
    if (kept[k].tensor != MOEC_NONE) MOEC_TRY(check_same_program(r, kept[k].tensor, m->schedule));
  }
  MOEC_TRY(moec_rt_check_optional(r, "call", m->call, p->n_calls));
  return moec_rt_check_string(r, "name", m->name);
}

static moec_status *check_functions(const moec_rt_record *r, uint32_t i) {
  return moec_rt_check_string(r, "name", r->p->functions[i].name);
}

static moec_status *check_calls(const moec_rt_record *r, uint32_t i) {
  return moec_rt_check_index(r, "function", r->p->calls[i].function, r->p->n_functions);
}

static moec_status *check_view(const moec_rt_record *r, const moec_plan_view *v) {
  if (v->arg == MOEC_NONE) return NULL;
  MOEC_TRY(moec_rt_check_index(r, "offset", v->offset, r->p->n_exprs));
  for (int i = 0; i < 3; i++) MOEC_TRY(moec_rt_check_index(r, "stride", v->strides[i], r->p->n_exprs));
  return NULL;
}

/* Positions in args: where the steps of its kernel are checked, plan_flow.c. */
static moec_status *check_attentions(const moec_rt_record *r, uint32_t i) {
  const moec_rt_plan *p = r->p;
  const moec_plan_attention *a = &p->attentions[i];
  const moec_expr_ref sizes[] = {a->b, a->s, a->t, a->h, a->g, a->d, a->e};
  MOEC_TRY(moec_rt_check_index(r, "kernel", a->kernel, p->n_kernels));
  MOEC_TRY(moec_rt_check_index(r, "grad", a->grad, 2));
  MOEC_TRY(moec_rt_check_index(r, "causal", a->causal, 2));
  if (a->dtype != MOEC_F16 && a->dtype != MOEC_BF16)
    return moec_rt_bad(r, "dtype: expected f16 or bf16, got type %u", a->dtype);
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    MOEC_TRY(moec_rt_check_index(r, "size", sizes[k], p->n_exprs));
  MOEC_TRY(moec_rt_check_range(r, "ones", a->ones, a->n_ones, p->n_pool));
  for (int o = 0; o < MOEC_ATTENTION_OPERANDS; o++) {
    bool wanted = a->grad || o <= MOEC_ATTENTION_Y;
    if (wanted == (a->operands[o].arg == MOEC_NONE) && !(o == MOEC_ATTENTION_LSE && !a->grad))
      return moec_rt_bad(r, "operand %d: expected %s, got %s", o, wanted ? "an argument" : "none",
                         wanted ? "none" : "one");
    MOEC_TRY(check_view(r, &a->operands[o]));
  }
  for (uint32_t k = 0; k < i; k++)
    if (p->attentions[k].kernel == a->kernel)
      return moec_rt_bad(r, "expected one of kernel %u, got another", a->kernel);
  return NULL;
}

/* Records without a function here are checked where they are used: pool and ints by the records
 * that own a range of them, params in plan_params.c, steps in plan_flow.c. */
typedef moec_status *(*check_fn)(const moec_rt_record *r, uint32_t i);
typedef struct table {
  const char *section;
  size_t count; /* offset of the count in moec_rt_plan */
  check_fn check;
} table;
#define TABLE(text, field) \
  { text, offsetof(moec_rt_plan, n_##field), check_##field }
static const table tables[] = {
    TABLE("expression", exprs),
    TABLE("symbol", symbols),
    TABLE("buffer", buffers),
    TABLE("tensor", tensors),
    TABLE("file", files),
    TABLE("piece", pieces),
    TABLE("constant", consts),
    TABLE("kernel", kernels),
    TABLE("input", inputs),
    TABLE("output", outputs),
    TABLE("constraint", constraints),
    TABLE("MoE layer", moe_layers),
    TABLE("function", functions),
    TABLE("call", calls),
    TABLE("attention", attentions),
};

moec_status *moec_rt_check_records(const moec_rt_plan *p) {
  const moec_plan_header *h = p->header;
  const moec_rt_record top = {p, "header", 0};
  MOEC_TRY(moec_rt_check_string(&top, "model", h->model));
  MOEC_TRY(moec_rt_check_string(&top, "options", h->options));
  MOEC_TRY(moec_rt_check_string(&top, "target", h->target));
  MOEC_TRY(moec_rt_check_string(&top, "cpu", h->cpu));
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    uint32_t n;
    memcpy(&n, (const char *)p + tables[t].count, sizeof n);
    for (uint32_t i = 0; i < n; i++) {
      const moec_rt_record r = {p, tables[t].section, i};
      MOEC_TRY(tables[t].check(&r, i));
    }
  }
  return NULL;
}
