/* The library kernels of a cubin (include/cuda_abi.h): the texts of codegen/kernels/, once for each dtype that some
 * step of the plan has. */
#include <string.h>

#include "codegen/embedded.h"
#include "codegen/emit.h"
#include "codegen/plan_build.h"

/* The text a step needs; its dtype is that of operand |arg|, counted from the results where negative. */
typedef struct need {
  moec_step_op op;
  const char *file;
  int arg;
} need;
static const need needs[] = {
    {MOEC_STEP_CONV, "conv.cu", 0},
    {MOEC_STEP_CUMSUM, "cumsum.cu", 0},
    {MOEC_STEP_TOPK, "topk.cu", 0},
    {MOEC_STEP_SCATTER_ELEMENTS, "scatter.cu", 2},
    {MOEC_STEP_SCATTER_ND, "scatter.cu", 2},
    {MOEC_STEP_RANDOM, "random.cu", -1},
    {MOEC_STEP_MOE_SELECT, "topk.cu", 0},
    {MOEC_STEP_MOE_DISPATCH, "rows.cu", 0},
    {MOEC_STEP_MOE_WEIGHT, "rows.cu", 0},
    {MOEC_STEP_MOE_COMBINE, "rows.cu", 0},
    {MOEC_STEP_MOE_GROUPED_DOT, "grouped.cu", 0},
    {MOEC_STEP_MOE_GROUPED_OUTER, "grouped.cu", 0},
    {MOEC_STEP_MOE_GROUP_SUM, "group_sum.cu", 0},
    {MOEC_STEP_LINEAR_CROSS_ENTROPY, "loss.cu", 0},
};
enum { N_NEEDS = sizeof needs / sizeof *needs };
/* In this order: one text may use functions of those before it. */
static const char *const always[] = {"library.cu", "fill.cu", "plan.cu", "order.cu", "update.cu"};

static void write_typed(moec_buf *b, const char *file, moec_dtype t) {
  const moec_dtype_info *i = moec_dtype_get(t);
  bool half = t == MOEC_F16 || t == MOEC_BF16, is_float = i->cls == 'F';
  moec_buf_printf(b, "#define NAME(x) moec_##x##_%s\n#define T %s\n", i->text, i->c);
  moec_buf_printf(b, "#define SUM %s\n#define IS_FLOAT %d\n#define IS_SIGNED %d\n",
                  half       ? "float"
                  : is_float ? i->c
                             : "uint64_t",
                  is_float, i->cls == 'I');
  if (i->cls == 'B')
    moec_buf_puts(b, "#define LOAD(x) (x)\n#define STORE(x) ((T)((x) != 0))\n");
  else
    moec_buf_printf(b,
                    half ? "#define LOAD(x) moec_load_%s(x)\n#define STORE(x) moec_store_%s(x)\n"
                         : "#define LOAD(x) (x)\n#define STORE(x) ((T)(x))\n",
                    i->text, i->text);
  moec_embedded_write(b, file);
  moec_buf_puts(b,
                "#undef NAME\n#undef T\n#undef SUM\n#undef IS_FLOAT\n#undef IS_SIGNED\n#undef "
                "LOAD\n#undef STORE\n");
}

static bool needed(const moec_plan_tables *t, const char *file, moec_dtype dtype) {
  for (size_t i = 0; i < t->n_steps; i++) {
    const moec_plan_step *s = &t->steps[i];
    for (size_t k = 0; k < N_NEEDS; k++) {
      if (needs[k].op != (moec_step_op)s->op || strcmp(needs[k].file, file) != 0) continue;
      uint32_t arg = t->pool[s->args + (needs[k].arg < 0 ? s->n_in : (uint32_t)needs[k].arg)];
      if (t->tensors[arg].dtype == (uint32_t)dtype) return true;
    }
  }
  return false;
}

void moec_emit_cuda_library(moec_buf *b, const moec_plan_tables *t) {
  for (size_t i = 0; i < sizeof always / sizeof *always; i++) moec_embedded_write(b, always[i]);
  for (size_t k = 0; k < N_NEEDS; k++) {
    bool again = false;
    for (size_t i = 0; i < k; i++) again = again || strcmp(needs[i].file, needs[k].file) == 0;
    for (int dtype = 1; dtype < MOEC_DTYPE_COUNT && !again; dtype++)
      if (needed(t, needs[k].file, (moec_dtype)dtype))
        write_typed(b, needs[k].file, (moec_dtype)dtype);
  }
}
