/* Builds small plans by hand, for tests of the runtime: a record a call, in any order that
 * defines before it uses; buffers' lifetimes are worked out at the end. */
#ifndef MOEC_TESTS_PLAN_BUILDER_H
#define MOEC_TESTS_PLAN_BUILDER_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/tensor.h"
#include "include/plan.h"
#include "tests/unit/unit.h"

enum { PB_MOST = 4096 };

#define PB_FIELD(field, type) \
  type field[PB_MOST];        \
  uint32_t n_##field;
typedef struct plan_builder {
  MOEC_PLAN_SECTIONS(PB_FIELD)
  uint8_t data[1 << 18];
  size_t n_data;
  moec_str_ref cpu, target;
  moec_schedule program; /* of inputs, outputs and buffers that are added */
} plan_builder;
#undef PB_FIELD

/* Appends a record and gives its index. */
#define PB_ADD(b, field, ...) ((b)->field[pb_room((b)->n_##field)] = __VA_ARGS__, (b)->n_##field++)
static inline uint32_t pb_room(uint32_t n) {
  ck_assert_uint_lt(n, PB_MOST);
  return n;
}

static inline plan_builder *pb_create(void) {
  plan_builder *b = calloc(1, sizeof *b);
  ck_assert_ptr_nonnull(b);
  b->n_strings = 1; /* offset 0 is "" */
  b->program = MOEC_AT_STEP;
  return b;
}

static inline moec_str_ref pb_str(plan_builder *b, const char *s) {
  moec_str_ref at = b->n_strings;
  ck_assert_uint_lt(at + strlen(s) + 1, PB_MOST);
  memcpy(b->strings + at, s, strlen(s) + 1);
  b->n_strings += (uint32_t)strlen(s) + 1;
  return at;
}

static inline moec_expr_ref pb_const(plan_builder *b, int64_t v) {
  return PB_ADD(b, exprs, (moec_plan_expr){.op = MOEC_EXPR_CONST, .imm = v});
}

static inline moec_expr_ref pb_expr(plan_builder *b, moec_expr_op op, moec_expr_ref x,
                                    moec_expr_ref y) {
  return PB_ADD(b, exprs, (moec_plan_expr){.op = op, .a = x, .b = y});
}

static inline moec_expr_ref pb_symbol(plan_builder *b, const char *name, int64_t fixed) {
  uint32_t s = PB_ADD(b, symbols, (moec_plan_symbol){pb_str(b, name), 0, fixed});
  return PB_ADD(b, exprs, (moec_plan_expr){.op = MOEC_EXPR_SYMBOL, .a = s});
}

static inline uint32_t pb_list(plan_builder *b, uint32_t n, const uint32_t *v) {
  uint32_t at = b->n_pool;
  for (uint32_t i = 0; i < n; i++) PB_ADD(b, pool, v[i]);
  return at;
}

/* A tensor in a buffer of its own. */
static inline uint32_t pb_tensor(plan_builder *b, moec_buffer_kind kind, moec_dtype dtype,
                                 uint32_t rank, const moec_expr_ref *dims) {
  moec_expr_ref bytes = pb_const(b, (int64_t)moec_dtype_get(dtype)->bytes);
  for (uint32_t i = 0; i < rank; i++) bytes = pb_expr(b, MOEC_EXPR_MUL, bytes, dims[i]);
  uint32_t buffer = PB_ADD(b, buffers, (moec_plan_buffer){kind, bytes, MOEC_NONE, 0, b->program});
  return PB_ADD(b, tensors, (moec_plan_tensor){buffer, dtype, rank, pb_list(b, rank, dims), 0});
}

/* The same with sizes known here. */
static inline uint32_t pb_static(plan_builder *b, moec_buffer_kind kind, const moec_tensor *t) {
  moec_expr_ref dims[MOEC_MAX_RANK];
  for (uint32_t i = 0; i < t->rank; i++) dims[i] = pb_const(b, t->dims[i]);
  return pb_tensor(b, kind, t->dtype, t->rank, dims);
}

static inline uint32_t pb_input(plan_builder *b, const char *name, uint32_t tensor) {
  return PB_ADD(b, inputs, (moec_plan_io){.name = pb_str(b, name), .tensor = tensor, .schedule = b->program});
}
static inline uint32_t pb_output(plan_builder *b, const char *name, uint32_t tensor) {
  return PB_ADD(b, outputs, (moec_plan_io){.name = pb_str(b, name), .tensor = tensor, .schedule = b->program});
}

static inline uint64_t pb_data(plan_builder *b, const void *bytes, size_t size) {
  b->n_data = (b->n_data + 63) & ~(size_t)63;
  ck_assert_uint_le(b->n_data + size, sizeof b->data);
  size_t at = b->n_data;
  if (size) memcpy(b->data + at, bytes, size);
  b->n_data += size;
  return at;
}

/* A kernel of the shared object, with |rows| rows. */
static inline uint32_t pb_kernel(plan_builder *b, const char *name, moec_expr_ref rows,
                                 moec_expr_ref scratch) {
  return PB_ADD(
      b, kernels,
      (moec_plan_kernel){
          .name = pb_str(b, name), .rows = rows, .scratch = scratch, .flops = rows, .grain = 4});
}

