/* The views by name. */
#include <string.h>

#include "codegen/report_internal.h"

static const struct view {
  const char *format;
  void (*draw)(const json_t *root, moec_buf *out);
} views[] = {
    {"text", moec_report_view_text},
    {"json", moec_report_view_json},
    {"dot", moec_report_view_dot},
    {"html", moec_report_view_html},
};
enum { N_VIEWS = sizeof views / sizeof *views };

void moec_report_view_json(const json_t *root, moec_buf *out) {
  char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  if (!text) moec_die_out_of_memory();
  moec_buf_puts(out, text);
  moec_buf_putc(out, '\n');
  free(text);
}

moec_status *moec_report_render(const json_t *root, const char *format, moec_buf *out) {
  size_t i = 0;
  while (i < N_VIEWS && strcmp(views[i].format, format) != 0) i++;
  if (i == N_VIEWS) {
    moec_buf names = {0};
    for (i = 0; i < N_VIEWS; i++) moec_buf_printf(&names, "%s%s", i ? ", " : "", views[i].format);
    moec_status *s =
        moec_error(MOEC_INVALID_ARGUMENT, "expected a format (%s), got \"%s\"", moec_buf_str(&names), format);
    moec_buf_fini(&names);
    return s;
  }
  MOEC_TRY(moec_report_check(root));
  views[i].draw(root, out);
  return NULL;
}
