/* Attention: not written yet. */
#include "codegen/kernel_build.h"

moec_status *moec_kernel_build_attention(moec_arena *a, moec_module *m, const moec_graph *fn, moec_node n, moec_kernel **out) {
  (void)a, (void)m, (void)fn, (void)n, (void)out;
  return moec_error(MOEC_UNSUPPORTED, "kernel: attention is not emitted yet");
}
