/* Products of experts on matrix units (codegen/kernels/grouped_wgmma.cu): wgmma and TMA, which no other processor
 * stands in for, so they are apart from the other library kernels. */
#include "codegen/embedded.h"
#include "codegen/emit.h"
#include "codegen/plan_build.h"

void moec_emit_cuda_grouped(moec_buf *b, const moec_plan_tables *t) {
  for (size_t i = 0; i < t->n_steps; i++) {
    const moec_plan_step *s = &t->steps[i];
    bool product = s->op == MOEC_STEP_MOE_GROUPED_DOT || s->op == MOEC_STEP_MOE_GROUPED_OUTER;
    if (!product || t->tensors[t->pool[s->args]].dtype != (uint32_t)MOEC_BF16) continue;
    moec_embedded_write(b, "grouped_wgmma.cu");
    return;
  }
}
