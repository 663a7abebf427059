/* placeholder */
#include "codegen/report_internal.h"
void moec_report_view_html(const json_t *root, moec_buf *out) { (void)root; (void)out; }