/* |args|: inputs, then outputs. */
static inline moec_plan_step *pb_step(plan_builder *b, moec_schedule schedule, moec_step_op op,
                                      uint32_t n_in, uint32_t n_out, const uint32_t *args,
                                      uint32_t n_ints, const int64_t *ints) {
  moec_plan_step s = {.op = op,
                      .schedule = schedule,
                      .kernel = MOEC_NONE,
                      .n_in = n_in,
                      .n_out = n_out,
                      .call = MOEC_NONE,
                      .moe = MOEC_NONE};
  s.args = pb_list(b, n_in + n_out, args);
  s.ints = b->n_ints;
  s.n_ints = n_ints;
  for (uint32_t i = 0; i < n_ints; i++) PB_ADD(b, ints, ints[i]);
  s.where = pb_str(b, "the_node");
  s.flops = pb_const(b, 1);
  uint32_t at = PB_ADD(b, steps, s);
  return &b->steps[at];
}

static inline void pb_launch(plan_builder *b, moec_schedule schedule, uint32_t kernel,
                             uint32_t n_in, uint32_t n_out, const uint32_t *args) {
  pb_step(b, schedule, MOEC_STEP_KERNEL, n_in, n_out, args, 0, NULL)->kernel = kernel;
}

static inline void pb_lifetimes(plan_builder *b) {
  uint32_t begin = 0;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    if (i && b->steps[i].schedule != b->steps[i - 1].schedule) begin = i;
    if (b->steps[i].schedule < MOEC_AT_STEP) continue;
    for (uint32_t k = 0; k < b->steps[i].n_in + b->steps[i].n_out; k++) {
      uint32_t t = b->pool[b->steps[i].args + k];
      if (t == MOEC_NONE) continue;
      moec_plan_buffer *x = &b->buffers[b->tensors[t].buffer];
      if (x->first == MOEC_NONE) x->first = i - begin;
      x->last = i - begin;
    }
  }
}

static inline void pb_hash(uint8_t *file, size_t size) {
  moec_footer f;
  size_t hash = size - sizeof f + offsetof(moec_footer, sha256);
  moec_sha256(file, hash, file + hash);
}

/* The file: |stub| (NULL: none), payload and footer. Freed by the caller. */
static inline uint8_t *pb_finish(plan_builder *b, const moec_map *stub, const moec_map *object,
                                 size_t *out_size) {
  moec_plan_header h = {.version = MOEC_PLAN_VERSION, .header_size = sizeof h, .cpu = b->cpu};
  h.target = b->target;
  memcpy(h.magic, MOEC_PLAN_MAGIC, sizeof h.magic);
  h.model = pb_str(b, "test.onnx");
  pb_lifetimes(b);
  size_t at = sizeof h;
#define PLACE(field_, type)                          \
  at = (at + 7) & ~(size_t)7;                        \
  h.field_ = (moec_plan_section){at, b->n_##field_}; \
  at += b->n_##field_ * sizeof(type);
  MOEC_PLAN_SECTIONS(PLACE)
#undef PLACE
  h.size = at;
  const size_t page = MOEC_PAGE - 1;
  size_t payload = stub ? (stub->size + page) & ~page : 0, kernels = (at + page) & ~page;
  moec_footer f = {.payload_offset = payload, .plan_size = at, .version = MOEC_PLAN_VERSION};
  f.kernels_offset = kernels;
  f.kernels_size = object ? object->size : 0;
  f.data_offset = (kernels + f.kernels_size + 63) & ~(size_t)63;
  f.data_size = b->n_data;
  f.payload_size = f.data_offset + f.data_size;
  memcpy(f.magic, MOEC_FOOTER_MAGIC, sizeof f.magic);
  *out_size = payload + f.payload_size + sizeof f;
  uint8_t *file = aligned_alloc(64, (*out_size + 63) & ~(size_t)63);
  ck_assert_ptr_nonnull(file);
  memset(file, 0, *out_size);
  if (stub) memcpy(file, stub->data, stub->size);
  memcpy(file + payload, &h, sizeof h);
#define WRITE(field_, type) \
  if (b->n_##field_)        \
    memcpy(file + payload + h.field_.offset, b->field_, b->n_##field_ * sizeof(type));
  MOEC_PLAN_SECTIONS(WRITE)
#undef WRITE
  if (object) memcpy(file + payload + f.kernels_offset, object->data, object->size);
  if (b->n_data) memcpy(file + payload + f.data_offset, b->data, b->n_data);
  memcpy(file + *out_size - sizeof f, &f, sizeof f);
  pb_hash(file, *out_size);
  return file;
}

/* |source| compiled to a shared object |dir|/kernels.so and mapped. */
static inline moec_map pb_compile(const char *dir, const char *source) {
  char path[256], command[1024];
  UNIT_OK(moec_write_file(unit_path(path, dir, "kernels.c"), source, strlen(source), 0644));
  snprintf(command, sizeof command, "cc -O1 -shared -fPIC -I. -o %s/kernels.so %s/kernels.c", dir,
           dir);
  ck_assert_int_eq(system(command), 0);
  moec_map m;
  UNIT_OK(moec_map_user_file(unit_path(path, dir, "kernels.so"), &m));
  return m;
}

#endif
