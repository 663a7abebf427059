/* codegen/report_idiom.c: names for the arithmetic of kernels. */
#ifndef MOEC_CODEGEN_REPORT_IDIOM_H
#define MOEC_CODEGEN_REPORT_IDIOM_H

#include "codegen/report_internal.h"

/* The node of kernel |g| that is composite |composite|, or the root of its arithmetic; {0}: none. */
moec_node moec_report_find_idiom(const moec_graph *g, moec_op composite);
/* "rms_norm + rope"; in the report's arena. */
const char *moec_report_kernel_title(const report *r, const moec_graph *k);

#endif
