/* Lines of the text view: columns, wrapping, and names that cannot upset a terminal. */
#ifndef MOEC_CODEGEN_REPORT_LINES_H
#define MOEC_CODEGEN_REPORT_LINES_H

#include "codegen/report_internal.h"

enum { REPORT_WIDTH = 100, REPORT_LABEL = 15 };

size_t moec_report_column(const moec_buf *b); /* of the end of the text: code points since the last newline */
void moec_report_pad(moec_buf *b, size_t column); /* at least one space, unless the column is reached exactly */
void moec_report_end_line(moec_buf *b);           /* without blanks at its end */
void moec_report_label(moec_buf *b, const char *label);
void moec_report_heading(moec_buf *b, const char *title);
/* |s| without control characters, at most |most| columns: longer ones lose their middle. */
void moec_report_clean(moec_buf *b, const char *s, size_t most);
/* |s| broken at blanks so that no line passes the width; further lines are indented by |indent|. */
void moec_report_wrap(moec_buf *b, const char *s, size_t indent);
void moec_report_range(moec_buf *b, int64_t first, int64_t last, size_t column); /* "0-47", "-" for -1; then pads */

void moec_report_many(moec_buf *b, int64_t n, const char *one); /* "1 call", "2 calls" */

/* codegen/report_text_fn.c: one function with its regions and cuts. */
void moec_report_text_function(const json_t *root, const json_t *fn, moec_buf *b);
/* codegen/report_text_train.c: the part on training; nothing where there is none. */
void moec_report_text_training(const json_t *root, moec_buf *b);
void moec_report_sizes_line(const json_t *root, moec_buf *b); /* " at batch 1, seq 128" */

#endif
